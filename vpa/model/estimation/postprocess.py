"""Post-processors: what is done to a recommendation before its policy caps it.

Only one today: CPU in whole cores, asked for by annotation and enabled by flag.
"""

from collections.abc import Mapping

from podscale.core.quantity import NANO, Quantity
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


def whole_cores(resources: ResourceList) -> ResourceList:
    """Return the list with CPU rounded up to a core."""
    if "cpu" not in resources:
        return resources
    cpu = resources["cpu"]
    return ResourceList({**resources, "cpu": Quantity(-(-cpu.nano // NANO) * NANO, cpu.format)})
