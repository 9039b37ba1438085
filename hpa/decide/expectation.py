"""What a forecast may ask for: never more than has been, by a quarter, and never from old data."""

import math

from hpa.decide.observation import ExpectedDemand

MOST = 1.25  # times the highest demand that the forecast learnt from
OLDEST_S = 300.0  # of the demand that it rests on
_ROUNDING = 1e-9


def proposal(expected: ExpectedDemand, current: int, tolerance: float, now: float) -> int:
    """Return how many pods the forecast asks for; 0: it does not act.

    Within ``tolerance`` it keeps what there is, and no more than it asks for. It wakes nothing
    from zero.
    """
    pods = min(expected.pods, MOST * expected.highest)
    is_fresh = 0.0 <= now - expected.at <= OLDEST_S
    if not is_fresh or current < 1 or not math.isfinite(pods) or pods <= 0.0:
        return 0
    asked = math.ceil(pods - _ROUNDING)
    return asked if pods > current * (1.0 + tolerance) else min(asked, current)
