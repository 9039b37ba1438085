"""Pods as they are read: one as an object, a selection as columns; and what many of them share,
from wire form to amounts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core import quantity
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.wire import OwnerReference, Quantity
from podscale.kube.objects import pod as objects

NO_ANNOTATIONS: Mapping[str, str] = {}  # of a pod that has no such field


class PodView(Struct, frozen=True, dict=True):
    """One pod: everything the store keeps of it. Times are unix seconds, NaN: not set."""

    namespace: str
    name: str
    uid: str
    resource_version: str  # "": it was not a number
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # of a store only those it was told to keep
    owner: OwnerReference | None  # the controller
    node: str
    phase: PodPhase
    ready: PodReadiness
    ready_since: float  # lastTransitionTime of the Ready condition
    started: float  # status.startTime
    created: float
    deleted: float  # deletionTimestamp
    template: objects.WirePodTemplate
    states: tuple[
        objects.ContainerState, ...
    ]  # containers that have a status, init containers first
    resize: tuple[objects.PodCondition, ...]  # the PodResize* conditions

    @cached_property
    def present(self) -> Mapping[str, objects.ContainerState | objects.TemplateContainer]:
        """Who says what each container has now: its state where the kubelet reports its
        resources, else the template. Init containers are not looked at.
        """
        present: dict[str, objects.ContainerState | objects.TemplateContainer] = {}
        for state in self.states:
            if not state.is_init and state.requests_milli is not None:
                present.setdefault(state.name, state)
        for container in self.template.containers:
            present.setdefault(container.name, container)
        return present

    def requests_and_limits(
        self, container: str
    ) -> tuple[objects.Amounts | None, objects.Amounts | None]:
        """Return what the container has now; both are None where neither is written."""
        now = self.present.get(container)
        return (now.requests, now.limits) if now is not None else (None, None)


class PodSet:
    """The pods of one selection, as columns of one length: a snapshot, in no order."""

    def __init__(
        self,
        names: list[str],
        table: NDArray[np.void],
        *,
        spans: Sequence[tuple[str, int, str]],
        templates: Mapping[int, objects.WirePodTemplate],
        owners: Mapping[str, OwnerReference],
        get: Callable[[str, str], PodView | None],
    ) -> None:
        """``spans``: namespace, number of pods and their controller's UID, in order."""
        self.names = names
        self.templates = templates  # the distinct ones, by number
        self.owners = owners  # the distinct controllers, by UID
        self.phase: NDArray[np.uint8] = table["phase"]  # ``PodPhase`` numbers
        self.ready: NDArray[np.uint8] = table["ready"]  # ``PodReadiness`` numbers
        self.ready_since: NDArray[np.float64] = table["ready_since"]  # lastTransitionTime of Ready
        self.started: NDArray[np.float64] = table["started"]  # status.startTime; NaN: not set
        self.deleted: NDArray[np.float64] = table["deleted"]  # NaN: not being deleted
        self.template: NDArray[np.int32] = table["template"]  # a key of ``templates``
        self._spans = spans
        self._get = get

    def __len__(self) -> int:
        return len(self.names)

    @property
    def namespaces(self) -> list[str]:
        return [namespace for namespace, count, _uid in self._spans for _ in range(count)]

    @property
    def owner_uids(self) -> list[str]:
        """The UID of each pod's controller, a key of ``owners``; "": it has none."""
        return [uid for _, count, uid in self._spans for _ in range(count)]

    def views(self) -> Iterator[PodView]:
        """Yield each pod as an object, as it is now; those that have gone are left out."""
        for namespace, name in zip(self.namespaces, self.names, strict=True):
            view = self._get(namespace, name)
            if view is not None:
                yield view


def template(spec: objects.PodSpec) -> objects.WirePodTemplate:
    resources = spec.resources
    return objects.WirePodTemplate(
        containers=tuple(map(_container, spec.containers)),
        init_containers=tuple(map(_container, spec.init_containers)),
        pod_requests_milli=None if resources is None else amounts(resources.requests),
        overhead_milli=amounts(spec.overhead),
        priority=spec.priority,
        pod_requests=None if resources is None else _exact(resources.requests),
        pod_limits=None if resources is None else _exact(resources.limits),
    )


def states(status: objects.PodStatus) -> tuple[objects.ContainerState, ...]:
    """Return the statuses of its containers, init containers first."""
    inits = _states(status.init_container_statuses, True)
    return (*inits, *_states(status.container_statuses, False))


def amounts(resources: Mapping[str, Quantity] | None) -> dict[str, int]:
    """Return milli-units by resource, rounded up; what is no quantity is left out."""
    return {name: amount.milli_int64 for name, amount in (_exact(resources) or {}).items()}


def _exact(resources: Mapping[str, Quantity] | None) -> objects.Amounts | None:
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


def _container(container: objects.Container) -> objects.TemplateContainer:
    return objects.TemplateContainer(
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


def _states(
    statuses: Iterable[objects.ContainerStatus], is_init: bool
) -> Iterable[objects.ContainerState]:
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
        yield objects.ContainerState(
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
