"""One node as read for a plan: its pods, what each holds, and what lacks for a resize. Pure."""

from collections import Counter
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from podscale.core.disruptions import MAKE_ROOM
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.columns.pod_shapes import amounts
from podscale.kube.objects.cluster import Node, PodDisruptionBudget
from podscale.nodes.cluster.pod_sums import BALLAST_LABELS, HEADROOM_LABELS, HEADROOM_NAMESPACE
from podscale.nodes.cluster.workloads import PodController, WorkloadReference, WorkloadVpa
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.requests import held_requests, requests

_RESOURCES = ("cpu", "memory")  # those that can be resized
_QOS = {"Guaranteed": 0, "Burstable": 1}


class RoomRules(Struct, frozen=True):
    """The updater's budgets."""

    min_replicas: int = 2
    tolerance: float = 0.5  # share of a controller's pods that may be down


class LivePods(Struct, frozen=True):
    """The pods of one controller, wherever they are."""

    live: int = 0
    running: int = 0


class RoomView(Struct, frozen=True):
    """One node and what decides about its pods, as read for this plan."""

    node: Node
    pods: tuple[ScheduledPod, ...]
    vpas: tuple[WorkloadVpa, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: Mapping[str, PodController] = {}  # by UID; those of opted-in namespaces
    groups: Mapping[str, LivePods] = {}  # by UID of the controller
    local_claims: frozenset[str] = frozenset()  # namespace/name of claims on a node's own disk
    ballast_namespace: str = "podscale-ballast"


def resize_state(pod: ScheduledPod) -> str:
    """Return ``Deferred`` or ``Infeasible``; empty where no resize waits for room."""
    found = (each.reason for each in pod.status.conditions if each.type == "PodResizePending")
    reason = next(found, "")
    return reason if reason in ("Deferred", "Infeasible") else ""


def queue_key(pod: ScheduledPod) -> tuple[int, int, float]:
    """Return the order in which the kubelet grants resizes that wait."""
    # Follows sortPendingResizes of pkg/kubelet/allocation, Kubernetes 1.37.
    since = next(
        (each.last_transition_time for each in pod.status.conditions
         if each.type == "PodResizePending" and each.last_transition_time is not None),
        0.0,
    )  # fmt: skip
    return -pod.spec.priority, _QOS.get(pod.status.qos_class, 2), since


def vpa_of(meta: ObjectMeta, view: RoomView) -> WorkloadVpa | None:
    """Return the VPA that has opted in for the pod; None where one has not, or none is there."""
    controller = meta.controller
    known = view.controllers.get(controller.uid) if controller is not None else None
    if controller is None or known is None:
        return None
    above = known.metadata.controller or controller
    target = WorkloadReference(above.kind, above.name)
    found = [
        vpa
        for vpa in view.vpas
        if vpa.metadata.namespace == meta.namespace and vpa.spec.target_ref == target
    ]
    return found[0] if found and all(map(has_opted_in, found)) else None


def has_opted_in(vpa: WorkloadVpa) -> bool:
    """Return whether its owner allows evictions for room."""
    return (vpa.metadata.annotations or {}).get(MAKE_ROOM) == "true"


def is_ballast(pod: ScheduledPod, view: RoomView) -> bool:
    # By its namespace too: anybody may write the label on a pod of their own, and nobody but us
    # writes there.
    is_there = pod.metadata.namespace == view.ballast_namespace
    return is_there and BALLAST_LABELS.matches(pod.metadata.labels or {})


def is_headroom(pod: ScheduledPod) -> bool:
    is_there = pod.metadata.namespace == HEADROOM_NAMESPACE
    return is_there and HEADROOM_LABELS.matches(pod.metadata.labels or {})


def lacking(pod: ScheduledPod, view: RoomView) -> dict[str, int]:
    """Return what the node lacks for the resize of ``pod``, in thousandths, as the kubelet counts:
    what it has allocated, and what it will before it comes to this one."""
    has, wanted = amounts(view.node.status.allocatable), requests(pod)
    used = Counter[str]()
    for other in view.pods:
        # Ballast lets go in its next round, since Σ has grown.
        if other.metadata.uid != pod.metadata.uid and not is_ballast(other, view):
            used.update(held(other, pod))
    lacks = {name: used[name] + wanted.get(name, 0) - has.get(name, 0) for name in _RESOURCES}
    return {name: amount for name, amount in lacks.items() if amount > 0 and wanted.get(name)}


def held(pod: ScheduledPod, grower: ScheduledPod) -> dict[str, int]:
    """Return what ``pod`` holds of its node while ``grower`` waits, in thousandths."""
    if resize_state(pod) == "Deferred" and queue_key(pod) > queue_key(grower):
        pod = _without_resize(pod)  # its turn comes later
    return held_requests(pod)


def _without_resize(pod: ScheduledPod) -> ScheduledPod:
    # Of a resize that cannot be, what the spec wants does not count.
    conditions = tuple(
        replace(each, reason="Infeasible") if each.type == "PodResizePending" else each
        for each in pod.status.conditions
    )
    return replace(pod, status=replace(pod.status, conditions=conditions))
