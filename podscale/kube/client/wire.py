"""Bytes to objects and back: what every Kubernetes object has in common.

Objects are frozen structs with only the fields we read. Times are unix seconds. Decoders are made
once per type, here and nowhere else. Whoever may write a pod may let its ``managedFields`` nest
9,995 levels, which kube-apiserver stores and shows to everybody who lists pods: such objects are
made ``shallow`` without recursion.
"""

import functools
import re
import typing
from collections.abc import Hashable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from podscale.core.json_decoder import JsonDecoder, JsonText, NestsTooDeep
from podscale.core.selectors.selector import Selector, from_wire
from podscale.core.times.rfc3339 import rfc3339

if TYPE_CHECKING:
    Time = float
    MicroTime = float
else:

    class Time(float):
        """Unix seconds, on the wire ``2026-11-21T10:00:00Z``."""

        __slots__ = ()

    class MicroTime(float):
        """Unix seconds, on the wire ``2026-11-21T10:00:00.000000Z``."""

        __slots__ = ()


UNREADABLE_MANAGER = "podscale-unreadable-managed-fields"  # where nobody can tell who wrote
LEVELS = 100  # what we read of an object nests a quarter as deep
MOST_SPEC = 128 * 1024  # bytes of what is read of it: some 380 metrics of an HPA

_LONGEST_TIME = 64  # characters; Python reads any number of digits of a second
_CHUNK_BYTES = 1 << 20
_KEY = re.compile(rb'"managedFields"\s*:\s*\Z')
_KEY_BYTES = 80
_KEY_LEVELS = (3, 4, 5)  # of managedFields in an object, in an event of a watch, in a list
_ENTRY = b'{"manager":"%b","time":"1970-01-01T00:00:00Z","subresource":"%%b"}' % (
    UNREADABLE_MANAGER.encode()
)
_UNREADABLE = b"[%b,%b]" % (_ENTRY % b"status", _ENTRY % b"scale")
_QUOTE = 2
_STEPS = np.zeros(256, np.int8)  # what a byte does to the level
_STEPS[[*b'[{"}]']] = 1, 1, _QUOTE, -1, -1

_Ints = npt.NDArray[np.int32]


def shallow(body: bytes) -> bytes:
    """Return ``body`` without values of more than ``LEVELS`` levels, in time linear in its length.

    In place of ``managedFields`` that reach deeper stand entries of ``UNREADABLE_MANAGER``, in
    place of any other value at ``LEVELS`` that does, null. What is no JSON remains none.
    """
    # What a backslash escapes ends no string; nothing moves.
    text = body.replace(rb"\\", b"__").replace(rb"\"", b"__")
    places, levels = _brackets(np.frombuffer(text, np.uint8))
    spans: list[tuple[int, int, bytes]] = []
    for level in _KEY_LEVELS:
        for start, end in _deep(places, levels, level):
            if _KEY.search(text[max(0, start - _KEY_BYTES) : start]):
                spans.append((start, end, _UNREADABLE))
    spans += [(start, end, b"null") for start, end in _deep(places, levels, LEVELS)]
    parts: list[bytes] = []
    at = 0
    for start, end, other in sorted(spans):
        if start >= at:  # else it is part of what has been left out
            parts += body[at:start], other
            at = end
    return b"".join([*parts, body[at:]])


def _brackets(text: npt.NDArray[np.uint8]) -> tuple[_Ints, _Ints]:
    """Return where brackets outside strings stand, and the level of what each begins or ends."""
    places, levels = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    level = quotes = 0
    for start in range(0, len(text), _CHUNK_BYTES):
        steps = _STEPS[text[start : start + _CHUNK_BYTES]]
        marks = np.flatnonzero(steps)
        steps = steps[marks]
        is_quote = steps == _QUOTE
        is_bracket = ~is_quote & ((quotes + np.cumsum(is_quote)) % 2 == 0)
        quotes += int(is_quote.sum())
        steps = steps[is_bracket]
        after = level + np.cumsum(steps, dtype=np.int32)
        places.append((start + marks[is_bracket]).astype(np.int32))
        levels.append((after + (steps < 0)).astype(np.int32))
        level += int(steps.sum())
    return np.concatenate(places), np.concatenate(levels)


def _deep(places: _Ints, levels: _Ints, level: int) -> Iterator[tuple[int, int]]:
    """Yield the beginning and the end of each value at ``level`` that reaches below ``LEVELS``."""
    borders = np.flatnonzero(levels == level)  # of one value, and then of the next
    if len(borders) % 2:  # cut off
        borders = borders[:-1]
    if len(borders):
        is_deep = np.maximum.reduceat(levels, borders)[::2] > LEVELS
        for first, last in borders.reshape(-1, 2)[is_deep]:
            yield int(places[first]), int(places[last]) + 1


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
        return next((owner for owner in self.owner_references if owner.controller), None)


