"""Post-processors: what is done to a recommendation before its policy caps it.

Only one today: CPU in whole cores, asked for by annotation and enabled by flag.
"""

from collections.abc import Mapping

from podscale.core.quantity import NANO, Quantity
from vpa.model.api.objects import ContainerRecommendation, VpaRecommendation
from vpa.model.api.quantities import ResourceList

_PREFIX = "vpa-post-processor.kubernetes.io/"
_SUFFIX = "_integerCPU"


def integer_cpu_containers(annotations: Mapping[str, str] | None) -> frozenset[str]:
    """Return the containers whose annotation asks for whole cores."""
    return frozenset(
        key[len(_PREFIX) : -len(_SUFFIX)]
        for key, value in (annotations or {}).items()
        if key.startswith(_PREFIX)
        and key.endswith(_SUFFIX)
        and len(key) > len(_PREFIX) + len(_SUFFIX)
        and value == "true"
    )


def integer_cpu(recommendation: VpaRecommendation, containers: frozenset[str]) -> VpaRecommendation:
    """Return the recommendation with every CPU amount of ``containers`` in whole cores."""
    if not containers:
        return recommendation
    return VpaRecommendation(
        container_recommendations=tuple(
            _rounded(entry) if entry.container_name in containers else entry
            for entry in recommendation.container_recommendations or ()
        )
    )


def whole_cores(resources: ResourceList) -> ResourceList:
    """Return the list with CPU rounded up to a core."""
    if "cpu" not in resources:
        return resources
    cpu = resources["cpu"]
    return ResourceList({**resources, "cpu": Quantity(-(-cpu.nano // NANO) * NANO, cpu.format)})


def _rounded(entry: ContainerRecommendation) -> ContainerRecommendation:
    def cores(resources: ResourceList | None) -> ResourceList | None:
        return whole_cores(resources) if resources is not None else None

    return ContainerRecommendation(
        entry.container_name,
        cores(entry.target),
        cores(entry.lower_bound),
        cores(entry.upper_bound),
        cores(entry.uncapped_target),
    )
