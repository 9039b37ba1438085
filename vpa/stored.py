"""Objects of the VPA as the watches bring them, and the model's form of them.

A spec is kept as JSON and read on its own, so that one VPA that cannot be read (its CRD was
loosened, or written by hand) breaks neither the list nor the watch that it came with.
"""

from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from podscale.core.json_decoder import JsonDecoder
from podscale.kube.client.wire import ObjectMeta
from vpa.capping.limits import LimitRangeSpec
from vpa.model.api import objects
from vpa.model.api.objects import ObjectError, Vpa, VpaSpec, VpaStatus
from vpa.model.api.ooms import InvolvedObject, Oom, from_eviction

T = TypeVar("T")

_EMPTY = Raw(b"{}")
_SPEC = JsonDecoder(VpaSpec, dec_hook=objects.decode_hook)
_STATUS = JsonDecoder(VpaStatus, dec_hook=objects.decode_hook)
_LIMITS = JsonDecoder(LimitRangeSpec, dec_hook=objects.decode_hook)


class _CountedPolicies(Struct, frozen=True, rename="camel"):
    container_policies: list[Raw] | None = None


class _CountedVpaSpec(Struct, frozen=True, rename="camel"):
    resource_policy: _CountedPolicies = _CountedPolicies()


class _CountedVpa(Struct, frozen=True):
    spec: _CountedVpaSpec = _CountedVpaSpec()


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


def policies_of(vpa: Raw) -> int:
    """Return how many container policies a VPA has; 0 where that cannot be read."""
    try:
        found = _read(_COUNTED_VPA, vpa, "")
    except ObjectError:
        return 0
    return len(found.spec.resource_policy.container_policies or ())


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
        creation_timestamp=_time(meta.creation_timestamp),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
