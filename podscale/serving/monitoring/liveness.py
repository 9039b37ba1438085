"""Loops that hang: what a restart mends, and ``/livez`` therefore tells.

A loop that waits for Prometheus or the API server has deadlines of its own and comes round.
One that does not is stuck by a defect.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from podscale.core.times.rfc3339 import rfc3339
from podscale.serving.monitoring.health import OK, HealthVerdict


class Heartbeat:
    """A loop that has to come round again and again. A ``Check``."""

    def __init__(self, allowed_s: float) -> None:
        """``allowed_s`` is the longest time from one round to the next."""
        self._allowed_s = allowed_s
        self._last: float | None = None  # None: nobody runs it now

    def beat(self) -> None:
        """Note that the loop came round."""
        self._last = time.monotonic()

    def rest(self) -> None:
        """Expect nothing until the next ``beat``: another replica leads, or it has ended."""
        self._last = None

    @property
    def is_expected(self) -> bool:
        """Whether somebody runs the loop now."""
        return self._last is not None

    def __call__(self) -> HealthVerdict:
        """Return whether it came round in time, and since when it did not."""
        if self._last is None:
            return OK
        return _judged(time.monotonic() - self._last, self._allowed_s)


class OverlappingRounds:
    """Rounds that may overlap, of which none may take too long. A ``Check``."""

    def __init__(self, allowed_s: float) -> None:
        """``allowed_s`` is the longest time that a round takes when everything hangs."""
        self._allowed_s = allowed_s
        self._began: dict[object, float] = {}  # oldest first

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a round while the block runs."""
        this = object()
        self._began[this] = time.monotonic()
        try:
            yield
        finally:
            del self._began[this]

    def __call__(self) -> HealthVerdict:
        """Return whether the oldest round may still be under way, and since when it is not."""
        oldest = next(iter(self._began.values()), None)
        if oldest is None:
            return OK
        return _judged(time.monotonic() - oldest, self._allowed_s)


def _judged(age_s: float, allowed_s: float) -> HealthVerdict:
    if age_s <= allowed_s:
        return OK
    since = rfc3339(time.time() - age_s)
    return HealthVerdict(
        False, f"stuck since {since}: {age_s:.0f} s, where {allowed_s:.0f} are allowed"
    )
