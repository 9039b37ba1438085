"""Eviction requirements: in which direction a target must differ to disturb a pod.

They gate in-place updates as well as evictions, as upstream does.
"""

from collections.abc import Sequence

from podscale.core.quantity import Quantity
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.pod import Amounts
from podscale.kube.objects.vpa import (
    EvictionRequirement,
    ResourceList,
    VpaRecommendation,
)
from vpa.model.api.quantities import EMPTY, RESOURCES, of


def unmet(
    pod: PodView,
    recommendation: VpaRecommendation | None,
    requirements: Sequence[EvictionRequirement] | None,
) -> EvictionRequirement | None:
    """Return a requirement that keeps the pod from being disturbed, None if it may be.

    One container is enough that lacks a request or satisfies every requirement, each by
    any of its resources. No recommendation means that this is not what holds it up.
    """
    if not requirements or recommendation is None:
        return None
    refused: EvictionRequirement | None = None
    for container in pod.template.containers:
        entry = recommendation.of(container.name)
        if entry is None:
            continue
        requests, _ = pod.requests_and_limits(container.name)
        present = requests or EMPTY
        if any(resource not in present for resource in RESOURCES):
            return None
        failing = _first_failing(present, entry.target or EMPTY, requirements)
        if failing is None:
            return None
        refused = refused or failing
    return refused or requirements[0]


def _first_failing(
    requests: Amounts, target: ResourceList, requirements: Sequence[EvictionRequirement]
) -> EvictionRequirement | None:
    for requirement in requirements:
        if not any(
            _moves(of(requests, resource), of(target, resource), requirement.change_requirement)
            for resource in requirement.resources
        ):
            return requirement
    return None


def _moves(request: Quantity, target: Quantity, direction: str) -> bool:
    if direction == "TargetHigherThanRequests":
        return target.milli > request.milli
    return direction == "TargetLowerThanRequests" and target.milli < request.milli
