"""How far one pass may go: rate limits and bounds, windows over past recommendations, the scale
events that policies count, and what a forecast may ask for.

Follows ``convertDesiredReplicasWithRules`` and ``stabilizeRecommendation`` (no behavior),
``convertDesiredReplicasWithBehaviorRate``, ``stabilizeRecommendationWithBehaviors`` and
``storeScaleEvent``, Kubernetes 1.37. A list of recommendations only grows, obsolete slots are
reused, so its order is not that of time.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from msgspec import Struct, structs

from hpa.decide.api.spec import HPA, Behavior, Rules
from hpa.decide.numbers import INT32_MAX, INT32_MIN
from hpa.decide.observation import ExpectedDemand, Past, Recommendation, ScaleEvent
from hpa.decide.settings import ACTUAL, Settings, Variation
from podscale.kube.objects.autoscaler import Policy

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


def limited(
    hpa: HPA, past: Past, current: int, desired: int, now: float, variation: Variation = ACTUAL
) -> LimitedReplicas:
    """Return ``desired`` within the bounds of ``hpa`` and how fast it may move."""
    behavior, least, most = hpa.behavior, hpa.min_replicas, hpa.max_replicas
    if behavior is None:
        return limit_legacy(current, desired, least, most, variation)
    if desired == current:
        return LimitedReplicas(desired, "DesiredWithinRange")
    events = past.scale_ups, past.scale_downs
    if desired > current:
        rate = rate_limit("up", current, *events, behavior.up, now)
    else:
        rate = rate_limit("down", current, *events, behavior.down, now)
    return limit(current, desired, least, most, rate, variation)


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
    rate: RateLimit,
    variation: Variation = ACTUAL,
) -> LimitedReplicas:
    """Return ``desired``, which is not ``current``, within the bounds and the ``rate`` of its
    direction."""
    reason: LimitReason
    policy = rate.policy
    if desired > current:
        edge, reason = max(rate.replicas, current) if variation.rate else INT32_MAX, "ScaleUpLimit"
        if variation.bound and maximum <= edge:
            edge, reason, policy = maximum, "TooManyReplicas", None
        is_met = desired > edge
    else:
        edge = min(rate.replicas, current) if variation.rate else INT32_MIN
        reason = "ScaleDownLimit"
        if variation.bound and minimum >= edge:
            edge, reason, policy = minimum, "TooFewReplicas", None
        is_met = desired < edge
    if not is_met:
        return LimitedReplicas(desired, "DesiredWithinRange")
    return LimitedReplicas(edge, reason, edge, policy)


def rate_limit(
    direction: Literal["up", "down"],
    current: int,
    ups: Sequence[ScaleEvent],
    downs: Sequence[ScaleEvent],
    rules: Rules,
    now: float,
) -> RateLimit:
    """Return how far the policies allow to go; ``Min`` is the smallest change."""
    if rules.select == "Disabled":
        return RateLimit(current)
    is_up = direction == "up"
    sign = 1 if is_up else -1
    takes_least = is_up == (rules.select == "Min")  # of the sizes
    best = RateLimit(INT32_MAX if takes_least else INT32_MIN)
    own = changes_within(ups if is_up else downs, now)
    other = changes_within(downs if is_up else ups, now, is_other=True)
    for policy in rules.policies:
        # The size at the start of the period, as far as our own events tell.
        start = current - sign * (own(policy.period_seconds) - other(policy.period_seconds))
        if policy.type == "Pods":
            proposed = start + sign * policy.value
        else:
            # Doubles on purpose: 100 plus 10 % is 110.00000000000001, so 111.
            share = start * (1 + sign * policy.value / 100)
            proposed = math.ceil(share) if is_up else int(share)
        if proposed < best.replicas if takes_least else proposed > best.replicas:
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


class Stabilized(Struct, frozen=True, gc=False):
    """The number after the window, and the recommendation that holds it there."""

    replicas: int
    stored: tuple[Recommendation, ...]  # with the unstabilized number of this pass
    held_by: Recommendation | None = None


def stabilized(
    hpa: HPA,
    past: tuple[Recommendation, ...],
    current: int,
    desired: int,
    settings: Settings,
    now: float,
) -> Stabilized:
    """Return what the windows of ``hpa`` leave of ``desired``."""
    behavior = hpa.behavior
    if behavior is None:
        return stabilize_down(past, desired, settings.downscale_stabilization_s, now)
    down = behavior.down.window_s
    down_s = settings.downscale_stabilization_s if down is None else float(down)
    up_s = float(behavior.up.window_s or 0)
    return stabilize(past, current, desired, up_s, down_s, now)


def stabilize_down(
    past: tuple[Recommendation, ...], desired: int, window_s: float, now: float
) -> Stabilized:
    """Return the highest recommendation of the window; the path without behavior."""
    cutoff = now - window_s
    best, slot, held_by = desired, None, None
    for index, each in enumerate(past):
        if each.at < cutoff:
            slot = index
        elif each.replicas > best:
            best, held_by = each.replicas, each
    return Stabilized(best, _store(past, slot, desired, now), held_by)


def stabilize(
    past: tuple[Recommendation, ...],
    current: int,
    desired: int,
    up_window_s: float,
    down_window_s: float,
    now: float,
) -> Stabilized:
    """Return ``current``, moved only as far as every recommendation of a window agrees.

    Because the start is ``current``, a falling recommendation never scales up.
    """
    up_cutoff, down_cutoff = now - up_window_s, now - down_window_s
    lowest = highest = desired
    slot = low = high = None
    for index, each in enumerate(past):
        at, replicas = each.at, each.replicas
        if replicas < lowest and at > up_cutoff:
            lowest, low = replicas, each
        elif replicas > highest and at > down_cutoff:
            highest, high = replicas, each
        if at < up_cutoff and at < down_cutoff:
            slot = index
    held_by = None
    replicas = current
    if replicas < lowest:
        replicas, held_by = lowest, low
    if replicas > highest:
        replicas, held_by = highest, high
    if replicas == current and replicas != desired:
        # Neither bound moved it: the one that lies between it and ``desired`` holds it.
        held_by = low if desired > current else high
    return Stabilized(replicas, _store(past, slot, desired, now), held_by)


def _store(
    past: tuple[Recommendation, ...], slot: int | None, desired: int, now: float
) -> tuple[Recommendation, ...]:
    entry = recommendation(desired, now)
    if slot is None:
        return (*past, entry)
    return (*past[:slot], entry, *past[slot + 1 :])


@lru_cache(maxsize=1000, typed=True)
def recommendation(replicas: int, at: float) -> Recommendation:
    """Return an equal one, if there is one: twenty are kept for each of ten thousand HPAs, and
    those decided on together are mostly told apart by their size alone."""
    return Recommendation(replicas, at)


def remember_scale(
    past: Past,
    behavior: Behavior | None,
    before: int,
    after: int,
    now: float,
    *,
    earliest: float | None = None,
) -> Past:
    """Return ``past`` with a rescale from ``before`` to ``after``, made now or, where that is not
    known, at ``earliest`` or later; without behavior as it is."""
    if behavior is None:
        return past
    if after > before:
        ups = stored(past.scale_ups, after - before, behavior.up, now, earliest)
        return structs.replace(past, scale_ups=ups)
    if after < before:
        downs = stored(past.scale_downs, before - after, behavior.down, now, earliest)
        return structs.replace(past, scale_downs=downs)
    return past


def stored(
    events: tuple[ScaleEvent, ...],
    change: int,
    rules: Rules,
    now: float,
    earliest: float | None = None,
) -> tuple[ScaleEvent, ...]:
    """Return the events with one more, in the last slot that no policy could reach once.

    The mark stays: a longer period makes the time of a slot recent again, not the slot.
    """
    longest = max((policy.period_seconds for policy in rules.policies), default=0)
    cutoff = now - longest
    kept = [
        structs.replace(each, is_outdated=True) if each.at < cutoff else each for each in events
    ]
    entry = ScaleEvent(change, now, earliest=earliest)
    for index in range(len(kept) - 1, -1, -1):
        if kept[index].is_outdated:
            kept[index] = entry
            return tuple(kept)
    return (*kept, entry)


MOST = 1.25  # times the highest demand that the forecast learnt from
OLDEST_S = 300.0  # of the demand that it rests on
_ROUNDING = 1e-9


def expected_replicas(expected: ExpectedDemand, current: int, tolerance: float, now: float) -> int:
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
