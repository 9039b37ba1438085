"""The recommender's loop: objects and usage into the model, recommendations and checkpoints out.

One term of leadership begins with an empty model and what the checkpoints tell. The steps
of a pass, and their order, are upstream's (``routines/recommender.go``).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from msgspec import Struct

from podscale.core.metrics import ContainerColumns, ContainerUsage, MetricsProvider
from podscale.core.pace import LoopPace
from podscale.core.selectors.selector import Selector
from podscale.kube.client.api import Api
from podscale.kube.columns.pods import PodView
from podscale.kube.informer.store import Store
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.vpa import Vpa, update_mode
from podscale.process.leading_part import PeriodicLoop
from vpa.explain.recommendation import PublishedHolds
from vpa.model.autopilot import Autopilot, AutopilotFeed
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.model.groups import Oom
from vpa.model.recommendations import Estimates, RecommendationReader
from vpa.model.samples.membership import VpaKey
from vpa.recommender.coordination import Coordination, WatchedHpas
from vpa.recommender.flags import AUTOPILOT, Options
from vpa.recommender.history import initial_state
from vpa.recommender.history.checkpoints import Checkpoints, CheckpointWrites
from vpa.recommender.node_shapes import NodeShapes
from vpa.recommender.pod_feed import PodFeed, StoredEvent, put
from vpa.recommender.publishing.publisher import Publisher
from vpa.recommender.selfmetrics import ObjectLabels, QualitySamples, RecommenderMetrics
from vpa.stores import VpaStores
from vpa.targets import ResolvedTarget

_log = structlog.get_logger()

_AGGREGATE_GC_S = 3600.0
_HEALTHY_PASSES = 5
_OOM_MARGIN_S = 300.0


class _Held(Struct):
    # A VPA as it was put into the model.
    vpa: Vpa
    resolved: ResolvedTarget
    selector: Selector | None  # the last that its target had, should that be gone
    target: CrossVersionObjectReference | None  # whose selector it is


class Recommender:
    """One recommender. ``run`` it for each term of leadership."""

    def __init__(
        self,
        api: Api,
        stores: VpaStores,
        evictions: Store[StoredEvent],
        provider: MetricsProvider,
        options: Options,
        metrics: RecommenderMetrics,
        *,
        find_past: initial_state.FindPast | None = None,
        outage: Callable[[], str] = str,
        hpas: WatchedHpas | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``api`` is fenced by the Lease, where there is one. ``find_past`` says where history
        is, for ``--storage=prometheus``. ``outage`` says why Prometheus does not answer, if this
        process reads it and it does not.
        """
        self.api, self.stores, self.options = api, stores, options
        self._provider, self._metrics, self._hpas = provider, metrics, hpas
        self._events, self._find_past, self._outage, self._wall = evictions, find_past, outage, wall
        self._usage_problem = ""  # of the last pass
        self._shapes = NodeShapes(stores, options.shapes)
        # As upstream judges (``recommender/main.go``): not before checkpoints and history are read.
        longest_s = _HEALTHY_PASSES * options.interval_s
        self.loop = PeriodicLoop(
            "recommender-loop", self.once, options.interval_s, longest_s=longest_s
        )
        self._read = 0.0  # of the history
        self._begin()

    def _begin(self) -> None:
        options = self.options
        self.cluster = ClusterModel(
            options.settings, options.windows, per_vpa_config=options.per_vpa_config
        )
        self._feed = PodFeed(self.stores.pods, self._events, self.cluster)
        self._autopilot = Autopilot()
        AutopilotFeed(self.cluster, self._autopilot)
        self.reader = RecommendationReader(self.cluster, self._autopilot)
        self._checkpoints = Checkpoints(self.api, self.stores.scopes, options.ignored)
        now = self._wall()
        self._saving = CheckpointWrites(
            self.cluster, self._checkpoints, self.stores, options, self._metrics, now
        )
        self._publisher = Publisher(
            self.api, self.cluster, self.reader, self.stores, options, self._metrics,
            lambda entry: self._shapes.of(entry.settings.cap_to_nodes),
            None if self._hpas is None else Coordination(
                self.api, self._hpas, self.stores, self._metrics, self._selector_of
            ),
        )  # fmt: skip
        self._comparing = QualitySamples(
            self._metrics.quality, self.cluster, self.reader, self.stores
        )
        self.estimates: Estimates | None = None
        self.held: dict[VpaKey, _Held] = {}
        self._collected_at = now

    def _selector_of(self, key: VpaKey) -> Selector | None:
        held = self.held.get(key)
        return None if held is None else held.selector

    async def run(self, term: Term) -> None:
        """Recommend until cancelled; for ``Elector.run``."""
        await self.stores.wait_synced()
        try:
            await self._remember()
            _log.info("recommending", vpas=len(self.cluster.vpas), name=self.options.name)
            await self.loop.run()
        finally:
            self._feed.stop()

    async def once(self) -> None:
        step = self._metrics.step
        with step("total"):
            with step("LoadVPAs"):
                await self._load_vpas()
                if self._find_past is None:
                    await self._checkpoints.load_late(self.cluster, self._wall())
                self._publisher.lost.meet(
                    ((key, held.vpa) for key, held in self.held.items()), self._wall()
                )
            with step("LoadPods"):
                self._feed.load(self._wall(), self._is_wanted)
            with step("LoadMetrics"):
                usage = await self._load_metrics()
            with step("DeleteRemovedPods"):
                self._feed.remove()
            with step("UpdateVPAs"):
                await self._update_vpas(usage)
            with step("MaintainCheckpoints"):
                if self._find_past is None:
                    await self._saving.maintain(self._wall())
            with step("GarbageCollect"):
                self._collect()

    @property
    def usage_problem(self) -> str:
        """Why no usage comes at present; empty where it does."""
        return self._outage() or self._usage_problem

    def trace(self, key: VpaKey) -> RecommendationTrace | None:
        """Return how the recommendation of a VPA came about, as of the last pass."""
        if self.estimates is None or key not in self.cluster.vpas:
            return None
        return self._publisher.trace(self.estimates, key)

    def standing(self, key: VpaKey) -> PublishedHolds:
        """Return what keeps the amounts of a VPA's status from being lowered."""
        return self._publisher.standing(key)

    async def _remember(self) -> None:
        # Begins again as often as history has to be read again: half of it would count twice.
        pause_s = initial_state.FIRST_PAUSE_S
        while True:
            self._begin()
            await self._load_vpas()
            self._feed.start()  # which pods have a VPA is known by now
            shown = self._feed.shown_ooms()
            now = self._wall()
            if self._find_past is None:
                await initial_state.from_checkpoints(self._checkpoints, self.cluster, now)
                self._feed.load(now, self._is_wanted)
                break
            self._feed.load(now, self._is_wanted)
            failure = await initial_state.from_prometheus(
                self._find_past, self.cluster, self.stores, self.options, now, self._progress
            )
            if failure is None:
                for key, entry in self.cluster.vpas.items():
                    self._publisher.history[key] = initial_state.told(self.cluster, entry)
                break
            await self._publisher.tell_history(failure, self._wall())
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, initial_state.MOST_PAUSE_S)
            self._feed.stop()
        self._record_shown(shown)

    def _progress(self, done: float) -> None:
        if int(done * 10) > int(self._read * 10):
            _log.info("reading history", percent=round(done * 100))
        self._read = done
        self._metrics.history.set(done)

    def _record_shown(self, shown: Sequence[Oom]) -> None:
        now = self._wall()
        for oom in shown:
            self._metrics.read(oom.source)
            # What a checkpoint was written long after is in it already; what came shortly
            # before may have been seen by nobody, and counts once however often it is told.
            since = self._checkpoints.loaded_until.get(
                (oom.namespace, oom.container), now - self.options.windows.interval_s
            )
            if oom.time_s > since - _OOM_MARGIN_S and self.cluster.record_oom(oom):
                self._metrics.ooms.inc()

    async def _load_vpas(self) -> None:
        now = self._wall()
        seen = set()
        self.stores.workloads.ask_ahead(
            (key.namespace, vpa.spec.target_ref) for key, vpa in self.stores.all_vpas()
        )
        pace = LoopPace()
        for key, vpa in self.stores.all_vpas():
            if not {self.options.name, AUTOPILOT} & set(_named(vpa)):
                continue
            seen.add(key)
            try:
                await self._load_vpa(key, vpa, now)
            except Exception:  # noqa: BLE001 - a bad VPA affects itself only
                self._metrics.failed("LoadVPAs")
                _log.exception("VPA left out", **key._asdict())
            # Thousands may come at once, and the Lease wants to be renewed meanwhile.
            await pace.rest()
        if not self.stores.vpas.is_current():
            return  # what a broken watch does not show is not gone
        for key in [key for key in self.held if key not in seen]:
            if self.stores.vpa(key) is None and self.stores.vpas.get(*key) is not None:
                continue  # it is there and cannot be read: it stays as it last was
            self.cluster.remove_vpa(key, now)
            del self.held[key]
            self._publisher.forget(key)

    async def _load_vpa(self, key: VpaKey, vpa: Vpa, now: float) -> None:
        resolved = await self.stores.workloads.resolve(key.namespace, vpa.spec.target_ref)
        held = self.held.get(key)
        if held is not None and held.vpa is vpa and held.resolved == resolved:
            return
        has_moved = held is not None and _has_moved(held, vpa, resolved)
        if has_moved:
            self.cluster.remove_vpa(key, now, is_for_good=True)
            self._autopilot.remove(key)
            self._publisher.moved(key)
        if held is None or (
            held.vpa.spec != vpa.spec
            or held.vpa.metadata.generation != vpa.metadata.generation
            or held.vpa.metadata.annotations != vpa.metadata.annotations
            or held.resolved != resolved
        ):
            self.cluster.put_vpa(vpa, resolved.selector, now, is_autopilot=AUTOPILOT in _named(vpa))
            self.reader.force(key)
            self._admit_pods(key, resolved.selector, now)
        selector, target = resolved.selector, vpa.spec.target_ref
        if selector is None and held is not None:
            selector, target = held.selector, held.target
        self.held[key] = _Held(vpa, resolved, selector, target)

    def _admit_pods(self, key: VpaKey, selector: Selector | None, now: float) -> None:
        if self.options.memory_saver and selector is not None:
            for view in self.stores.pods.select(key.namespace, selector).views():
                put(self.cluster, view, now)

    def _is_wanted(self, view: PodView) -> bool:
        return not self.options.memory_saver or self.cluster.matches(view.namespace, view.labels)

    async def _load_metrics(self) -> ContainerColumns | None:
        question, usage = ContainerUsage(self.options.namespaces), None
        try:
            async with asyncio.timeout(self.options.metrics_timeout_s):
                (answer,) = await self._provider.answer([question])
        except TimeoutError:
            self._usage_problem = "metrics were not answered in time"
            _log.warning("no usage", reason="Timeout")
            self._metrics.answered(is_error=True, client=self._client)
        else:
            usage = answer if isinstance(answer, ContainerColumns) else None
            self._metrics.answered(is_error=usage is None, client=self._client)
            if usage is not None:
                self._usage_problem = ""
                self._comparing.compare(usage)
                self.cluster.take(usage, self.options.sample_minutes)
            else:
                reason, text = getattr(answer, "reason", ""), getattr(answer, "message", "")
                self._usage_problem = text
                _log.warning("no usage", reason=reason, message=text)
        pace = LoopPace()
        for oom in self._feed.take_ooms():
            await pace.rest()
            self._metrics.read(oom.source)
            if self.cluster.record_oom(oom):
                self._metrics.ooms.inc()
                _log.info("out of memory", namespace=oom.namespace, pod=oom.pod,
                          container=oom.container)  # fmt: skip
        return usage

    @property
    def _client(self) -> str:
        return "feed" if self.options.sample_minutes is not None else "metrics.k8s.io"

    async def _update_vpas(self, usage: ContainerColumns | None) -> None:
        now = self._wall()
        self._shapes.follow(now)
        estimates = self.estimates = self.reader.read()
        matched = self.cluster.matched()
        unsupported = {key: held.resolved.unsupported for key, held in self.held.items()}
        await self._publisher.publish(estimates, matched, unsupported, now, usage)
        self._comparing.follow(estimates, matched)
        self._count(matched)

    def _collect(self) -> None:
        now = self._wall()
        if now - self._collected_at >= _AGGREGATE_GC_S:
            self._collected_at = now
            self.cluster.collect(now)

    def _count(self, matched: Mapping[VpaKey, int]) -> None:
        counts: dict[ObjectLabels, int] = {}
        for key, held in self.held.items():
            vpa = self.stores.vpa(key)
            has = vpa is not None and vpa.status.recommendation is not None
            labels = (
                update_mode(held.vpa),
                str(has).lower(),
                "v1",
                str(key in matched).lower(),
                str(held.resolved.unsupported is not None).lower(),
            )
            counts[labels] = counts.get(labels, 0) + 1
        self._metrics.count(counts)
        self._metrics.states.set(self.cluster.tracked)


def _has_moved(held: _Held, vpa: Vpa, resolved: ResolvedTarget) -> bool:
    # To another workload, with other pods. A selector that changes without the target, or the
    # target without the selector, leaves the pods to be those that were measured; and while a
    # target is not there, its name may be a slip, or its object on the way.
    if resolved.selector is None:
        return False
    before, after = held.target, vpa.spec.target_ref
    is_same = (
        before is not None
        and after is not None
        and (before.kind, before.name) == (after.kind, after.name)
    )
    return not is_same and held.selector != resolved.selector


def _named(vpa: Vpa) -> list[str]:
    return [entry.name for entry in vpa.spec.recommenders or ()] or ["default"]
