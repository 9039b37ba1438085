"""The load of one workload over the last days, as the recommender sees it pass after pass."""

from collections import deque

from podscale.coordinate.sizes import SeenLoad

DAY_S = 86400.0
_DAYS = 8  # that are remembered, as the VPA remembers usage
_SLOT_S = 3600.0  # a burst that is over sooner asks for more pods, not for other ones
_LONGEST_GAP_S = 3600.0  # beyond which what was seen before says nothing
_LATEST_S = 600.0  # longer than the windows of metrics, and than pods take to leave


class LatestLoads:
    """The loads of the last minutes. Times given must not go back."""

    def __init__(self) -> None:
        self._since = 0.0
        self._loads: deque[tuple[float, float]] = deque()  # times and loads

    def add(self, load_milli: float, now: float) -> None:
        """Take in what all pods used at one time."""
        if not self._loads or now - self._loads[-1][0] > _LONGEST_GAP_S:
            self._loads.clear()
            self._since = now
        self._loads.append((now, load_milli))
        # One from before stays: after a gap the newest alone is of pods that have just come.
        while len(self._loads) > 1 and self._loads[1][0] <= now - _LATEST_S:
            self._loads.popleft()

    @property
    def highest(self) -> float | None:
        """The highest of them; None where they have not been watched for long enough: pods that
        have just come or gone make each of the others look less loaded than it is."""
        if not self._loads or self._loads[-1][0] - self._since < _LATEST_S:
            return None
        return max(load for _, load in self._loads)


class LoadOfDays:
    """Means of hours. Times given must not go back."""

    def __init__(self) -> None:
        self._since = self._last = 0.0
        self._slots: dict[int, tuple[float, int, int]] = {}  # sums and count, by number

    def add(self, load_milli: float, pods: int, now: float) -> None:
        """Take in what all pods used at one time."""
        self.follow(now)
        self._last = now
        slot = int(now // _SLOT_S)
        total, replicas, count = self._slots.get(slot, (0.0, 0, 0))
        self._slots[slot] = (total + load_milli, replicas + pods, count + 1)
        oldest = int((now - _DAYS * DAY_S) // _SLOT_S)
        for each in [each for each in self._slots if each < oldest]:
            del self._slots[each]

    def follow(self, now: float) -> None:
        """Forget all, where the load has not been seen for long by now."""
        if now - self._last > _LONGEST_GAP_S:
            self._slots.clear()
            self._since = self._last = now

    @property
    def seen_s(self) -> float:
        """How long the load has been seen without a gap."""
        return self._last - self._since

    def loads(self, half_life_s: float) -> list[SeenLoad]:
        """Return the means of the hours."""
        latest = max(self._slots, default=0)
        return [
            SeenLoad(total / count, pods / count, 2.0 ** ((slot - latest) * _SLOT_S / half_life_s))
            for slot, (total, pods, count) in self._slots.items()
        ]
