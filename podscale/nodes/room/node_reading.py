"""What a plan for one node needs, read from the API server when it is needed: nothing is decided
on what a watch said some time ago.
"""

from collections.abc import Iterable, Mapping

from podscale.core.pod_state import PodPhase
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, ObjectNotFound
from podscale.kube.client.resource import NODES, PDBS, PODS
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.objects.cluster import Node, PodDisruptionBudget
from podscale.nodes.cluster.workloads import REPLICATING, PodController, WorkloadVpa
from podscale.nodes.room.view import LivePods, RoomView
from podscale.nodes.scheduling.cluster_reading import CLAIMS, VOLUMES, read_all
from podscale.nodes.scheduling.objects import PersistentVolume, ScheduledPod, VolumeClaim
from podscale.nodes.scheduling.volumes import claim_names


async def read_room(
    api: Api,
    node: str,
    pods: PodStore,
    vpas: Mapping[str, tuple[WorkloadVpa, ...]],
    ballast_namespace: str,
) -> RoomView:
    """Return one node with its pods; ``vpas`` by namespaces in which one has opted in.

    Raises ``KubeError``.
    """
    fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    found = await read_all(api, PODS.path(), ScheduledPod, fields=fields)
    concerned = [pod for pod in found if pod.metadata.namespace in vpas]
    namespaces = sorted({pod.metadata.namespace for pod in concerned})
    controllers = await _controllers(api, concerned)
    return RoomView(
        node=decode((await api.request("GET", NODES.path("", node))).body, Node),
        pods=found,
        vpas=tuple(vpa for namespace in namespaces for vpa in vpas[namespace]),
        budgets=tuple(
            [
                budget
                for namespace in namespaces
                for budget in await read_all(api, PDBS.path(namespace), PodDisruptionBudget)
            ]
        ),
        controllers=controllers,
        groups={uid: _live(pods, uid) for uid in controllers},
        local_claims=await _local_claims(api, concerned),
        ballast_namespace=ballast_namespace,
    )


async def _controllers(api: Api, pods: Iterable[ScheduledPod]) -> dict[str, PodController]:
    found: dict[str, PodController] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is None or owner.uid in found or owner.kind not in REPLICATING:
            continue
        path = REPLICATING[owner.kind].path(pod.metadata.namespace, owner.name)
        try:
            made = decode((await api.request("GET", path)).body, PodController)
        except ObjectNotFound:
            continue
        if made.metadata.uid == owner.uid:
            found[owner.uid] = made
    return found


def _live(pods: PodStore, uid: str) -> LivePods:
    live = [
        pod
        for pod in pods.owned_by(uid).views()
        if pod.deleted != pod.deleted and pod.phase in (PodPhase.PENDING, PodPhase.RUNNING)
    ]
    return LivePods(len(live), sum(pod.phase == PodPhase.RUNNING for pod in live))


async def _local_claims(api: Api, pods: Iterable[ScheduledPod]) -> frozenset[str]:
    # A pod whose volume lies on its node's own disk can run nowhere else; so is what cannot
    # be read.
    found = set()
    for pod in pods:
        namespace = pod.metadata.namespace
        for name, _ in claim_names(pod):
            try:
                path = CLAIMS.path(namespace, name)
                claim = decode((await api.request("GET", path)).body, VolumeClaim)
                path = VOLUMES.path("", claim.spec.volume_name)
                bound = decode((await api.request("GET", path)).body, PersistentVolume)
                is_local = bound.spec.local is not None or bound.spec.host_path is not None
            except (Forbidden, ObjectNotFound):
                is_local = True
            if is_local:
                found.add(f"{namespace}/{name}")
    return frozenset(found)
