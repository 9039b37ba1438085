"""Objects of the VPA as the watches bring them, and the model's form of them.

A spec is kept as JSON and read on its own, so that one VPA that cannot be read (its CRD was
loosened, or written by hand) breaks neither the list nor the watch that it came with.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from podscale.core import quantity
from podscale.core.json_decoder import JsonDecoder
from podscale.core.pod_state import PodReadiness
from podscale.core.quantity import Format, Quantity
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.client.wire import OwnerReference as Owner
from podscale.kube.columns.pods import PodView
from podscale.kube.objects.pod import ContainerState, PodCondition, TemplateContainer, Terminated
from vpa.capping.limits import LimitRangeSpec
from vpa.model.api import objects
from vpa.model.api.objects import ObjectError, Resources, SizedPod, Vpa, VpaSpec, VpaStatus
from vpa.model.api.ooms import InvolvedObject, Oom, from_eviction
from vpa.model.api.quantities import ResourceList

T = TypeVar("T")

_EMPTY = Raw(b"{}")
_FORMATS: Mapping[str, Format] = {"cpu": "DecimalSI", "memory": "BinarySI"}
_SPEC = JsonDecoder(VpaSpec, dec_hook=objects.decode_hook)
_STATUS = JsonDecoder(VpaStatus, dec_hook=objects.decode_hook)
_LIMITS = JsonDecoder(LimitRangeSpec, dec_hook=objects.decode_hook)
_POD = JsonDecoder(SizedPod, dec_hook=objects.decode_hook)


class _CountedSpec(Struct, frozen=True, rename="camel"):
    containers: list[Raw] | None = None
    init_containers: list[Raw] | None = None


class _CountedStatus(Struct, frozen=True, rename="camel"):
    container_statuses: list[Raw] | None = None


class _Counted(Struct, frozen=True):
    spec: _CountedSpec = _CountedSpec()
    status: _CountedStatus = _CountedStatus()


class _CountedPolicies(Struct, frozen=True, rename="camel"):
    container_policies: list[Raw] | None = None


class _CountedVpaSpec(Struct, frozen=True, rename="camel"):
    resource_policy: _CountedPolicies = _CountedPolicies()


class _CountedVpa(Struct, frozen=True):
    spec: _CountedVpaSpec = _CountedVpaSpec()


_COUNTED = JsonDecoder(_Counted)
_COUNTED_VPA = JsonDecoder(_CountedVpa)


class StoredVpa(Struct, frozen=True):
    metadata: ObjectMeta
    spec: Raw = _EMPTY
    status: Raw = _EMPTY


class StoredLimitRange(Struct, frozen=True):
    metadata: ObjectMeta
    spec: Raw = _EMPTY


class StoredCheckpoint(Struct, frozen=True):
    """A VerticalPodAutoscalerCheckpoint; ``vpa.model.histograms.checkpoint`` reads its status."""

    metadata: ObjectMeta
    spec: Raw = _EMPTY
    status: Raw = _EMPTY


class StoredEvent(Struct, frozen=True, rename="camel"):
    """An event of an eviction."""

    metadata: ObjectMeta
    reason: str = ""
    involved_object: InvolvedObject = InvolvedObject()


def vpa_of(stored: StoredVpa) -> Vpa:
    """Return the VPA; raises ObjectError for a spec that cannot be read.

    A status that cannot be read counts as none: it is ours to write anew.
    """
    spec = _read(_SPEC, stored.spec, "spec")
    try:
        status = _read(_STATUS, stored.status, "status")
    except ObjectError:
        status = VpaStatus()
    return Vpa(_metadata(stored.metadata), spec, status)


def limits_of(stored: StoredLimitRange) -> LimitRangeSpec:
    return _read(_LIMITS, stored.spec, "spec")


def ooms_of(stored: StoredEvent) -> list[Oom]:
    """Return the kills that an event of an eviction tells of."""
    meta = stored.metadata
    created = _time(meta.creation_timestamp)
    return from_eviction(stored.reason, stored.involved_object, meta.annotations or {}, created)


def decode_pod(body: bytes | Raw) -> SizedPod:
    """Return a pod from JSON; raises ObjectError."""
    return _read(_POD, body, "")


def is_within(pod: bytes | Raw, most: int) -> bool:
    """Return whether a pod has at most so many containers of each kind; raises ObjectError.

    Looked at before the pod is read: its amounts cost a thousand times as much.
    """
    found = _read(_COUNTED, pod, "")
    spec, status = found.spec, found.status
    return all(
        len(each or ()) <= most
        for each in (spec.containers, spec.init_containers, status.container_statuses)
    )


def policies_of(vpa: Raw) -> int:
    """Return how many container policies a VPA has; 0 where that cannot be read."""
    try:
        found = _read(_COUNTED_VPA, vpa, "")
    except ObjectError:
        return 0
    return len(found.spec.resource_policy.container_policies or ())


def pod_of(view: PodView) -> SizedPod:
    """Return a pod of the store. Only annotations that the store keeps are there, so a
    patch of annotations needs the pod itself.
    """
    template = view.template
    owners = () if view.owner is None else (_owner(view.owner),)
    return SizedPod(
        objects.VpaMetadata(
            name=view.name,
            namespace=view.namespace,
            uid=view.uid,
            labels=dict(view.labels),
            annotations=dict(view.annotations) or None,
            owner_references=owners,
            creation_timestamp=_time(view.created),
            deletion_timestamp=_time(view.deleted),
        ),
        objects.SizedPodSpec(
            view.node,
            tuple(_container(each) for each in template.containers),
            tuple(_container(each) for each in template.init_containers) or None,
        ),
        objects.SizedPodStatus(
            view.phase.text if view.phase else "",
            _time(view.started),
            (*_ready(view), *(_condition(each) for each in view.resize)),
            tuple(_status(each) for each in view.states if not each.is_init),
        ),
    )


def _read(decoder: JsonDecoder[T], body: bytes | Raw, root: str) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ObjectError.of(error, root) from error


def _metadata(meta: ObjectMeta) -> objects.VpaMetadata:
    return objects.VpaMetadata(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        generation=meta.generation,
        labels=meta.labels,
        annotations=meta.annotations,
        owner_references=tuple(_owner(owner) for owner in meta.owner_references),
        creation_timestamp=_time(meta.creation_timestamp),
        deletion_timestamp=_time(meta.deletion_timestamp),
    )


def _owner(owner: Owner) -> objects.PodOwner:
    return objects.PodOwner(owner.kind, owner.name, owner.api_version, owner.controller)


def _container(found: TemplateContainer) -> objects.SizedContainer:
    return objects.SizedContainer(
        found.name,
        Resources(_listed(found.requests_milli), _listed(found.limits_milli)),
        tuple(
            objects.ContainerResizePolicy(resource, policy)
            for resource, policy in found.resize_policy.items()
        )
        or None,
        "Always" if found.is_sidecar else None,
    )


def _status(state: ContainerState) -> objects.SizedContainerStatus:
    resources = None
    if state.requests_milli is not None or state.limits_milli is not None:
        resources = Resources(_listed(state.requests_milli), _listed(state.limits_milli))
    now = objects.ContainerRun(
        running={} if state.phase == "running" else None,
        terminated=_terminated(state.terminated),
    )
    last = objects.ContainerRun(terminated=_terminated(state.last_terminated))
    return objects.SizedContainerStatus(state.name, state.restart_count, resources, now, last)


def _terminated(found: Terminated | None) -> objects.ContainerTermination | None:
    if found is None:
        return None
    return objects.ContainerTermination(
        found.reason, _time(found.started_at), _time(found.finished_at)
    )


def _listed(milli: Mapping[str, int] | None) -> ResourceList | None:
    if not milli:
        return None
    return ResourceList(
        {
            name: Quantity(amount * quantity.MICRO, _FORMATS.get(name, "DecimalSI"))
            for name, amount in milli.items()
        }
    )


def _ready(view: PodView) -> tuple[objects.VpaCondition, ...]:
    if view.ready == PodReadiness.ABSENT:
        return ()
    status = "True" if view.ready == PodReadiness.TRUE else "False"
    return (objects.VpaCondition("Ready", status, last_transition_time=_time(view.ready_since)),)


def _condition(found: PodCondition) -> objects.VpaCondition:
    since = _time(found.last_transition_time)
    return objects.VpaCondition(found.type, found.status, found.reason, found.message, since)


def _time(seconds: float | None) -> datetime | None:
    if seconds is None or math.isnan(seconds):
        return None
    return datetime.fromtimestamp(seconds, UTC)
