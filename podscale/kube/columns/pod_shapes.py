"""What many pods share, from wire form to amounts: templates and container states. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from podscale.core import quantity
from podscale.kube.client.wire import Quantity
from podscale.kube.objects.pod import (
    Amounts,
    Container,
    ContainerState,
    ContainerStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TemplateContainer,
    WirePodTemplate,
)


class TemplateShape(Struct, frozen=True, array_like=True):
    """The part of a pod that its template decides, as decoded; equal for equal pods."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    resources: ResourceRequirements | None
    overhead: dict[str, Quantity] | None
    priority: int

    @classmethod
    def of(cls, spec: PodSpec) -> "TemplateShape":
        return cls(
            spec.containers, spec.init_containers, spec.resources, spec.overhead, spec.priority
        )


class StateShape(Struct, frozen=True, array_like=True):
    """The container statuses of a pod, as decoded."""

    init_containers: tuple[ContainerStatus, ...]
    containers: tuple[ContainerStatus, ...]

    @classmethod
    def of(cls, status: PodStatus) -> "StateShape":
        return cls(status.init_container_statuses, status.container_statuses)


def template(shape: TemplateShape) -> WirePodTemplate:
    resources = shape.resources
    return WirePodTemplate(
        containers=tuple(map(_container, shape.containers)),
        init_containers=tuple(map(_container, shape.init_containers)),
        pod_requests_milli=None if resources is None else amounts(resources.requests),
        overhead_milli=amounts(shape.overhead),
        priority=shape.priority,
        pod_requests=None if resources is None else _exact(resources.requests),
        pod_limits=None if resources is None else _exact(resources.limits),
    )


def states(shape: StateShape) -> tuple[ContainerState, ...]:
    """Return the statuses, init containers first."""
    return (*_states(shape.init_containers, True), *_states(shape.containers, False))


def amounts(resources: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return milli-units by resource, rounded up; what is no quantity is left out."""
    return {name: amount.milli_int64 for name, amount in (_exact(resources) or {}).items()}


def _exact(resources: Mapping[str, Quantity] | None) -> Amounts | None:
    # The API server validates quantities, so only a strange server sends one that is not.
    if resources is None:
        return None
    parsed = {}
    for name, amount in resources.items():
        try:
            parsed[name] = quantity.parse(str(amount))
        except quantity.QuantityError:
            continue
    return parsed


def _container(container: Container) -> TemplateContainer:
    return TemplateContainer(
        name=container.name,
        requests_milli=amounts(container.resources.requests),
        limits_milli=amounts(container.resources.limits),
        resize_policy={
            policy.resource_name: policy.restart_policy for policy in container.resize_policy
        },
        is_sidecar=container.restart_policy == "Always",
        requests=_exact(container.resources.requests),
        limits=_exact(container.resources.limits),
    )


def _states(statuses: Iterable[ContainerStatus], is_init: bool) -> Iterable[ContainerState]:
    for status in statuses:
        state = status.state
        phase = (
            "running"
            if state.running is not None
            else "waiting"
            if state.waiting is not None
            else "terminated"
            if state.terminated is not None
            else ""
        )
        ended = state.waiting or state.terminated
        resources = status.resources
        yield ContainerState(
            name=status.name,
            is_init=is_init,
            restart_count=status.restart_count,
            phase=phase,
            reason=ended.reason if ended is not None else "",
            terminated=state.terminated,
            last_terminated=status.last_state.terminated,
            requests_milli=None if resources is None else amounts(resources.requests),
            limits_milli=None if resources is None else amounts(resources.limits),
            requests=None if resources is None else _exact(resources.requests),
            limits=None if resources is None else _exact(resources.limits),
        )
