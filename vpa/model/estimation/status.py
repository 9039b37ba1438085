"""The status of a VPA as JSON: recommendation and conditions.

Written as a whole, with upstream's field names; compared with what is there, so that
nothing is written that says the same.
"""

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from vpa.model.api.objects import (
    ContainerRecommendation,
    VpaCondition,
    VpaRecommendation,
    VpaStatus,
)
from vpa.model.api.quantities import ResourceList, wire
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
    lists: tuple[tuple[str, ResourceList | None], ...] = (
        ("target", entry.target),
        ("lowerBound", entry.lower_bound),
        ("upperBound", entry.upper_bound),
        ("uncappedTarget", entry.uncapped_target),
    )
    shown = {name: wire(listed) for name, listed in lists if listed is not None}
    return {"containerName": entry.container_name, **shown}


def _condition(condition: VpaCondition) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": condition.type, "status": condition.status}
    if condition.last_transition_time is not None:
        time = condition.last_transition_time.astimezone(UTC)
        shown["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    if condition.reason:
        shown["reason"] = condition.reason
    if condition.message:
        shown["message"] = condition.message
    return shown
