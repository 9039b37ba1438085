"""Demands of one batch, each sent to the Prometheus that it is for.

Every source has a ``Feed`` of its own, so that lanes, snapshots and outages of one are nothing to
the others.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from podscale.core.metrics import Failure, SampleGap
from podscale.core.silences import QueryWindow
from podscale.feed.feed import Feed
from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand, Outcome

# In an outage one reader's queries look whether it is over; whoever reads waits for them so long:
# a Prometheus that is back, or refuses connections, has answered by then.
PROBE_S = 0.25


class DemandReader(Protocol):
    """What answers demands: one feed, or one for each source."""

    @property
    def options(self) -> FeedOptions: ...

    async def read(self, demands: Sequence[Demand]) -> list[Outcome]:
        """Return one outcome per demand, in order. Never raises for a failed source."""

    def at_once(self, demand: Demand) -> Outcome | None:
        """Return what a snapshot answers; ``None``: only ``read`` can tell."""

    def gap(
        self, demand: Demand, outcome: Outcome, windows: Callable[[], Sequence[QueryWindow]]
    ) -> SampleGap | None:
        """Return when the demand's source was away, if one of its ``windows`` reaches there;
        ``outcome`` is what was read now."""

    def relisted(self) -> None: ...


class ChoosesSource(Protocol):
    """Knows the feeds, and which of them a demand is for."""

    @property
    def default(self) -> Feed:
        """The one of ``--prometheus-url``."""

    def feeds(self) -> Sequence[Feed]: ...

    def feed_for(self, source: str, namespace: str) -> Feed | Failure:
        """Return the feed of a rule's ``source`` ("": none chosen) and a namespace."""


class FeedBySource:
    """A ``DemandReader`` over the feeds of several sources."""

    def __init__(self, sources: ChoosesSource) -> None:
        self._sources = sources
        self._probes: dict[Feed, asyncio.Task[list[Outcome]]] = {}  # of feeds in an outage

    @property
    def options(self) -> FeedOptions:
        return self._sources.default.options

    async def read(self, demands: Sequence[Demand]) -> list[Outcome]:
        """Return one outcome per demand, in order; see ``Feed.read``."""
        places: dict[Feed, list[int]] = {}
        outcomes: list[Outcome | None] = [None] * len(demands)
        for place, demand in enumerate(demands):
            found = self._sources.feed_for(demand.plan.source, demand.namespace)
            if isinstance(found, Feed):
                places.setdefault(found, []).append(place)
            else:
                outcomes[place] = found
        if len(places) == 1 and len(demands) == sum(map(len, places.values())):
            return await self._read(next(iter(places)), demands)
        async with asyncio.TaskGroup() as group:
            tasks = {
                feed: group.create_task(self._read(feed, [demands[place] for place in own]))
                for feed, own in places.items()
            }
        for feed, own in places.items():
            for place, outcome in zip(own, tasks[feed].result(), strict=True):
                outcomes[place] = outcome
        return [outcome for outcome in outcomes if outcome is not None]

    async def _read(self, feed: Feed, demands: Sequence[Demand]) -> list[Outcome]:
        """Return the outcomes of one feed: its outage within ``PROBE_S`` where one is known."""
        if feed.outage() is None:
            return await feed.read(demands)
        own = None
        if feed not in self._probes:
            own = self._probes[feed] = asyncio.create_task(feed.read(demands))
            own.add_done_callback(lambda _: self._probes.pop(feed, None))
        await asyncio.wait([self._probes[feed]], timeout=PROBE_S)
        if own is not None and own.done():
            return own.result()
        outage = feed.outage()
        if outage is None:
            return await feed.read(demands)
        return [feed.at_once(demand) or outage.failure for demand in demands]

    def at_once(self, demand: Demand) -> Outcome | None:
        """Return what a snapshot of the demand's source answers."""
        found = self._sources.feed_for(demand.plan.source, demand.namespace)
        return found.at_once(demand) if isinstance(found, Feed) else found

    def gap(
        self, demand: Demand, outcome: Outcome, windows: Callable[[], Sequence[QueryWindow]]
    ) -> SampleGap | None:
        """Return when the demand's source was away; see ``Feed.gap``."""
        found = self._sources.feed_for(demand.plan.source, demand.namespace)
        return found.gap(demand, outcome, windows) if isinstance(found, Feed) else None

    def relisted(self) -> None:
        for feed in self._sources.feeds():
            feed.relisted()
