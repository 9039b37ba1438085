"""Keeps room for the pods that the HPA is about to ask for. Only the leader acts."""

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np
import structlog
from msgspec import Struct

from podscale.core.pod_state import PodPhase
from podscale.core.selectors.selector import EVERYTHING
from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, NotLeading, ObjectNotFound
from podscale.kube.client.resource import RESOURCE_QUOTAS, Resource
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node, Taint
from podscale.nodes.cluster.pod_sums import HEADROOM_NAMESPACE
from podscale.nodes.cluster.workloads import WorkloadVpa
from podscale.nodes.decide import headroom as deciding
from podscale.nodes.decide.headroom import ComingPods, ExpectedSize, HeadroomLimit, SizeClass
from podscale.nodes.headroom import objects, shapes
from podscale.nodes.headroom.shapes import Quota, ScalingDecision, TemplatedWorkload
from podscale.nodes.scheduling.cluster_reading import read_all
from podscale.nodes.scheduling.new_nodes import lasting
from podscale.nodes.selfmetrics import NodesMetrics

_log = structlog.get_logger(__name__)

_DECISIONS = Resource("hpa.podscale.io", "v1alpha1", "scalingdecisions", "ScalingDecision")


class HeadroomChoice(Struct, frozen=True):
    limit: HeadroomLimit
    image: str = "pause"


class HeadroomKeeper:
    """Run ``once`` again and again while leading."""

    def __init__(
        self,
        api: Api,
        nodes: Store[Node],
        pods: PodStore,
        vpas: Store[WorkloadVpa],
        choice: HeadroomChoice,
        metrics: NodesMetrics,
        mapper: Callable[[], Mapper],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``api`` is fenced by the Lease."""
        self._api = api
        self._nodes = nodes
        self._pods = pods
        self._vpas = vpas
        self._choice = choice
        self._metrics = metrics
        self._mapper = mapper
        self._wall = wall
        self._expected: dict[str, ExpectedSize] = {}  # by namespace/kind/name
        self._held: dict[SizeClass, int] = {}  # as read and written last

    async def once(self) -> None:
        """Look at all decisions, and keep as much room as they are short of; raises what the
        round fails by."""
        try:
            await self._round()
        except NotLeading:
            raise
        except Exception as error:
            self._metrics.headroom_rounds.labels("failed").inc()
            if isinstance(error, Forbidden | ObjectNotFound):
                _log.warning(
                    f"headroom is not kept: where the namespace {HEADROOM_NAMESPACE} or a right is "
                    "missing, apply deploy/kustomize/components/nodes-headroom"
                )
            raise
        self._metrics.headroom_rounds.labels("done").inc()

    async def _round(self) -> None:
        coming = await self._coming(self._wall())
        # What namespaces have left is read for those that are short of pods.
        quotas = await read_all(self._api, RESOURCE_QUOTAS.path(), Quota) if coming else ()
        counts = deciding.headroom(coming, self._choice.limit, shapes.left_of(quotas))
        buffers = objects.buffers_of(self._mapper())
        try:
            written = await objects.hold(self._api, counts, self._choice.image, buffers, self._held)
        finally:
            cpu, memory = deciding.totals(self._held)
            self._metrics.headroom.labels("cpu").set(cpu / 1000)
            self._metrics.headroom.labels("memory").set(memory)
        if written:
            _log.info("headroom changed", objects=written, pods=sum(self._held.values()),
                      cpu_milli=cpu, memory_bytes=memory)  # fmt: skip

    async def _coming(self, now: float) -> list[ComingPods]:
        try:
            decisions = await read_all(self._api, _DECISIONS.path(), ScalingDecision)
        except ObjectNotFound:
            decisions = ()  # nobody serves decisions (any more)
        sizes: dict[str, ExpectedSize] = {}
        short: list[tuple[str, ScalingDecision, int]] = []
        for decision in decisions:
            target = decision.spec.scale_target_ref
            workload = f"{decision.metadata.namespace}/{target.kind}/{target.name}"
            size = deciding.expected(self._expected.get(workload), shapes.proposed(decision), now)
            if size is None:
                continue
            sizes[workload] = size
            present = decision.status.replicas
            if present is not None and present < size.replicas:
                short.append((workload, decision, size.replicas - present))
        self._expected = sizes
        taints = self._taints({decision.metadata.namespace for _, decision, _ in short})
        found = [await self._shaped(*each, taints) for each in short]
        return [each for each in found if each is not None]

    def _taints(self, namespaces: Iterable[str]) -> dict[str, set[Taint]]:
        # Of the nodes on which pods of each namespace run.
        placed = self._pods.placed()
        is_running = placed.phase == PodPhase.RUNNING
        found = {}
        for namespace in namespaces:
            rows = self._pods.rows(namespace, EVERYTHING)
            places = np.unique(placed.node[rows[is_running[rows]]]).tolist()
            nodes = (self._nodes.get("", placed.nodes[place] or "") for place in places)
            found[namespace] = {taint for node in nodes if node for taint in lasting(node)}
        return found

    async def _shaped(
        self,
        workload: str,
        decision: ScalingDecision,
        count: int,
        taints: Mapping[str, Iterable[Taint]],
    ) -> ComingPods | None:
        namespace, target = decision.metadata.namespace, decision.spec.scale_target_ref
        if target.kind not in shapes.WITH_TEMPLATES:
            return None
        try:
            path = shapes.WITH_TEMPLATES[target.kind].path(namespace, target.name)
            template = decode((await self._api.request("GET", path)).body, TemplatedWorkload)
        except (ObjectNotFound, msgspec.DecodeError):
            return None  # gone, or not made of containers
        vpas = [each for each in self._vpas.values(namespace) if each.spec.target_ref == target]
        return shapes.coming(workload, count, template, vpas, taints[namespace])
