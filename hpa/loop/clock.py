"""Jumps of the wall clock, told from the time that really passed. Pure but for the clocks.

Windows and policies are upstream's, whose comparisons Go makes on the monotonic clock. Ours
are in unix seconds, because they are stored and shown; so when the clock is set, what is
remembered is moved with it. Otherwise a jump ahead would forget every window, and one back
would hold every size until the old time is reached again.
"""

from collections.abc import Callable

LEAST_S = 2.0  # between two looks, at most a second apart; a slewed clock is far below it


class Jumps:
    """Two clocks and how far they were apart."""

    def __init__(self, wall: Callable[[], float], steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady
        self._apart = wall() - steady()

    def since_last(self) -> float:
        """Return by how many seconds the wall clock was set since the last call."""
        apart = self._wall() - self._steady()
        jump, self._apart = apart - self._apart, apart
        return jump if abs(jump) >= LEAST_S else 0.0
