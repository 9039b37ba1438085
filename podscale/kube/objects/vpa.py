"""VPAs, their recommendations, and LimitRanges.

A spec is kept as JSON and read on its own, so that one VPA that cannot be read (its CRD was
loosened, or written by hand) breaks neither the list nor the watch that it came with. Only fields
that decide something are here; an absent field differs from an empty one where JSON patches
depend on it.
"""

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field, structs

from podscale.core import quantity
from podscale.core.json_decoder import JsonDecoder
from podscale.core.quantity import Quantity, QuantityError
from podscale.kube.client.wire import Bounded, ObjectMeta, Time, read_time
from podscale.kube.objects.autoscaler import CrossVersionObjectReference

Amount = str | int | float  # a quantity on the wire: CRDs allow bare numbers
MOST_NAMES = 32  # of one list: reading more keeps others waiting
MOST_ENTRIES = 1000  # policies of a VPA, or recommenders: more of them take ten times their text


class ResourceList(dict[str, Quantity]):
    """Amounts by resource name, as decoded from JSON. Treated as immutable."""


class AmountError(QuantityError):
    """An amount of a list cannot be read."""

    def __init__(self, resource: str, error: QuantityError) -> None:
        super().__init__(error.text, error.reason)
        self.resource = resource


def resource_list(wire: Mapping[str, object]) -> ResourceList:
    """Return the list that ``wire`` writes; raises ``AmountError``, and ``ValueError`` for one
    that is longer than any node has resources.
    """
    if len(wire) > MOST_NAMES:
        raise ValueError(f"{len(wire)} resources, of at most {MOST_NAMES}")
    return ResourceList({name: _amount(name, value) for name, value in wire.items()})


def _amount(resource: str, value: object) -> Quantity:
    if value is None:
        return Quantity(0)  # as Go's decoder has it
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            shown = "true or false" if isinstance(value, bool) else "an object or a list"
            raise QuantityError(shown, "a quantity is a text or a number")
        return quantity.from_wire(value)
    except QuantityError as error:
        raise AmountError(resource, error) from error


class Resources(Struct, frozen=True):
    """``resources`` of a container."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class VpaCondition(Struct, frozen=True, rename="camel"):
    """A status condition of any object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time | None = None


class EvictionRequirement(Struct, frozen=True, rename="camel"):
    """A direction in which the target must differ before a pod is disturbed."""

    resources: tuple[str, ...] = ()
    change_requirement: str = ""


class UpdatePolicy(Struct, frozen=True, rename="camel"):
    """``spec.updatePolicy``."""

    update_mode: str | None = None
    min_replicas: int | None = None
    eviction_requirements: tuple[EvictionRequirement, ...] | None = None
    evict_after_oom_seconds: int | None = field(name="evictAfterOOMSeconds", default=None)


class CpuBoost(Struct, frozen=True, rename="camel"):
    """``startupBoost.cpu``."""

    type: str = ""
    factor: int | None = None
    quantity: Amount | None = None
    duration_seconds: int | None = None


class StartupBoost(Struct, frozen=True):
    """More CPU for a pod that starts."""

    cpu: CpuBoost | None = None


class ContainerPolicy(Struct, frozen=True, rename="camel"):
    """One entry of ``spec.resourcePolicy.containerPolicies``."""

    container_name: str = ""
    mode: str | None = None
    min_allowed: ResourceList | None = None
    max_allowed: ResourceList | None = None
    controlled_resources: tuple[str, ...] | None = None
    controlled_values: str | None = None
    oom_bump_up_ratio: Amount | None = None
    oom_min_bump_up: Amount | None = None
    memory_aggregation_interval_seconds: int | None = None
    memory_aggregation_interval_count: int | None = None
    startup_boost: StartupBoost | None = None

    def sizes(self, resource: str) -> bool:
        """Return whether the resource is one that the VPA sets."""
        controlled = self.controlled_resources
        return self.mode != "Off" and (controlled is None or resource in controlled)


class ResourcePolicy(Struct, frozen=True, rename="camel", dict=True):
    """``spec.resourcePolicy``."""

    container_policies: (
        Annotated[tuple[ContainerPolicy, ...], Meta(max_length=MOST_ENTRIES)] | None
    ) = None

    @cached_property
    def by_container(self) -> Mapping[str, ContainerPolicy]:
        """The first entry of each name; of ``*`` the last, as upstream finds them."""
        found: dict[str, ContainerPolicy] = {}
        for entry in self.container_policies or ():
            if entry.container_name == "*":
                found["*"] = entry
            else:
                found.setdefault(entry.container_name, entry)
        return found


class Named(Struct, frozen=True):
    """An entry of ``spec.recommenders``."""

    name: str = ""


class VpaSpec(Struct, frozen=True, rename="camel"):
    target_ref: CrossVersionObjectReference | None = None
    update_policy: UpdatePolicy | None = None
    resource_policy: ResourcePolicy | None = None
    recommenders: Annotated[tuple[Named, ...], Meta(max_length=MOST_ENTRIES)] | None = None
    startup_boost: StartupBoost | None = None


class ContainerRecommendation(Struct, frozen=True, rename="camel"):
    """What one container should ask for; amounts that were never published are absent."""

    container_name: str = ""
    target: ResourceList | None = None
    lower_bound: ResourceList | None = None
    upper_bound: ResourceList | None = None
    uncapped_target: ResourceList | None = None

    def mapped(
        self, change: Callable[[str, ResourceList | None], ResourceList | None]
    ) -> "ContainerRecommendation":
        """Return what ``change`` makes of each list, by the name of its field."""
        lists = {field: change(field, getattr(self, field)) for field in self.__struct_fields__[1:]}
        return structs.replace(self, **lists)


