"""The pods behind a selector, from the store's columns to those of a decision.

Made once per change of these pods, not once per pass: a steady workload costs one
comparison of versions.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from hpa.decide.numbers import INT64_MAX
from hpa.decide.pods import ContainerRequest, DecidedPodTemplate, Pods
from podscale.kube.client.wire import OwnerReference
from podscale.kube.columns.pod_set import PodSet
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

_KEPT_TEMPLATES = 10_000
_KEPT_PLACES = 1000

Topmost = Callable[[str, OwnerReference], OwnerReference]


class SelectedPods:
    """Makes ``Pods`` of pod sets; equal templates become one object."""

    def __init__(self, topmost: Topmost) -> None:
        """``topmost`` follows a pod's controller, in a namespace, to the workload above it."""
        self._topmost = topmost
        self._templates: dict[int, tuple[WirePodTemplate, DecidedPodTemplate]] = {}
        self._places: dict[tuple[int, ...], tuple[int, ...]] = {}

    def of(self, namespace: str, found: PodSet) -> Pods:
        """Return the pods of one selection, sorted by name."""
        count = len(found)
        if not count:
            return Pods()
        names = found.names
        order = sorted(range(count), key=names.__getitem__)
        numbers = found.template[order].tolist()
        position = {number: place for place, number in enumerate(dict.fromkeys(numbers))}
        owner, owners = self._owners(namespace, found, order)
        known: dict[float, float] = {}  # pods that were born together share their times
        return Pods(
            names=tuple([names[row] for row in order]),
            phase=found.phase[order].tobytes(),
            ready=found.ready[order].tobytes(),
            deleted=(~np.isnan(found.deleted[order])).tobytes(),
            started=_times(found.started[order], known),
            ready_since=_times(found.ready_since[order], known),
            template=self._shared(tuple([position[number] for number in numbers])),
            templates=tuple([self._template(found.templates[number]) for number in position]),
            owner=owner,
            owners=owners,
        )

    def _owners(
        self, namespace: str, found: PodSet, order: list[int]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        places: dict[str, int] = {}
        by_uid: dict[str, int] = {"": places.setdefault("", 0)}
        for uid, reference in found.owners.items():
            top = self._topmost(namespace, reference)
            by_uid[uid] = places.setdefault(f"{top.kind}/{top.name}", len(places))
        uids = found.owner_uids
        return self._shared(tuple([by_uid[uids[row]] for row in order])), tuple(places)

    def _shared(self, places: tuple[int, ...]) -> tuple[int, ...]:
        """Return an equal column, if there is one: mostly they are all zeros, or all ones."""
        if len(self._places) >= _KEPT_PLACES:
            self._places.clear()
        return self._places.setdefault(places, places)

    def _template(self, template: WirePodTemplate) -> DecidedPodTemplate:
        # By identity: the store interns templates and keeps each as long as a pod has it.
        known = self._templates.get(id(template))
        if known is not None and known[0] is template:
            return known[1]
        if len(self._templates) >= _KEPT_TEMPLATES:
            self._templates.clear()
        made = DecidedPodTemplate(
            containers=(
                *(_container(each, is_init=True) for each in template.init_containers),
                *(_container(each, is_init=False) for each in template.containers),
            ),
            pod_level=_saturated(template.pod_requests_milli or {}),
            overhead=_saturated(template.overhead_milli),
        )
        self._templates[id(template)] = (template, made)
        return made


def _container(container: TemplateContainer, *, is_init: bool) -> ContainerRequest:
    return ContainerRequest(
        container.name,
        _saturated(container.requests_milli),
        is_init,
        is_init and container.is_sidecar,
    )


def _saturated(amounts: Mapping[str, int]) -> Mapping[str, int]:
    if max(amounts.values(), default=0) <= INT64_MAX:
        return amounts
    return {name: min(milli, INT64_MAX) for name, milli in amounts.items()}


def _times(column: NDArray[np.float64], known: dict[float, float]) -> tuple[float | None, ...]:
    """Return the column, equal times as one object; None: not set."""
    shared = known.setdefault
    return tuple([None if math.isnan(at) else shared(at, at) for at in column.tolist()])
