"""Scale events: what policies count against.

Follows ``storeScaleEvent``, Kubernetes 1.37.
"""

from msgspec import structs

from hpa.decide.api.spec import Behavior, Rules
from hpa.decide.observation import Past, ScaleEvent


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
