"""Status conditions of a VPA after a pass of the recommender.

RecommendationProvided, NoPodsMatched and ConfigUnsupported as upstream sets them; beside
them what upstream has no condition for: amounts cut to a node, annotations that cannot be
read, how much history was loaded, and that what was published was learned from more.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Struct

from vpa.model.api.objects import VpaCondition

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
    before: Sequence[VpaCondition],
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
) -> list[VpaCondition]:
    """Return the conditions sorted by type, times kept where the status did not change.

    ``unsupported`` is the message of ConfigUnsupported; ``no_samples`` names containers
    that match and were never measured; ``node_caps`` says which amounts were cut to a node,
    ``mistakes`` which annotations have no effect, ``history`` what is loaded or being loaded,
    ``lost`` which amounts stand although their history is gone.
    """
    wanted: list[VpaCondition] = []
    reason, message = "", ""
    if not pods_matched:
        reason, message = NO_PODS, "No pods match this VPA object"
        wanted.append(VpaCondition(NO_PODS, "True", reason, message))
    if has_recommendation:
        wanted.append(VpaCondition("RecommendationProvided", "True"))
    elif pods_matched and no_samples:
        names = ", ".join(sorted(no_samples))
        text = f"No usage sample yet of: {names}"
        wanted.append(VpaCondition("RecommendationProvided", "False", "NoSamples", text))
    else:
        wanted.append(VpaCondition("RecommendationProvided", "False", reason, message))
    if unsupported is not None:
        wanted.append(VpaCondition("ConfigUnsupported", "True", "", unsupported))
    if node_caps:
        wanted.append(VpaCondition("CappedToNodeSize", "True", "NodeSize", "; ".join(node_caps)))
    if mistakes:
        text = "; ".join(mistakes)
        wanted.append(VpaCondition("AnnotationInvalid", "True", "AnnotationInvalid", text))
    if history is not None:
        wanted.append(_history(history))
    if lost is not None:
        # Upstream declares the type and never sets it.
        wanted.append(VpaCondition("LowConfidence", "True", HISTORY_LOST, lost))
    kept = [condition for condition in before if condition.type not in _OWNED]
    return sorted((_timed(c, before, now) for c in [*wanted, *kept]), key=lambda c: c.type)


def replace_history(
    before: Sequence[VpaCondition], history: History, now: float
) -> list[VpaCondition]:
    """Return the conditions with that of history, all others as they were."""
    kept = [condition for condition in before if condition.type != "HistoryLoaded"]
    return sorted([_timed(_history(history), before, now), *kept], key=lambda c: c.type)


def _history(history: History) -> VpaCondition:
    # Not FetchingHistory: while that is True upstream writes no checkpoint of the VPA and
    # never takes it back itself, so that it would outlive a hand-over to upstream.
    status = "True" if history.is_loaded else "False"
    return VpaCondition("HistoryLoaded", status, history.reason, history.message)


def _timed(condition: VpaCondition, before: Sequence[VpaCondition], now: float) -> VpaCondition:
    since = datetime.fromtimestamp(int(now), UTC)
    for old in before:
        if old.type == condition.type and old.status == condition.status:
            since = old.last_transition_time or since
    return VpaCondition(
        condition.type, condition.status, condition.reason, condition.message, since
    )
