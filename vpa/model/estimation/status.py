"""The status of a VPA as JSON: recommendation and conditions.

Written as a whole, with upstream's field names; compared with what is there, so that
nothing is written that says the same.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    VpaCondition,
    VpaRecommendation,
    VpaStatus,
)
from vpa.model.amounts import wire
from vpa.model.estimation.recommendation import RecommendationTrace


def recommendation_wire(recommendation: VpaRecommendation) -> dict[str, Any]:
    """Return ``status.recommendation``; bounds that were never published are left out."""
    entries = recommendation.container_recommendations or ()
    return {"containerRecommendations": [_entry(entry) for entry in entries]}


def status_wire(
    recommendation: VpaRecommendation | None,
    conditions: Sequence[VpaCondition],
    generation: int | None,
) -> dict[str, Any]:
    """Return ``status``; without a recommendation the field is absent, as upstream has it."""
    status: dict[str, Any] = {"conditions": [_condition(entry) for entry in conditions]}
    if recommendation is not None:
        status["recommendation"] = recommendation_wire(recommendation)
    if generation is not None:
        status["observedGeneration"] = generation
    return status


def says_the_same(status: VpaStatus, wanted: dict[str, Any]) -> bool:
    """Return whether a status, times of conditions included, needs no write."""
    present = status_wire(
        status.recommendation, status.conditions or (), status.observed_generation
    )
    return present == wanted


def node_caps(trace: RecommendationTrace) -> list[str]:
    """Return a phrase per target that was cut to a node."""
    return [
        f"{resource} of {container} cut to {step.after}: {step.node.node} has "
        f"{step.node.available} {'m' if resource == 'cpu' else 'bytes'} for the pod"
        for (container, resource, bound), amount in trace.amounts.items()
        for step in amount.steps
        if bound == "target" and step.node is not None
    ]


def _entry(entry: ContainerRecommendation) -> dict[str, Any]:
    lists = zip(entry.__struct_encode_fields__[1:], structs.astuple(entry)[1:], strict=True)
    shown = {name: wire(listed) for name, listed in lists if listed is not None}
    return {"containerName": entry.container_name, **shown}


def _condition(condition: VpaCondition) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": condition.type, "status": condition.status}
    if condition.last_transition_time is not None:
        shown["lastTransitionTime"] = rfc3339(condition.last_transition_time)
    if condition.reason:
        shown["reason"] = condition.reason
    if condition.message:
        shown["message"] = condition.message
    return shown


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


def history_condition(reason: str, message: str) -> VpaCondition:
    """Return how reading history from Prometheus went: HistoryLoaded, or the token of a failure."""
    # Not FetchingHistory: while that is True upstream writes no checkpoint of the VPA and
    # never takes it back itself, so that it would outlive a hand-over to upstream.
    return VpaCondition("HistoryLoaded", str(reason == "HistoryLoaded"), reason, message)


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
    history: VpaCondition | None = None,
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
        wanted.append(history)
    if lost is not None:
        # Upstream declares the type and never sets it.
        wanted.append(VpaCondition("LowConfidence", "True", HISTORY_LOST, lost))
    kept = [condition for condition in before if condition.type not in _OWNED]
    return sorted((_timed(c, before, now) for c in [*wanted, *kept]), key=lambda c: c.type)


def replace_history(
    before: Sequence[VpaCondition], history: VpaCondition, now: float
) -> list[VpaCondition]:
    """Return the conditions with that of history, all others as they were."""
    kept = [condition for condition in before if condition.type != "HistoryLoaded"]
    return sorted([_timed(history, before, now), *kept], key=lambda c: c.type)


def _timed(condition: VpaCondition, before: Sequence[VpaCondition], now: float) -> VpaCondition:
    since = float(int(now))
    for old in before:
        if old.type == condition.type and old.status == condition.status:
            since = old.last_transition_time or since
    return structs.replace(condition, last_transition_time=since)
