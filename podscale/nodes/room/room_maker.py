"""Makes room for resizes that wait for it: reads, plans, evicts. Only the leader acts."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import msgspec
import structlog
from msgspec import Struct

from podscale.core.pace import LoopPace
from podscale.core.pod_state import PodPhase
from podscale.kube.client import resource
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, KubeError, ObjectNotFound
from podscale.kube.client.eviction import evict
from podscale.kube.client.resource import LEASES, NODES, PDBS, PODS
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.events import Recorder
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Lease, Node, ObjectReference, PodDisruptionBudget
from podscale.kube.objects.vpa import StoredVpa, Vpa, readable
from podscale.nodes.room import plan as planning
from podscale.nodes.room.plan import RoomChoice, RoomPlan, RoomView
from podscale.nodes.scheduling.cluster_reading import (
    CLAIMS,
    VOLUMES,
    read_all,
    read_cluster,
    read_one,
)
from podscale.nodes.scheduling.cluster_view import ClusterView
from podscale.nodes.scheduling.objects import (
    PersistentVolume,
    PodController,
    ScheduledPod,
    VolumeClaim,
)
from podscale.nodes.selfmetrics import NodesMetrics

_log = structlog.get_logger(__name__)

_AGAIN_S, _LONGEST_S = 60.0, 600.0  # how soon a resize without room is looked at again
_ADMISSION_S = 60.0  # without a renewal for so long, a pod that moves would come back as it was
# Kinds that make a pod anew and say how many there should be.
_REPLICATING = {
    each.kind: each
    for each in (resource.REPLICA_SETS, resource.STATEFUL_SETS, resource.REPLICATION_CONTROLLERS)
}
_UNDER_WAY = frozenset({"Evict", "Move", "PodsLeave"})
_GATE_S = 600.0  # megabytes are read to know it
_GATE = re.compile(
    rb'^kubernetes_feature_enabled\{name="InPlacePodVerticalScalingSchedulerPreemption".*\} 1$',
    re.MULTILINE,
)


@dataclass(eq=False)
class RoomMaker:
    """Run ``once`` again and again while leading."""

    api: Api  # fenced by the Lease
    pods: PodStore
    vpas: Store[StoredVpa]
    choice: RoomChoice
    metrics: NodesMetrics
    recorder: Recorder
    wall: Callable[[], float] = time.time
    # By UID: when a resize is looked at again, and after how long.
    _again: dict[str, tuple[float, float]] = field(default_factory=dict)
    _gate: tuple[float, bool] = 0.0, True  # until when it is known, whether it is on

    async def once(self) -> None:
        """Make at most one plan for each node, and carry it out."""
        if not (self.pods.is_current() and self.vpas.is_current()):
            return
        now = self.wall()
        waiting = [pod for pod in self.pods.resizing() if _waits(pod)]
        vpas = await self._opted_in() if waiting else {}
        waiting = [pod for pod in waiting if pod.namespace in vpas]
        self._again = {pod.uid: self._again[pod.uid] for pod in waiting if pod.uid in self._again}
        nodes = {pod.node for pod in waiting if self._is_due(pod.uid, now)}
        if not nodes:
            return
        round_ = _Round(now, vpas, await self._scheduler_preempts(now))
        for node in sorted(nodes):
            try:
                await self._make_room(node, round_)
            except (KubeError, msgspec.DecodeError) as error:
                self.metrics.room_plans.labels("Unreadable").inc()
                _log.warning("no room made: not read", node=node, error=str(error))

    async def _opted_in(self) -> dict[str, tuple[Vpa, ...]]:
        # All VPAs of the namespaces in which one has opted in. One that cannot be read may size
        # any pod of its namespace: where it has not opted in, none has.
        opted_in = filter(planning.has_opted_in, self.vpas.values())
        found: dict[str, tuple[Vpa, ...]] = {}
        pace = LoopPace()
        for namespace in {each.metadata.namespace for each in opted_in}:
            vpas: list[Vpa] = []
            for stored in self.vpas.values(namespace):
                vpa = readable(stored)
                if vpa is not None:
                    vpas.append(vpa)
                elif not planning.has_opted_in(stored):
                    break
                await pace.rest()
            else:
                found[namespace] = tuple(vpas)
        return found

    async def _make_room(self, node: str, round_: "_Round") -> None:
        view = await self._read(node, round_)
        waiting = [pod for pod in view.pods if planning.resize_state(pod)
                   and pod.metadata.deletion_timestamp is None
                   and planning.vpa_of(pod.metadata, view) is not None
                   and self._is_due(pod.metadata.uid, round_.now)]  # fmt: skip
        for pod in sorted(waiting, key=planning.queue_key):
            made = await self._plan(pod, view, round_)
            if made.victims and not await self._carry_out(pod, made, view, round_):
                made = RoomPlan("Refused")
            self.metrics.room_plans.labels(made.reason).inc()
            if made.reason in _UNDER_WAY:
                self._again.pop(pod.metadata.uid, None)
                return  # the next plan of this node is for what this one leaves
            self._put_off(pod, made, round_.now)
            if made.reason == "Fits":
                return

    async def _read(self, node: str, round_: "_Round") -> RoomView:
        # Now: nothing is decided on what a watch said some time ago.
        api, vpas = self.api, round_.vpas
        fields = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        pods = await read_all(api, PODS, ScheduledPod, fields=fields)
        concerned = [pod for pod in pods if pod.metadata.namespace in vpas]
        namespaces = sorted({pod.metadata.namespace for pod in concerned})
        controllers = await _controllers(api, concerned)
        budgets = [await read_all(api, PDBS, PodDisruptionBudget, namespace)
                   for namespace in namespaces]  # fmt: skip
        return RoomView(
            await read_one(api, NODES.path("", node), Node),
            pods,
            self.choice,
            round_.now,
            round_.spent,
            vpas=tuple(vpa for namespace in namespaces for vpa in vpas[namespace]),
            budgets=tuple(chain.from_iterable(budgets)),
            controllers=controllers,
            groups={uid: _live(self.pods, uid) for uid in controllers},
            local_claims=await _local_claims(api, concerned),
        )

    async def _plan(self, pod: ScheduledPod, view: RoomView, round_: "_Round") -> RoomPlan:
        is_deferred = planning.resize_state(pod) == "Deferred"
        if is_deferred and round_.scheduler_preempts and _is_preempted_on(view):
            return RoomPlan("SchedulerPreempts")
        made = await asyncio.to_thread(planning.plan, pod, view)
        if not planning.is_worth_moving(made) or not await self._is_admission_alive(round_.now):
            return made
        if round_.cluster is None:
            round_.cluster = await read_cluster(self.api)
        return await asyncio.to_thread(planning.move, pod, view, round_.cluster) or made

    async def _carry_out(
        self, pod: ScheduledPod, made: RoomPlan, view: RoomView, round_: "_Round"
    ) -> bool:
        # Asked first: a plan of which a part is refused would evict the rest in vain.
        for dry_run in (True, False):
            for victim in made.victims:
                meta = victim.metadata
                acted = await evict(self.api, meta.namespace, meta.name, meta.uid, dry_run=dry_run)
                if not dry_run:
                    self.metrics.room_evictions.labels(acted.outcome).inc()
                    # What is left of PodDisruptionBudgets is read anew; what our watch tells of
                    # groups is of before.
                    round_.spent.update(name for name in planning.budgets_of(victim, view)
                                        if name.startswith("group/"))  # fmt: skip
                if acted.outcome not in ("done", "gone"):
                    text = f"Pod {meta.namespace}/{meta.name} was not evicted: {acted.message}"
                    _log.warning("plan for room given up", pod=pod.metadata.name, why=text)
                    self.recorder.event(_about(pod), "Warning", "RoomRefused", text)
                    return False
        self._tell(pod, made)
        return True

    def _tell(self, pod: ScheduledPod, made: RoomPlan) -> None:
        meta = pod.metadata
        if made.reason == "Move":
            text = "Evicted to a node that has room for its new size, since its own has none."
            self.recorder.event(_about(pod), "Normal", "EvictedForRoom", text)
            return
        names = ", ".join(f"{v.metadata.namespace}/{v.metadata.name}" for v in made.victims)
        self.recorder.event(_about(pod), "Normal", "RoomMade", f"Evicted so that it fits: {names}")
        for victim in made.victims:
            text = f"Evicted to make room for the resize of {meta.namespace}/{meta.name}."
            self.recorder.event(_about(victim), "Normal", "EvictedForRoom", text)

    def _is_due(self, uid: str, now: float) -> bool:
        return self._again.get(uid, (0.0, 0.0))[0] <= now

    def _put_off(self, pod: ScheduledPod, made: RoomPlan, now: float) -> None:
        uid = pod.metadata.uid
        after = min(2 * self._again.get(uid, (0.0, _AGAIN_S / 2))[1], _LONGEST_S)
        self._again[uid] = now + after, after
        if made.reason == "NoRoom":
            why = ", ".join(f"{count} {reason}" for reason, count in sorted(made.refused.items()))
            self.recorder.event(_about(pod), "Normal", "NoRoom", "No pods may be evicted that "
                                 f"would make room. Of its node's: {why or 'none'}.")  # fmt: skip

    async def _is_admission_alive(self, now: float) -> bool:
        try:
            lease = await read_one(self.api, LEASES.path(*self.choice.admission), Lease)
        except ObjectNotFound:
            return False
        renewed = lease.spec.renew_time
        return renewed is not None and now - renewed < _ADMISSION_S

    async def _scheduler_preempts(self, now: float) -> bool:
        # Kubernetes 1.37 (KEP-5836): where the gate is on, the scheduler evicts for Deferred
        # resizes. Nothing on pods or nodes tells; what the API server runs with does.
        until, is_on = self._gate
        if now < until:
            return is_on
        try:
            answer = await self.api.request("GET", "/metrics", accept="text/plain")
        except KubeError as error:
            _log.warning("left to the scheduler: its gate for resizes is not known",
                         error=str(error))  # fmt: skip
            return True
        self._gate = now + _GATE_S, _GATE.search(answer.body) is not None
        return self._gate[1]


class _Round(Struct):
    """What one round knows and does."""

    now: float
    vpas: Mapping[str, tuple[Vpa, ...]]
    scheduler_preempts: bool
    spent: Counter[str] = msgspec.field(default_factory=Counter)
    cluster: ClusterView | None = None  # read where a pod may have to move


def _waits(pod: PodView) -> bool:
    return pod.deleted != pod.deleted and any(
        each.type == "PodResizePending" and each.reason in ("Deferred", "Infeasible")
        for each in pod.resize
    )


def _is_preempted_on(view: RoomView) -> bool:
    policy = view.node.spec.pod_preemption_policy
    return policy is None or not policy.disable_resize_preemption


def _about(pod: ScheduledPod) -> ObjectReference:
    meta = pod.metadata
    return ObjectReference("Pod", meta.namespace, meta.name, meta.uid, "v1")


async def _controllers(api: Api, pods: Iterable[ScheduledPod]) -> dict[str, PodController]:
    found: dict[str, PodController] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is None or owner.uid in found or owner.kind not in _REPLICATING:
            continue
        path = _REPLICATING[owner.kind].path(pod.metadata.namespace, owner.name)
        with suppress(ObjectNotFound):
            controller = await read_one(api, path, PodController)
            if controller.metadata.uid == owner.uid:
                found[owner.uid] = controller
    return found


def _live(pods: PodStore, uid: str) -> planning.LivePods:
    phases = [pod.phase for pod in pods.owned_by(uid).views() if pod.deleted != pod.deleted]
    running = phases.count(PodPhase.RUNNING)
    return planning.LivePods(running + phases.count(PodPhase.PENDING), running)


async def _local_claims(api: Api, pods: Iterable[ScheduledPod]) -> frozenset[str]:
    # A pod whose volume lies on its node's own disk can run nowhere else; so is what cannot
    # be read.
    found = set()
    for pod in pods:
        namespace = pod.metadata.namespace
        for name, _ in pod.claim_names():
            try:
                claim = await read_one(api, CLAIMS.path(namespace, name), VolumeClaim)
                path = VOLUMES.path("", claim.spec.volume_name)
                volume = (await read_one(api, path, PersistentVolume)).spec
                is_local = volume.local is not None or volume.host_path is not None
            except (Forbidden, ObjectNotFound):
                is_local = True
            if is_local:
                found.add(f"{namespace}/{name}")
    return frozenset(found)
