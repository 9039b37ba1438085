"""What the API server or the kubelet would refuse, found before a resize is sent.

QoS class, LimitRange, what the node can give, restart on resize. Facts of KEP-1287.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.admission.resources import ContainerResources
from vpa.capping.processor import LimitRanges
from vpa.model.objects import Container, Pod, Resources
from vpa.model.quantities import EMPTY, RESOURCES, ResourceList, of

QosClass = Literal["BestEffort", "Burstable", "Guaranteed"]


class Refusal(Struct, frozen=True):
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


def resized(container: Container, wanted: ContainerResources) -> Resources:
    """Return the container's resources after the resize."""
    own = container.resources
    return Resources(
        ResourceList({**(own.requests or EMPTY), **wanted.requests}),
        ResourceList({**(own.limits or EMPTY), **wanted.limits}),
    )


def refusal(
    pod: Pod,
    wanted: tuple[ContainerResources, ...],
    ranges: LimitRanges,
    allocatable: Mapping[str, Quantity] | None,
) -> Refusal | None:
    """Return the first thing that would refuse the resize; ``allocatable`` of the pod's
    node, None if it is not known.
    """
    init = [container.resources for container in pod.spec.init_containers or ()]
    before = [container.resources for container in pod.spec.containers]
    after = [resized(c, w) for c, w in zip(pod.spec.containers, wanted, strict=True)]
    was, becomes = qos_class([*before, *init]), qos_class([*after, *init])
    if was != becomes:
        text = f"the pod is {was} and would become {becomes}, which a resize may not do"
        return Refusal("QosClassWouldChange", text, {"from": was, "to": becomes})
    for container, resources in zip(pod.spec.containers, after, strict=True):
        found = _outside_range(container.name, resources, ranges)
        if found is not None:
            return found
    for name in RESOURCES:
        room = (allocatable or EMPTY).get(name)
        total = sum(of(resources.requests, name).nano for resources in after)
        if room is not None and total > room.nano:
            text = f"{name} of {Quantity(total, room.format)} is more than the node has, {room}"
            facts = {"resource": name, "allocatable": str(room), "node": pod.spec.node_name}
            return Refusal("ResizeInfeasible", text, facts)
    return None


def _outside_range(name: str, resources: Resources, ranges: LimitRanges) -> Refusal | None:
    item = ranges.container
    if item is None:
        return None
    for resource in RESOURCES:
        limit, request = of(resources.limits, resource), of(resources.requests, resource)
        most, least = of(item.max, resource), of(item.min, resource)
        if most.nano and max(limit.nano, request.nano) > most.nano:
            text = f"{resource} of container {name} would exceed max {most} of the LimitRange"
            return Refusal("LimitRangeMax", text, {"container": name, "max": str(most)})
        if least.nano and request.nano and request.nano < least.nano:
            text = f"{resource} of container {name} would be below min {least} of the LimitRange"
            return Refusal("LimitRangeMin", text, {"container": name, "min": str(least)})
    return None