class VpaRecommendation(Struct, frozen=True, rename="camel", dict=True):
    """``status.recommendation``."""

    container_recommendations: tuple[ContainerRecommendation, ...] | None = None

    def of(self, container: str) -> ContainerRecommendation | None:
        """Return the entry of one container, the first of its name."""
        return self._by_container.get(container)

    @cached_property
    def _by_container(self) -> Mapping[str, ContainerRecommendation]:
        found: dict[str, ContainerRecommendation] = {}
        for entry in self.container_recommendations or ():
            found.setdefault(entry.container_name, entry)
        return found


class VpaStatus(Struct, frozen=True, rename="camel"):
    recommendation: VpaRecommendation | None = None
    conditions: tuple[VpaCondition, ...] | None = None
    observed_generation: int | None = None


class Vpa(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: VpaSpec = VpaSpec()
    status: VpaStatus = VpaStatus()

    def __hash__(self) -> int:
        return hash((self.metadata.namespace, self.metadata.name))

    def has_target(self, kind: str, name: str) -> bool:
        """Return whether it sizes the object of its namespace, whatever the group."""
        reference = self.spec.target_ref
        return reference is not None and (reference.kind, reference.name) == (kind, name)


class StoredVpa(Bounded, frozen=True):
    """A VPA as a watch brings it."""

    metadata: ObjectMeta
    spec: Raw = Raw(b"{}")
    status: Raw = Raw(b"{}")


class LimitRangeItem(Struct, frozen=True):
    """One item of a LimitRange, or the merged effect of all of a namespace and type."""

    type: str = ""
    min: ResourceList | None = None
    max: ResourceList | None = None
    default: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = field(name="maxLimitRequestRatio", default=None)


T = TypeVar("T")


_PLACED = re.compile(r"(.*) - at `\$(.*)`", re.DOTALL)


class ObjectError(ValueError):
    """The object cannot be read; the message names the field and what is wrong with it."""

    def __init__(self, message: str, *, field: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.field = field  # as Kubernetes writes paths
        self.reason = reason or message  # without the field

    @classmethod
    def of(cls, error: Exception, root: str) -> "ObjectError":
        """Return the error of a decoder; ``root`` is the path of what it decoded."""
        found = _PLACED.fullmatch(str(error))
        reason, path = (found[1], found[2]) if found else (str(error), "")
        field = (root + path).removeprefix(".")
        if isinstance(error.__cause__, AmountError):
            field += f"[{error.__cause__.resource}]"
        return cls(f"{field}: {reason}" if field else reason, field=field, reason=reason)


def decode_hook(wanted: type, value: object) -> object:
    """Turn JSON into the types above that msgspec does not know."""
    if wanted is ResourceList:
        if not isinstance(value, Mapping):
            raise ValueError("expected an object of quantities")
        return resource_list(value)
    return read_time(wanted, value)


def decode(value: object, kind: type[T]) -> T:
    """Return ``value``, parsed JSON, as ``kind``; raises ObjectError."""
    try:
        return msgspec.convert(value, kind, dec_hook=decode_hook)
    except (msgspec.ValidationError, ValueError) as error:
        raise ObjectError.of(error, "") from error


def read(decoder: JsonDecoder[T], body: bytes | Raw, root: str) -> T:
    """Return what ``body``, at the path ``root``, says; raises ObjectError."""
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise ObjectError.of(error, root) from error


_SPEC = JsonDecoder(VpaSpec, dec_hook=decode_hook)
_STATUS = JsonDecoder(VpaStatus, dec_hook=decode_hook)


def vpa_of(stored: StoredVpa) -> Vpa:
    """Return the VPA; raises ObjectError for a spec that cannot be read.

    A status that cannot be read counts as none: it is ours to write anew.
    """
    spec = read(_SPEC, stored.spec, "spec")
    try:
        status = read(_STATUS, stored.status, "status")
    except ObjectError:
        status = VpaStatus()
    return Vpa(stored.metadata, spec, status)


def readable(stored: StoredVpa) -> Vpa | None:
    """Return the VPA; None for a spec that cannot be read."""
    try:
        return vpa_of(stored)
    except ObjectError:
        return None


def update_mode(vpa: Vpa) -> str:
    """Return ``spec.updatePolicy.updateMode``; Recreate where it is not set."""
    policy = vpa.spec.update_policy
    return (policy.update_mode if policy is not None else None) or "Recreate"


def has_startup_boost(vpa: Vpa) -> bool:
    """Return whether a boost is configured for the VPA or any container."""
    return vpa.spec.startup_boost is not None or any(
        policy.startup_boost is not None for policy in container_policies(vpa.spec.resource_policy)
    )


def container_policies(policy: ResourcePolicy | None) -> tuple[ContainerPolicy, ...]:
    return (policy.container_policies if policy is not None else None) or ()


def container_policy(policy: ResourcePolicy | None, container: str) -> ContainerPolicy | None:
    """Return the entry of the container, else the entry ``*``: one entry counts as a whole."""
    if policy is None:
        return None
    return policy.by_container.get(container) or policy.by_container.get("*")


def is_off(policy: ResourcePolicy | None, container: str) -> bool:
    """Return whether the container's policy has mode Off."""
    entry = container_policy(policy, container)
    return entry is not None and entry.mode == "Off"


def controlled_values(policy: ResourcePolicy | None, container: str) -> str:
    """Return RequestsAndLimits or RequestsOnly."""
    entry = container_policy(policy, container)
    return (entry.controlled_values if entry is not None else None) or "RequestsAndLimits"
