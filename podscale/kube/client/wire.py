"""Bytes to objects and back: what every Kubernetes object has in common.

Objects are frozen structs with only the fields we read. Times are unix seconds.
Decoders are made once per type, here and nowhere else.
"""

import functools
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import JsonDecoder, JsonText, NestsTooDeep
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.nesting import shallow

if TYPE_CHECKING:
    Time = float
    MicroTime = float
else:
    # To a type checker both are floats. msgspec needs classes of their own to know
    # that the wire holds RFC 3339 text; nothing but the decoder makes instances.
    class Time(float):
        """Unix seconds, on the wire ``2026-11-21T10:00:00Z``."""

        __slots__ = ()

    class MicroTime(float):
        """Unix seconds, on the wire ``2026-11-21T10:00:00.000000Z``."""

        __slots__ = ()


GO_ZERO_TIME_S = -62_135_596_800.0  # of Go's ``time.Time{}``, which null decodes to

Quantity = str | int | float  # as written; podscale.core.quantity parses it


class OwnerReference(Struct, frozen=True, gc=False, rename="camel"):
    """Who an object belongs to."""

    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    """The metadata we read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class HasMetadata(Protocol):
    """What a store needs of a type."""

    @property
    def metadata(self) -> ObjectMeta: ...


class PartialObjectMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """Any object, seen through a metadata-only request."""

    metadata: ObjectMeta


class LabelSelectorRequirement(Struct, frozen=True, gc=False, rename="camel"):
    """One of ``matchExpressions``."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``matchLabels`` and ``matchExpressions``; ``builtins`` of it is what core.selector reads."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


T = TypeVar("T")


class ListOf(Struct, Generic[T], frozen=True, rename="camel"):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class StatusCause(Struct, frozen=True, rename="camel"):
    """One cause in the details of a Status."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Struct, frozen=True, rename="camel"):
    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int | None = None


class WireStatusDetails(Struct, frozen=True, rename="camel"):
    """The answer of the API server to what it refuses."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(Struct, Generic[T], frozen=True, rename="camel"):
    """One line of a watch; ``WatchEvent[msgspec.Raw]`` where the object may be a Status."""

    type: str
    object: T


class ObjectDecoder(JsonDecoder[T]):
    """Decodes objects of the API server; those that nest too deep without what does."""

    def decode(self, text: JsonText) -> T:
        """Return the object in ``text``; raises ``msgspec.DecodeError``."""
        try:
            return super().decode(text)
        except NestsTooDeep:
            return super().decode(shallow(bytes(text.encode() if isinstance(text, str) else text)))


def decode(body: bytes | msgspec.Raw, type_: type[T]) -> T:
    """Return the object in ``body``; raises ``msgspec.DecodeError``."""
    return decoder(type_).decode(body)


def decoder(type_: type[T]) -> ObjectDecoder[T]:
    """Return the decoder of ``type_``, always the same one."""
    made: ObjectDecoder[T] = _decoder(cast(Hashable, type_))
    return made


@functools.cache
def _decoder(type_: Hashable) -> ObjectDecoder[Any]:
    return ObjectDecoder(cast(type[Any], type_), dec_hook=_from_wire)


def encode(value: object) -> bytes:
    return _encoder.encode(value)


def parse_time(text: str) -> float:
    """Return unix seconds of an RFC 3339 time."""
    return datetime.fromisoformat(text).timestamp()


def format_micro_time(seconds: float) -> str:
    """Return ``2026-11-21T10:00:00.000000Z``: metav1.MicroTime refuses fewer digits."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def builtins(value: Struct) -> Mapping[str, object]:
    """Return a struct as the plain dict that its JSON would decode to."""
    plain: Mapping[str, object] = msgspec.to_builtins(value, enc_hook=_to_wire)
    return plain


# Pods that were born together share most of their times; a hit costs a fifth of parsing.
@functools.lru_cache(maxsize=4096)
def _from_wire(type_: type, value: object) -> Any:
    if type_ is Time or type_ is MicroTime:
        return type_(parse_time(str(value)))
    raise NotImplementedError(f"no wire form of {type_}")


def _to_wire(value: object) -> str:
    if isinstance(value, MicroTime) and type(value) is MicroTime:
        return format_micro_time(value)
    if isinstance(value, Time):
        return rfc3339(value)
    raise NotImplementedError(f"no wire form of {type(value)}")


_encoder = msgspec.json.Encoder(enc_hook=_to_wire)
