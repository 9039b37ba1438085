"""Windows over past recommendations: what holds a number up, or down.

Follows ``stabilizeRecommendation`` (no behavior) and
``stabilizeRecommendationWithBehaviors``, Kubernetes 1.37. A list only grows, obsolete
slots are reused, so its order is not that of time.
"""

from functools import lru_cache

from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.decide.observation import Recommendation
from hpa.decide.settings import Settings


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