class ManagedField(Struct, frozen=True, gc=False, rename="camel"):
    """Who wrote last through which subresource; the fields themselves are not read."""

    manager: str = ""
    subresource: str = ""
    time: Time | None = None


class ManagedMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata with the writers: of kinds of which that is asked, since there are many of them."""

    managed_fields: tuple[ManagedField, ...] = ()

    def last_writer(self, subresource: str) -> ManagedField | None:
        """Return who wrote last through ``subresource``; None where nobody did, or no one tells."""
        fields = [each for each in self.managed_fields if each.subresource == subresource]
        times = (each for each in fields if each.time is not None)
        return max(times, key=lambda each: each.time or 0.0, default=None)


class Bounded(Struct, frozen=True, gc=False):
    """An object that tenants write: one whose ``spec`` is too long, all fields that are read
    written out, is refused as it is decoded. Kept, short texts fill ten times their length.
    """

    def __post_init__(self) -> None:
        refuse_long(getattr(self, "spec", None))


class HasMetadata(Protocol):
    """What a store needs of a type."""

    @property
    def metadata(self) -> ObjectMeta: ...


class PartialObjectMetadata(Struct, frozen=True, gc=False, rename="camel"):
    """Any object, seen through a metadata-only request."""

    metadata: ObjectMeta


class LabelSelectorRequirement(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``matchLabels`` and ``matchExpressions``, as written."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def parsed(self) -> Selector:
        """Return it as what matches; raises ``SelectorError``."""
        return from_wire(builtins(self))

    def __str__(self) -> str:
        """Return Go's struct form, which upstream's HPA prints into reasons and errors."""
        labels = "".join(
            f"{key}: {value}," for key, value in sorted((self.match_labels or {}).items())
        )
        expressions = "".join(
            "LabelSelectorRequirement{"
            f"Key:{each.key},Operator:{each.operator},Values:[{' '.join(each.values)}],"
            "},"
            for each in self.match_expressions
        )
        return (
            f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
            f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
        )


class ListMeta(Struct, frozen=True, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


T = TypeVar("T")


class ListOf(Struct, Generic[T], frozen=True, rename="camel"):
    metadata: ListMeta = ListMeta()
    items: list[T] | None = None


class StatusCause(Struct, frozen=True, rename="camel"):
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
    return ObjectDecoder(cast(type[Any], type_), dec_hook=_read)


def convert(value: object, type_: type[T]) -> T:
    """Return plain data, as of JSON, as an object; raises ``msgspec.ValidationError``."""
    return msgspec.convert(value, type_, dec_hook=_read)


def unknown_fields(
    value: object, kind: object, path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the path of each key that ``kind`` does not have, and what there is beside it."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from unknown_fields(each, kind, f"{path}[{index}]")
    elif isinstance(value, dict) and (known := _fields(kind)):
        for key, below in value.items():
            if key not in known:
                yield f"{path}.{key}".lstrip("."), known
            elif isinstance(below, dict | list):
                yield from unknown_fields(below, known[key], f"{path}.{key}".lstrip("."))


@functools.cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """Return the types of the fields of the struct that ``kind`` is or may be, by wire names."""
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        return next(filter(None, map(_fields, typing.get_args(kind))), {})
    hints = typing.get_type_hints(kind)
    names = zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True)
    return {written: hints[own] for written, own in names}


def encode(value: object) -> bytes:
    return _encoder.encode(value)


def refuse_long(spec: object) -> None:
    """Raise ``ValueError`` for a spec of more than ``MOST_SPEC`` bytes."""
    if (length := len(encode(spec))) > MOST_SPEC:
        raise ValueError(f"spec is too long: {length} bytes, of at most {MOST_SPEC}")


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


def _read(type_: Any, value: object) -> Any:
    """Return what msgspec leaves to us: a time, or what its type reads from plain data itself."""
    return type_.read(value) if hasattr(type_, "read") else read_time(type_, value)


# Pods that were born together share most of their times; a hit costs a fifth of parsing.
@functools.lru_cache(maxsize=4096)
def read_time(type_: type, value: object) -> Any:
    """Return a time from its text; msgspec's ``dec_hook``."""
    if type_ is Time or type_ is MicroTime:
        text = str(value)
        if len(text) > _LONGEST_TIME:
            raise ValueError(f"a time has more than {_LONGEST_TIME} characters")
        return type_(parse_time(text))
    raise NotImplementedError(f"no wire form of {type_}")


def _to_wire(value: object) -> str:
    if isinstance(value, MicroTime) and type(value) is MicroTime:
        return format_micro_time(value)
    if isinstance(value, Time):
        return rfc3339(value)
    raise NotImplementedError(f"no wire form of {type(value)}")


_encoder = msgspec.json.Encoder(enc_hook=_to_wire)
