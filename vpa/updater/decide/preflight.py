"""What the API server or the kubelet would refuse, found before a resize is sent.

QoS class and what the node can give; what it refuses for any pod is in
``vpa.admission.patches.acceptance``. Facts of KEP-1287.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.admission.patches.acceptance import patched
from vpa.admission.patches.resources import ContainerResources
from vpa.model.api.objects import Resources, SizedPod
from vpa.model.api.quantities import EMPTY, RESOURCES, of

QosClass = Literal["BestEffort", "Burstable", "Guaranteed"]


class ResizeRefusal(Struct, frozen=True):
    """Why a resize would not be accepted; ``facts`` are shown by the explanation."""

    reason: str
    message: str
    facts: Mapping[str, str | int | float]


def qos_class(containers: list[Resources]) -> QosClass:
    """Return the class that Kubernetes computes from CPU and memory of all containers."""
    if not any(
        of(listed, name).nano
        for resources in containers
        for listed in (resources.requests, resources.limits)
        for name in RESOURCES
    ):
        return "BestEffort"
    for resources in containers:
        for name in RESOURCES:
            limit = of(resources.limits, name)
            # An absent request is the limit, by the API server's defaulting.
            request = (resources.requests or EMPTY).get(name, limit)
            if not limit.nano or request.nano != limit.nano:
                return "Burstable"
    return "Guaranteed"


def refusal(
    pod: SizedPod,
    wanted: tuple[ContainerResources, ...],
    allocatable: Mapping[str, Quantity] | None,
) -> ResizeRefusal | None:
    """Return the first thing that would refuse the resize; ``allocatable`` of the pod's
    node, None if it is not known.
    """
    init = [container.resources for container in pod.spec.init_containers or ()]
    before = [container.resources for container in pod.spec.containers]
    after = [patched(c, w) for c, w in zip(pod.spec.containers, wanted, strict=True)]
    was, becomes = qos_class([*before, *init]), qos_class([*after, *init])
    if was != becomes:
        text = f"the pod is {was} and would become {becomes}, which a resize may not do"
        return ResizeRefusal("QosClassWouldChange", text, {"from": was, "to": becomes})
    for name in RESOURCES:
        room = (allocatable or EMPTY).get(name)
        total = sum(of(resources.requests, name).nano for resources in after)
        if room is not None and total > room.nano:
            text = f"{name} of {Quantity(total, room.format)} is more than the node has, {room}"
            facts = {"resource": name, "allocatable": str(room), "node": pod.spec.node_name}
            return ResizeRefusal("ResizeInfeasible", text, facts)
    return None
