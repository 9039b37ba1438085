"""When each autoscaler is due: namespaces spread over the period in slots.

A slot is a run of namespaces in the order of their names, because that is how the feed
packs namespaces into queries: a query then serves one slot, not all of them. Few objects
take few of the slots: what is asked and written together costs Prometheus, the API server
and etcd less than half of what it costs one by one. Objects with a period of their own have
deadlines of their own. Pure.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from itertools import count

from hpa.cluster.record import AutoscalerRecord, OwnPeriod

_LONGEST_TICK_S = 1.0
_SHORTEST_TICK_S = 0.2
_SLOTS = 15
_WORTH_A_SLOT = 200  # autoscalers: what they write in a period fills a burst
_FEWEST = 5  # slots also keep the trouble of one namespace from the others


class Schedule:
    """Slots of one period, and a heap of individual deadlines."""

    def __init__(self, period_s: float) -> None:
        tick_s = min(max(period_s / _SLOTS, _SHORTEST_TICK_S), _LONGEST_TICK_S, period_s)
        self.slots = max(round(period_s / tick_s), 1)
        self.tick_s = period_s / self.slots
        self._order: list[str] = []
        self._slot: dict[str, int] = {}
        self._twice: dict[int, list[str]] = {}  # due in their old slot once more
        self._heap: list[tuple[float, int, AutoscalerRecord]] = []  # when, and a number of its own
        self._numbers = count()

    def spread(self, sizes: Mapping[str, int]) -> None:
        """Even the slots out; ``sizes`` are autoscalers by namespace. Once a period."""
        before = self._slot
        self._order = sorted(sizes)
        self._slot, self._twice = {}, {}
        total, seen = max(sum(sizes.values()), 1), 0
        used = min(max(-(-total // _WORTH_A_SLOT), _FEWEST), self.slots)
        for namespace in self._order:
            slot = min(seen * used // total, used - 1) * self.slots // used
            seen += sizes[namespace]
            self._slot[namespace] = slot
            old = before.get(namespace, slot)
            if slot > old + 1:
                # Moved to a later slot: without its old one it would wait for too long.
                self._twice.setdefault(old, []).append(namespace)

    def add(self, namespace: str) -> None:
        """Take a new namespace in, beside its neighbour."""
        if namespace in self._slot:
            return
        place = bisect_left(self._order, namespace)
        self._slot[namespace] = self._slot[self._order[place - 1]] if place else 0
        self._order.insert(place, namespace)

    def drop(self, namespace: str) -> None:
        """Take a namespace out."""
        if self._slot.pop(namespace, None) is not None:
            self._order.remove(namespace)

    def namespaces(self, tick: int) -> list[str]:
        """Return the namespaces that are due at the ``tick``-th tick, by name."""
        slot = tick % self.slots
        # Slots follow the order of the names.
        first = bisect_left(self._order, slot, key=self._slot.__getitem__)
        last = bisect_right(self._order, slot, lo=first, key=self._slot.__getitem__)
        found = self._order[first:last]
        return found + [each for each in self._twice.get(slot, ()) if each in self._slot]

    def own_period(self, record: AutoscalerRecord, period_s: float | None, now: float) -> None:
        """Give an object its own period, or (None) put it back under its namespace."""
        if period_s is None:
            record.period = None
        elif record.period is None or record.period.period_s != period_s:
            record.period = OwnPeriod(period_s, now + period_s)
            self._wind(record, now + period_s)

    def due(self, now: float) -> list[AutoscalerRecord]:
        """Return the objects whose own period has passed, and wind them up again."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, _, record = heapq.heappop(self._heap)
            period = record.period
            if period is None or period.next_at != at or record.is_gone:
                continue  # of before
            found.append(record)
            # From the deadline, not from now: no drift; but what was missed is not caught up.
            period.next_at = max(at + period.period_s, now)
            self._wind(record, period.next_at)
        return list(dict.fromkeys(found))

    def _wind(self, record: AutoscalerRecord, at: float) -> None:
        heapq.heappush(self._heap, (at, next(self._numbers), record))
