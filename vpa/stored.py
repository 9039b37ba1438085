"""Objects beside VPAs as the watches bring them, their specs read on their own as VPAs' are."""

from datetime import UTC, datetime

from msgspec import Raw, Struct

from podscale.core.json_decoder import JsonDecoder
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.objects.vpa import ObjectError, decode_hook, read
from vpa.capping.limits import LimitRangeSpec
from vpa.model.api.ooms import InvolvedObject, Oom, from_eviction

_EMPTY = Raw(b"{}")
_LIMITS = JsonDecoder(LimitRangeSpec, dec_hook=decode_hook)


class _CountedPolicies(Struct, frozen=True, rename="camel"):
    container_policies: list[Raw] | None = None


class _CountedVpaSpec(Struct, frozen=True, rename="camel"):
    resource_policy: _CountedPolicies = _CountedPolicies()


class _CountedVpa(Struct, frozen=True):
    spec: _CountedVpaSpec = _CountedVpaSpec()


_COUNTED_VPA = JsonDecoder(_CountedVpa)


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


def limits_of(stored: StoredLimitRange) -> LimitRangeSpec:
    return read(_LIMITS, stored.spec, "spec")


def ooms_of(stored: StoredEvent) -> list[Oom]:
    """Return the kills that an event of an eviction tells of."""
    meta = stored.metadata
    since = meta.creation_timestamp
    created = None if since is None else datetime.fromtimestamp(since, UTC)
    return from_eviction(stored.reason, stored.involved_object, meta.annotations or {}, created)


def policies_of(vpa: Raw) -> int:
    """Return how many container policies a VPA has; 0 where that cannot be read."""
    try:
        found = read(_COUNTED_VPA, vpa, "")
    except ObjectError:
        return 0
    return len(found.spec.resource_policy.container_policies or ())
