"""The recommender's loop: objects and usage into the model, recommendations and checkpoints out.

One term of leadership begins with an empty model and what the checkpoints tell. The steps
of a pass, and their order, are upstream's (``routines/recommender.go``).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec
import structlog
from msgspec import Struct

from podscale.core.metrics import ContainerColumns, ContainerUsage, MetricsProvider
from podscale.core.selector import Selector
from podscale.kube.api import JSON_PATCH, Api
from podscale.kube.errors import KubeError, NotLeading
from podscale.kube.lease import Term
from podscale.kube.pods import PodView
from podscale.kube.resource import VPAS
from podscale.kube.store import Store
from podscale.kube.wire import decode, encode
from vpa.model.cluster import Cluster
from vpa.model.groups import Named
from vpa.model.membership import VpaKey
from vpa.model.objects import Vpa, update_mode
from vpa.model.reading import Estimates, Reader
from vpa.model.recommendation import RecommendationTrace
from vpa.model.saving import Saver
from vpa.model.status import says_the_same
from vpa.recommender.checkpoints import Checkpoints
from vpa.recommender.flags import Options
from vpa.recommender.podfeed import PodFeed, put
from vpa.recommender.published import status_of
from vpa.recommender.selfmetrics import ObjectLabels, RecommenderMetrics
from vpa.stored import StoredEvent, StoredVpa
from vpa.stores import Stores
from vpa.targets import Resolved

_log = structlog.get_logger()

T = TypeVar("T")

_AGGREGATE_GC_S = 3600.0
_WRITE_TIMEOUT_S = 10.0
_HEALTHY_PASSES = 5
_OOM_MARGIN_S = 300.0


class _Facts(Struct, frozen=True):
    # What a status says besides amounts; a change is written whatever the amounts do.
    pods_matched: bool
    unsupported: str | None
    mistakes: tuple[str, ...]


class _Held(Struct):
    # A VPA as it was put into the model.
    vpa: Vpa
    resolved: Resolved


class Recommender:
    """One recommender. ``run`` it for each term of leadership."""

    def __init__(
        self,
        api: Api,
        stores: Stores,
        evictions: Store[StoredEvent],
        provider: MetricsProvider,
        options: Options,
        metrics: RecommenderMetrics,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``api`` is fenced by the Lease, where there is one."""
        self._api = api
        self._stores = stores
        self._provider = provider
        self.options = options
        self._metrics = metrics
        self._wall = wall
        self._feed = PodFeed(stores.pods, evictions)
        self._last_pass = time.monotonic()
        self._is_running = False
        self._begin()

    def _begin(self) -> None:
        options = self.options
        self.cluster = Cluster(
            options.settings, options.windows, per_vpa_config=options.per_vpa_config
        )
        self.reader = Reader(self.cluster)
        self._saver = Saver(self.cluster)
        self._checkpoints = Checkpoints(self._api, self._stores.scopes)
        self.estimates: Estimates | None = None
        self.held: dict[VpaKey, _Held] = {}
        self._facts: dict[VpaKey, _Facts] = {}
        self._selectors: dict[VpaKey, Selector | None] = {}
        self._collected_at = self._checkpoints_collected_at = self._wall()

    async def run(self, term: Term) -> None:
        """Recommend until cancelled; for ``Elector.run``."""
        await self._stores.wait_synced()
        self._begin()
        self._feed.start()
        self._is_running, self._last_pass = True, time.monotonic()
        try:
            await self._restore()
            _log.info("recommending", vpas=len(self.cluster.vpas), name=self.options.name)
            loop = asyncio.get_running_loop()
            at = loop.time()
            while True:
                try:
                    await self.once()
                except NotLeading:
                    raise
                except Exception:  # noqa: BLE001 - the next pass is another try
                    _log.exception("pass failed")
                else:
                    self._last_pass = time.monotonic()
                at = max(at + self.options.interval_s, loop.time())
                await asyncio.sleep(at - loop.time())
        finally:
            self._is_running = False
            self._feed.stop()

    def is_healthy(self) -> bool:
        """Whether a pass ended within the last five intervals, or another replica leads."""
        if not self._is_running:
            return True
        return time.monotonic() - self._last_pass < _HEALTHY_PASSES * self.options.interval_s

    async def once(self) -> None:
        """Run one pass."""
        step = self._metrics.step
        with step("total"):
            with step("LoadVPAs"):
                await self._load_vpas()
            with step("LoadPods"):
                gone = self._feed.load(self.cluster, self._wall(), self._is_wanted)
            with step("LoadMetrics"):
                await self._load_metrics()
            with step("DeleteRemovedPods"):
                self._feed.remove(self.cluster, gone)
            with step("UpdateVPAs"):
                await self._update_vpas()
            with step("MaintainCheckpoints"):
                await self._maintain_checkpoints()
            with step("GarbageCollect"):
                self._collect()

    def trace(self, key: VpaKey) -> RecommendationTrace | None:
        """Return how the recommendation of a VPA came about, as of the last pass."""
        if self.estimates is None or key not in self.cluster.vpas:
            return None
        return self.reader.recommendation(self.estimates, key)

    async def _restore(self) -> None:
        await self._load_vpas()
        pause_s = 1.0
        while True:
            try:
                loaded = await self._checkpoints.load(self.cluster, self._wall())
                break
            except NotLeading:
                raise
            except (KubeError, msgspec.DecodeError) as error:
                # To begin without them would overwrite what was learned.
                _log.warning("checkpoints not readable yet", error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, 30.0)
        if loaded:
            _log.info("checkpoints loaded", count=loaded)
        now = self._wall()
        shown = self._feed.shown_ooms()
        self._feed.load(self.cluster, now, self._is_wanted)
        for oom in shown:
            # What a checkpoint was written long after is in it already; what came shortly
            # before may have been seen by nobody, and counts once however often it is told.
            since = self._checkpoints.loaded_until.get(
                (oom.namespace, oom.container), now - self.options.windows.interval_s
            )
            if oom.time.timestamp() > since - _OOM_MARGIN_S and self.cluster.record_oom(oom):
                self._metrics.ooms.inc()

    async def _load_vpas(self) -> None:
        now = self._wall()
        seen = set()
        for key, vpa in self._stores.all_vpas():
            if not self._is_mine(vpa):
                continue
            seen.add(key)
            resolved = await self._stores.workloads.resolve(key.namespace, vpa.spec.target_ref)
            held = self.held.get(key)
            if held is not None and held.vpa is vpa and held.resolved == resolved:
                continue
            changed = held is None or (
                held.vpa.spec != vpa.spec
                or held.vpa.metadata.annotations != vpa.metadata.annotations
                or held.resolved != resolved
            )
            self.held[key] = _Held(vpa, resolved)
            if changed:
                self.cluster.put_vpa(vpa, resolved.selector, now)
                self.reader.force(key)
                self._admit_pods(key, resolved.selector, now)
        if not self._stores.vpas.is_current():
            return  # what a broken watch does not show is not gone
        for key in [key for key in self.held if key not in seen]:
            self.cluster.remove_vpa(key)
            del self.held[key]
            self._facts.pop(key, None)
            self._selectors.pop(key, None)

    def _admit_pods(self, key: VpaKey, selector: Selector | None, now: float) -> None:
        self._selectors[key] = selector
        if self.options.memory_saver and selector is not None:
            for view in self._stores.pods.select(key.namespace, selector).views():
                put(self.cluster, view, now)

    def _is_mine(self, vpa: Vpa) -> bool:
        named = [entry.name for entry in vpa.spec.recommenders or ()] or ["default"]
        return self.options.name in named

    def _is_wanted(self, view: PodView) -> bool:
        return not self.options.memory_saver or self.cluster.matches(view.namespace, view.labels)

    async def _load_metrics(self) -> None:
        question = ContainerUsage(self.options.namespaces)
        try:
            async with asyncio.timeout(self.options.metrics_timeout_s):
                (answer,) = await self._provider.answer([question])
        except TimeoutError:
            _log.warning("no usage", reason="Timeout")
            self._metrics.answered(is_error=True, client=self._client)
        else:
            is_usage = isinstance(answer, ContainerColumns)
            self._metrics.answered(is_error=not is_usage, client=self._client)
            if isinstance(answer, ContainerColumns):
                self.cluster.take(answer, self.options.sample_minutes)
            else:
                reason, text = getattr(answer, "reason", ""), getattr(answer, "message", "")
                _log.warning("no usage", reason=reason, message=text)
        for oom in self._feed.take_ooms():
            if self.cluster.record_oom(oom):
                self._metrics.ooms.inc()
                _log.info("out of memory", namespace=oom.namespace, pod=oom.pod,
                          container=oom.container)  # fmt: skip

    @property
    def _client(self) -> str:
        return "feed" if self.options.sample_minutes is not None else "metrics.k8s.io"

    async def _update_vpas(self) -> None:
        now = self._wall()
        estimates = self.estimates = self.reader.read()
        matched = self.cluster.matched()
        due = dict.fromkeys(self.reader.due(estimates, now, self.options.status_band))
        facts: dict[VpaKey, _Facts] = {}
        for key, entry in self.cluster.vpas.items():
            found = facts[key] = _Facts(
                key in matched,
                self.held[key].resolved.unsupported,
                tuple(mistake.message for mistake in entry.mistakes),
            )
            if self._facts.get(key) != found:
                due[key] = None
        await self._each(due, lambda key: self._publish(key, estimates, facts[key], now))
        self._count(matched)

    async def _publish(self, key: VpaKey, estimates: Estimates, facts: _Facts, now: float) -> None:
        vpa = self._stores.vpa(key)
        entry = self.cluster.vpas.get(key)
        if vpa is None or entry is None:
            return
        trace = self.reader.recommendation(estimates, key)
        wanted = status_of(
            vpa, entry, trace, now,
            pods_matched=facts.pods_matched, unsupported=facts.unsupported,
        )  # fmt: skip
        if not says_the_same(vpa.status, wanted) and not await self._patch(key, vpa, wanted, now):
            return
        self.reader.published(estimates, key, now)
        self._facts[key] = facts

    async def _patch(self, key: VpaKey, vpa: Vpa, wanted: Mapping[str, Any], now: float) -> bool:
        try:
            answer = await self._api.request(
                "PATCH",
                VPAS.path(*key, "status"),
                body=encode([{"op": "add", "path": "/status", "value": wanted}]),
                content_type=JSON_PATCH,
                timeout_s=_WRITE_TIMEOUT_S,
            )
            self._stores.accept_vpa(decode(answer.body, StoredVpa))
        except NotLeading:
            raise
        except (KubeError, msgspec.DecodeError) as error:
            self._metrics.wrote("status", "error")
            _log.warning("status not written", namespace=key.namespace, name=key.name,
                         error=str(error))  # fmt: skip
            return False
        self._metrics.wrote("status", "ok")
        created = vpa.metadata.creation_timestamp
        if "recommendation" in wanted and vpa.status.recommendation is None and created:
            self._metrics.latency.observe(max(now - created.timestamp(), 0.0))
        return True

    async def _maintain_checkpoints(self) -> None:
        now = self._wall()
        wanted = [named for named in self._saver.due(now, self.options.save_band)
                  if not self._is_loading(named[0])]  # fmt: skip
        saved = dict(zip(wanted, self.cluster.checkpoints(wanted, now), strict=True))
        written: list[Named] = []

        async def write(named: Named) -> None:
            try:
                await self._checkpoints.write(named, *saved[named])
            except NotLeading:
                raise
            except KubeError as error:
                self._metrics.wrote("checkpoint", "error")
                _log.warning("checkpoint not written", namespace=named[0].namespace,
                             vpa=named[0].name, error=str(error))  # fmt: skip
            else:
                self._metrics.wrote("checkpoint", "ok")
                written.append(named)

        try:
            async with asyncio.timeout(self.options.checkpoints_timeout_s):
                await self._each(wanted, write)
        except TimeoutError:
            _log.warning("checkpoints took too long", written=len(written), due=len(wanted))
        finally:
            self._saver.saved(written, now)
        if now - self._checkpoints_collected_at >= self.options.checkpoints_gc_s:
            self._checkpoints_collected_at = now
            if self._stores.vpas.is_current():
                await self._collect_checkpoints()

    async def _collect_checkpoints(self) -> None:
        try:
            async with asyncio.timeout(self.options.checkpoints_timeout_s):
                deleted = await self._checkpoints.collect(
                    lambda key: self._stores.vpas.get(*key) is not None
                )
        except NotLeading:
            raise
        except (KubeError, TimeoutError, msgspec.DecodeError) as error:
            _log.warning("orphaned checkpoints not collected", error=str(error))
            return
        if deleted:
            _log.info("orphaned checkpoints deleted", count=deleted)

    def _is_loading(self, key: VpaKey) -> bool:
        # Whoever set the condition will write a better checkpoint than ours.
        vpa = self._stores.vpa(key)
        found = (vpa.status.conditions if vpa is not None else None) or ()
        return any(condition.type == "FetchingHistory" for condition in found)

    def _collect(self) -> None:
        now = self._wall()
        if now - self._collected_at >= _AGGREGATE_GC_S:
            self._collected_at = now
            self.cluster.collect(now)

    async def _each(self, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Work on all items, ``workers`` at a time; the first NotLeading ends it."""
        waiting = iter(list(items))

        async def worker() -> None:
            for item in waiting:
                await work(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self.options.workers):
                    group.create_task(worker())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _count(self, matched: Mapping[VpaKey, int]) -> None:
        counts: dict[ObjectLabels, int] = {}
        for key, held in self.held.items():
            vpa = self._stores.vpa(key)
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
