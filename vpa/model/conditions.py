"""Status conditions of a VPA after a pass of the recommender.

RecommendationProvided, NoPodsMatched and ConfigUnsupported as upstream sets them; beside
them what upstream has no condition for: amounts cut to a node, annotations that cannot be
read, how much history was loaded, and that what was published was learned from more.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from vpa.model.objects import Condition

NO_PODS = "NoPodsMatched"
HISTORY_LOST = "HistoryLost"  # reason of LowConfidence
_OWNED = frozenset(
    {
        "RecommendationProvided",
        NO_PODS,
        "ConfigUnsupported",
        "ConfigDeprecated",
        "CappedToNodeSize",
        "AnnotationInvalid",
        "HistoryLoaded",
        "LowConfidence",
    }
)


class History(Struct, frozen=True):
    """How reading history from Prometheus went."""

    is_loaded: bool
    reason: str  # HistoryLoaded, or the token of the failure
    message: str


def conditions(
    before: Sequence[Condition],
    now: float,
    *,
    has_recommendation: bool,
    pods_matched: bool,
    unsupported: str | None = None,
    no_samples: Sequence[str] = (),
    node_caps: Sequence[str] = (),
    mistakes: Sequence[str] = (),
    history: History | None = None,
    lost: str | None = None,
) -> list[Condition]:
    """Return the conditions sorted by type, times kept where the status did not change.

    ``unsupported`` is the message of ConfigUnsupported; ``no_samples`` names containers
    that match and were never measured; ``node_caps`` says which amounts were cut to a node,
    ``mistakes`` which annotations have no effect, ``history`` what is loaded or being loaded,
    ``lost`` which amounts stand although their history is gone.
    """
    wanted: list[Condition] = []
    reason, message = "", ""
    if not pods_matched:
        reason, message = NO_PODS, "No pods match this VPA object"
        wanted.append(Condition(NO_PODS, "True", reason, message))
    if has_recommendation:
        wanted.append(Condition("RecommendationProvided", "True"))
    elif pods_matched and no_samples:
        names = ", ".join(sorted(no_samples))
        text = f"No usage sample yet of: {names}"
        wanted.append(Condition("RecommendationProvided", "False", "NoSamples", text))
    else:
        wanted.append(Condition("RecommendationProvided", "False", reason, message))
    if unsupported is not None:
        wanted.append(Condition("ConfigUnsupported", "True", "", unsupported))
    if node_caps:
        wanted.append(Condition("CappedToNodeSize", "True", "NodeSize", "; ".join(node_caps)))
    if mistakes:
        text = "; ".join(mistakes)
        wanted.append(Condition("AnnotationInvalid", "True", "AnnotationInvalid", text))
    if history is not None:
        wanted.append(_history(history))
    if lost is not None:
        # Upstream declares the type and never sets it.
        wanted.append(Condition("LowConfidence", "True", HISTORY_LOST, lost))
    kept = [condition for condition in before if condition.type not in _OWNED]
    return sorted((_timed(c, before, now) for c in [*wanted, *kept]), key=lambda c: c.type)


def told(before: Sequence[Condition], history: History, now: float) -> list[Condition]:
    """Return the conditions with that of history, all others as they were."""
    kept = [condition for condition in before if condition.type != "HistoryLoaded"]
    return sorted([_timed(_history(history), before, now), *kept], key=lambda c: c.type)


def _history(history: History) -> Condition:
    # Not FetchingHistory: while that is True upstream writes no checkpoint of the VPA and
    # never takes it back itself, so that it would outlive a hand-over to upstream.
    status = "True" if history.is_loaded else "False"
    return Condition("HistoryLoaded", status, history.reason, history.message)


def _timed(condition: Condition, before: Sequence[Condition], now: float) -> Condition:
    since = datetime.fromtimestamp(int(now), UTC)
    for old in before:
        if old.type == condition.type and old.status == condition.status:
            since = old.last_transition_time or since
    return Condition(condition.type, condition.status, condition.reason, condition.message, since)
