"""Rate limits and bounds: how far one pass may go.

Follows ``convertDesiredReplicasWithRules`` (no behavior) and
``convertDesiredReplicasWithBehaviorRate``, Kubernetes 1.37.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import HPA, Policy, Rules
from hpa.decide.numbers import INT32_MAX, INT32_MIN
from hpa.decide.observation import Past, ScaleEvent
from hpa.decide.variation import ACTUAL, Variation

UP_FACTOR = 2.0
UP_MINIMUM = 4.0

LimitReason = Literal[
    "DesiredWithinRange", "TooManyReplicas", "TooFewReplicas", "ScaleUpLimit", "ScaleDownLimit"
]


class LimitedReplicas(Struct, frozen=True, gc=False):
    """The number after the limits, and which one it met."""

    replicas: int
    reason: LimitReason
    limit: int | None = None  # where the limit in ``reason`` lies
    policy: Policy | None = None  # the policy that set it


class RateLimit(Struct, frozen=True, gc=False):
    """How far one direction may go, and the policy that says so (None: Disabled)."""

    replicas: int
    policy: Policy | None = None


_NO_RATE = RateLimit(0)


def limited(
    hpa: HPA, past: Past, current: int, desired: int, now: float, variation: Variation = ACTUAL
) -> LimitedReplicas:
    """Return ``desired`` within the bounds of ``hpa`` and how fast it may move."""
    behavior, least, most = hpa.behavior, hpa.min_replicas, hpa.max_replicas
    if behavior is None:
        return limit_legacy(current, desired, least, most, variation)
    events = (past.scale_ups, past.scale_downs)
    # Only the direction taken has a limit to be met.
    up = up_limit(current, *events, behavior.up, now) if desired > current else _NO_RATE
    down = down_limit(current, *events, behavior.down, now) if desired < current else _NO_RATE
    return limit(current, desired, least, most, up, down, variation)


def limit_legacy(
    current: int, desired: int, minimum: int, maximum: int, variation: Variation = ACTUAL
) -> LimitedReplicas:
    """Return ``desired`` within the bounds and twice ``current`` (or 4); min wins."""
    reason: LimitReason
    cap = int(max(UP_FACTOR * current, UP_MINIMUM)) if variation.rate else INT32_MAX
    reason = "ScaleUpLimit"
    if not variation.bound:
        minimum = 0
    elif maximum <= cap:
        cap, reason = maximum, "TooManyReplicas"
    if desired < minimum:
        return LimitedReplicas(minimum, "TooFewReplicas", minimum)
    if desired > cap:
        return LimitedReplicas(cap, reason, cap)
    return LimitedReplicas(desired, "DesiredWithinRange")


def limit(
    current: int,
    desired: int,
    minimum: int,
    maximum: int,
    up: RateLimit,
    down: RateLimit,
    variation: Variation = ACTUAL,
) -> LimitedReplicas:
    """Return ``desired`` within the bounds and the rates of ``behavior``.

    A number that stays at ``current`` is not clamped, not even by the bounds.
    """
    if desired > current:
        cap = max(up.replicas, current) if variation.rate else INT32_MAX
        if variation.bound and maximum <= cap:
            if desired > maximum:
                return LimitedReplicas(maximum, "TooManyReplicas", maximum)
        elif desired > cap:
            return LimitedReplicas(cap, "ScaleUpLimit", cap, up.policy)
    elif desired < current:
        floor = min(down.replicas, current) if variation.rate else INT32_MIN
        if variation.bound and minimum >= floor:
            if desired < minimum:
                return LimitedReplicas(minimum, "TooFewReplicas", minimum)
        elif desired < floor:
            return LimitedReplicas(floor, "ScaleDownLimit", floor, down.policy)
    return LimitedReplicas(desired, "DesiredWithinRange")


def up_limit(
    current: int,
    ups: tuple[ScaleEvent, ...],
    downs: tuple[ScaleEvent, ...],
    rules: Rules,
    now: float,
) -> RateLimit:
    """Return the most that the policies allow."""
    if rules.select == "Disabled":
        return RateLimit(current)
    takes_least = rules.select == "Min"
    best = RateLimit(INT32_MAX if takes_least else INT32_MIN)
    own, other = changes_within(ups, now), changes_within(downs, now, is_other=True)
    for policy in rules.policies:
        # The size at the start of the period, as far as our own events tell.
        start = current - own(policy.period_seconds) + other(policy.period_seconds)
        if policy.type == "Pods":
            proposed = start + policy.value
        else:
            # Doubles on purpose: 100 plus 10 % is 110.00000000000001, so 111.
            proposed = math.ceil(start * (1 + policy.value / 100))
        if proposed < best.replicas if takes_least else proposed > best.replicas:
            best = RateLimit(proposed, policy)
    return best


def down_limit(
    current: int,
    ups: tuple[ScaleEvent, ...],
    downs: tuple[ScaleEvent, ...],
    rules: Rules,
    now: float,
) -> RateLimit:
    """Return the least that the policies allow; ``Min`` is the smallest change."""
    if rules.select == "Disabled":
        return RateLimit(current)
    takes_highest = rules.select == "Min"
    best = RateLimit(INT32_MIN if takes_highest else INT32_MAX)
    own, other = changes_within(downs, now), changes_within(ups, now, is_other=True)
    for policy in rules.policies:
        start = current + own(policy.period_seconds) - other(policy.period_seconds)
        if policy.type == "Pods":
            proposed = start - policy.value
        else:
            proposed = int(start * (1 - policy.value / 100))
        if proposed > best.replicas if takes_highest else proposed < best.replicas:
            best = RateLimit(proposed, policy)
    return best


def changes_within(
    events: Sequence[ScaleEvent], now: float, *, is_other: bool = False
) -> Callable[[float], int]:
    """Return what tells the sum of the changes of a period, which are of the direction that is not
    taken if ``is_other``. Policies may be thousands, and so may events."""
    moments = sorted((_moment(each, is_other=is_other), each.change) for each in events)
    sums = [*accumulate((change for _, change in moments), initial=0)]
    return lambda period_s: sums[-1] - sums[bisect_right(moments, (now - period_s, math.inf))]


def counts(event: ScaleEvent, period_s: float, now: float, *, is_other: bool) -> bool:
    """Return whether an event lies within the period, at whose very start it is out."""
    return _moment(event, is_other=is_other) > now - period_s


def _moment(event: ScaleEvent, *, is_other: bool) -> float:
    # One of the other direction gives room, and so has to be within for sure.
    return event.at if not is_other or event.earliest is None else event.earliest
