"""Two clocks: a monotonic one, and the wall clock, which decisions show.

Upstream compares Go's monotonic times, and so does everything inside. Histories and statuses
hold unix seconds, because they are stored and shown. When the wall clock is set, what was written
by it before is read with the difference (``HistoryMemory``): otherwise a jump ahead would forget
every window, and one back would hold every size until the old time is reached again.
"""

import math
import time
from collections.abc import Callable

_LEAST_S = 2.0  # between two looks, at most a second apart; a slewed clock is far below it


class SteadyClock:
    """``now`` for everything inside, ``unix`` for what is shown and stored."""

    def __init__(
        self, wall: Callable[[], float], monotonic: Callable[[], float] | None = None
    ) -> None:
        """``monotonic`` None: ``wall`` is no clock of this world (the demo's runs faster), and
        nobody sets it."""
        self.unix = wall
        self.now = monotonic or wall
        self.watch = monotonic or time.monotonic  # of the watches, whatever ``wall`` is
        self._apart = self.unix() - self.now()
        self.set_at = -math.inf  # by ``now``
        self.set_s = 0.0  # by how much the wall clock was set so far, in sum

    def look(self) -> float:
        """Return by how many seconds the wall clock was set since the last call."""
        apart = self.unix() - self.now()
        jump, self._apart = apart - self._apart, apart
        if abs(jump) < _LEAST_S:
            return 0.0
        self.set_s, self.set_at = self.set_s + jump, self.now()
        return jump

    def unix_at(self, at: float) -> float:
        """Return the unix time of a moment that was ``at`` by the monotonic clock."""
        return self.unix() - (self.now() - at)
