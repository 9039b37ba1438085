"""Recommendations on their way into the status of VPAs.

All are estimated side by side; written are those that moved far enough, and those about
which something else is to be told. What is not written now is due again in the next pass.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from podscale.core.metrics import ContainerColumns
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.objects.vpa import Vpa, VpaCondition
from vpa.explain.recommendation import PublishedHolds
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.recommendation import NodeShape, RecommendationTrace
from vpa.model.estimation.status import says_the_same
from vpa.model.groups import VpaEntry
from vpa.model.recommendations import Estimates, RecommendationReader
from vpa.model.samples.membership import VpaKey
from vpa.recommender.coordination import Coordination
from vpa.recommender.flags import Options
from vpa.recommender.publishing.published import HeldAmounts, LostHistory, status_of, with_history
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.recommender.workers import each
from vpa.stores import VpaStores

_log = structlog.get_logger()

_LEAST_DEADLINE_S = 60.0

ShapesOf = Callable[[VpaEntry], tuple[NodeShape, ...]]


class _Facts(Struct, frozen=True):
    # What a status says besides amounts; a change is written whatever the amounts do.
    pods_matched: bool
    unsupported: str | None
    mistakes: tuple[str, ...]
    shapes: tuple[NodeShape, ...]
    history: VpaCondition | None
    held: HeldAmounts | None


class Publisher:
    """Writes the statuses of one model's VPAs, for one term of leadership."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterModel,
        reader: RecommendationReader,
        stores: VpaStores,
        options: Options,
        metrics: RecommenderMetrics,
        shapes_of: ShapesOf,
        coordination: Coordination | None = None,
    ) -> None:
        """``coordination`` None: no HPA is looked at."""
        self._api, self._coordination = api, coordination
        self._cluster, self._reader, self._stores = cluster, reader, stores
        self._options, self._metrics, self._shapes_of = options, metrics, shapes_of
        self._failed = partial(metrics.failed, "UpdateVPAs")
        self._facts: dict[VpaKey, _Facts] = {}
        self._asked_at: dict[VpaKey, float] = {}
        self._moved: set[VpaKey] = set()  # what their statuses say is of another workload
        self.history: dict[VpaKey, VpaCondition] = {}  # what was loaded for it from Prometheus
        self.lost = LostHistory(cluster, reader)
        self._told: set[VpaKey] = set()  # of what was lost
        self._held_now: Mapping[VpaKey, HeldAmounts] = {}  # as of the last pass

    async def publish(
        self,
        estimates: Estimates,
        matched: Mapping[VpaKey, int],
        unsupported: Mapping[VpaKey, str | None],
        now: float,
        usage: ContainerColumns | None = None,
    ) -> None:
        """Write what is due, the longest waiting first; raises ``NotLeading``. ``usage`` None: it
        is not known at present."""
        options = self._options
        moved = self._reader.due(estimates, now, options.status_band, options.interval_s)
        due = dict.fromkeys(moved)
        if self._coordination is not None:
            pairs = await self._coordination.follow(now, usage)
            # Those of other recommenders are pairs, too.
            due |= dict.fromkeys(key for key in pairs if key in self._cluster.vpas)
        held = self._held(now)
        facts: dict[VpaKey, _Facts] = {}
        for key, entry in self._cluster.vpas.items():
            found = facts[key] = _Facts(
                key in matched,
                unsupported.get(key),
                tuple(mistake.message for mistake in entry.mistakes),
                self._shapes_of(entry),
                self.history.get(key),
                held.get(key),
            )
            if self._facts.get(key) != found:
                due[key] = None
        order = sorted(due, key=lambda key: self._asked_at.get(key, 0.0))

        async def write(key: VpaKey) -> None:
            self._asked_at[key] = now
            await self._publish(key, estimates, facts[key], now)

        deadline_s = max(self._options.interval_s, _LEAST_DEADLINE_S)
        try:
            async with asyncio.timeout(deadline_s):
                await each(order, write, workers=self._options.workers, failed=self._failed)
        except TimeoutError:
            _log.warning("statuses took too long, the rest follows", due=len(order))

    async def tell_history(self, history: VpaCondition, now: float) -> None:
        """Tell every VPA how reading history goes; what was recommended before stays."""

        async def write(key: VpaKey) -> None:
            vpa = self._stores.vpa(key)
            if vpa is None:
                return
            wanted = with_history(vpa, history, now)
            if not says_the_same(vpa.status, wanted):
                await self._patch(key, vpa, wanted, now)

        every = list(self._cluster.vpas)
        await each(every, write, workers=self._options.workers, failed=self._failed)

    def trace(self, estimates: Estimates, key: VpaKey) -> RecommendationTrace:
        """Return how the recommendation of a VPA comes about, node sizes included."""
        shapes = self._shapes_of(self._cluster.vpas[key])
        return self._reader.recommendation(estimates, key, shapes)

    def standing(self, key: VpaKey) -> PublishedHolds:
        """Return what keeps the amounts of a VPA's status from being lowered."""
        held = self._held_now.get(key)
        until_s = {} if held is None else held.until_s
        anchor = "" if self._coordination is None else self._coordination.text(key)
        return PublishedHolds(until_s, self._reader.is_young(key), anchor)

    def moved(self, key: VpaKey) -> None:
        """Keep nothing of what was published: the VPA now means another workload's pods."""
        self._moved.add(key)
        self.lost.moved(key)
        self.history.pop(key, None)

    def forget(self, key: VpaKey) -> None:
        """Drop what was written of a VPA that is gone."""
        self._moved.discard(key)
        self._facts.pop(key, None)
        self._asked_at.pop(key, None)
        self.history.pop(key, None)
        self.lost.forget(key)
        self._told.discard(key)

    def _held(self, now: float) -> dict[VpaKey, HeldAmounts]:
        held = self._held_now = self.lost.held(now)
        for key in sorted(held.keys() - self._told)[:1]:
            _log.warning("history lost: what was published before stands for a day",
                         vpas=len(held), **key._asdict(),
                         message=held[key].message)  # fmt: skip
        self._told |= held.keys()
        return held

    async def _publish(self, key: VpaKey, estimates: Estimates, facts: _Facts, now: float) -> None:
        vpa = self._stores.vpa(key)
        entry = self._cluster.vpas.get(key)
        if vpa is None or entry is None:
            return
        trace = self._reader.recommendation(estimates, key, facts.shapes)
        size = None
        if self._coordination is not None:
            try:
                size = await self._coordination.size_of(key, vpa, entry, trace, facts.shapes, now)
            except (KubeError, msgspec.DecodeError) as error:
                # Without its anchor a size moves replicas: all of it waits for the next pass.
                _log.warning("anchor not written", **key._asdict(), error=str(error))
                return
            vpa = self._stores.vpa(key) or vpa
            if size is not None and size.size is None and vpa.status.recommendation is None:
                return  # nothing was published, and it is not known yet who counts on what
        wanted = status_of(
            vpa, entry, trace, now,
            pods_matched=facts.pods_matched, unsupported=facts.unsupported, history=facts.history,
            is_young=self._reader.is_young(key), has_moved=key in self._moved, held=facts.held,
            size=size,
        )  # fmt: skip
        if not says_the_same(vpa.status, wanted) and not await self._patch(key, vpa, wanted, now):
            return
        self._moved.discard(key)
        self._reader.published(estimates, key, now)
        self._facts[key] = facts

    async def _patch(self, key: VpaKey, vpa: Vpa, wanted: Mapping[str, Any], now: float) -> bool:
        try:
            patch = [{"op": "add", "path": "/status", "value": wanted}]
            await self._stores.patch(self._api, vpa, patch, "status")
        except (KubeError, msgspec.DecodeError) as error:
            self._metrics.wrote("status", "error")
            _log.warning("status not written", **key._asdict(), error=str(error))
            return False
        self._metrics.wrote("status", "ok")
        created = vpa.metadata.creation_timestamp
        if "recommendation" in wanted and vpa.status.recommendation is None and created:
            self._metrics.latency.observe(max(now - created, 0.0))
        return True
