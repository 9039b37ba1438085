"""When each autoscaler is due: namespaces spread over the period in slots.

A namespace is the unit because metrics are read by namespace: its autoscalers are asked
about together. Objects with a period of their own have deadlines of their own. Pure.
"""

import heapq
from zlib import crc32

from hpa.catalog import Key

_LONGEST_TICK_S = 1.0
_SHORTEST_TICK_S = 0.2
_SLOTS = 15


class Schedule:
    """Slots of one period, and a heap of individual deadlines."""

    def __init__(self, period_s: float) -> None:
        tick_s = min(max(period_s / _SLOTS, _SHORTEST_TICK_S), _LONGEST_TICK_S, period_s)
        self.slots = max(round(period_s / tick_s), 1)
        self.tick_s = period_s / self.slots
        self._namespaces: list[set[str]] = [set() for _ in range(self.slots)]
        self._periods: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []

    def slot_of(self, namespace: str) -> int:
        """Return the slot of a namespace, the same in every process."""
        return crc32(namespace.encode()) % self.slots

    def add(self, namespace: str) -> None:
        """Take a namespace in."""
        self._namespaces[self.slot_of(namespace)].add(namespace)

    def drop(self, namespace: str) -> None:
        """Take a namespace out."""
        self._namespaces[self.slot_of(namespace)].discard(namespace)

    def namespaces(self, tick: int) -> list[str]:
        """Return the namespaces that are due at the ``tick``-th tick."""
        return sorted(self._namespaces[tick % self.slots])

    def own_period(self, key: Key, period_s: float | None, now: float) -> None:
        """Give an object its own period, or (None) put it back under its namespace."""
        if period_s is None:
            self._periods.pop(key, None)
        elif self._periods.get(key) != period_s:
            self._periods[key] = period_s
            heapq.heappush(self._heap, (now + period_s, key))

    def has_own_period(self, key: Key) -> bool:
        """Whether the object does not run with its namespace."""
        return key in self._periods

    def due(self, now: float) -> list[Key]:
        """Return the objects whose own period has passed, and wind them up again."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            period_s = self._periods.get(key)
            if period_s is None:
                continue
            found.append(key)
            # From the deadline, not from now: no drift; but what was missed is not caught up.
            heapq.heappush(self._heap, (max(at + period_s, now), key))
        return list(dict.fromkeys(found))
