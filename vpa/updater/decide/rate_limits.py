"""How fast pods are disturbed, and what of a VPA its owner wrote. Pure."""

from msgspec import Struct

from podscale.kube.objects.vpa import Vpa

SPENT = "vpa.podscale.io/disruptions"  # ours: "2026-11-21T14:3, …", hours of UTC, their counts


class EvictionRate(Struct, frozen=True):
    """Actions per second and how many at once; None: no limit."""

    rate: float | None
    burst: int


class TokenBucket:
    """Actions at a rate, for those who may wait, and may find that it takes too long."""

    def __init__(self, limit: EvictionRate) -> None:
        self._interval_s = 1.0 / limit.rate if limit.rate else 0.0
        self._slack_s = self._interval_s * (max(limit.burst, 1) - 1)
        self._next = float("-inf")

    def wait_s(self, now: float) -> float:
        """Return seconds until the next action; asking takes nothing."""
        return max(self._next - now, 0.0) if self._interval_s else 0.0

    def take(self, now: float) -> None:
        """Count an action that begins."""
        self._next = max(self._next, now - self._slack_s) + self._interval_s


def rate_limit(rate: float, burst: int) -> EvictionRate:
    """Return the limiter of ``--eviction-rate-limit`` and ``-burst``: 0 or less is none."""
    return EvictionRate(None, 0) if rate <= 0 else EvictionRate(rate, burst)


def is_unchanged(present: Vpa | None, known: Vpa) -> bool:
    """Return whether what an owner wrote is unchanged; the day's count is our own."""
    return present is known or (
        present is not None
        and present.metadata.uid == known.metadata.uid
        and present.spec == known.spec
        and _wishes(present) == _wishes(known)
    )


def _wishes(vpa: Vpa) -> dict[str, str]:
    given = vpa.metadata.annotations or {}
    return {key: value for key, value in given.items() if key != SPENT}
