"""The values a template works on, and Go's names for their types.

Texts, integers, floats, booleans, lists and maps; ``None`` is Go's nil and its "no
value". The fields given to ``render`` are a ``TemplateRecord``: Go's struct, whose unknown field
is an error where a map's unknown key is no value.
"""

from collections.abc import Mapping, Sequence
from typing import Union

from msgspec import Struct

Value = Union[  # noqa: UP007 - recursive, so it must be writable as a string at run time
    str, int, float, bool, None, Sequence["Value"], Mapping[str, "Value"]
]


class TemplateRecord(Struct, frozen=True):
    """Named fields in their order."""

    fields: Mapping[str, Value]
    type_name: str = "struct"  # as ``printf "%T"`` shows it


# What expressions evaluate to. A Record is never inside another value.
Operand = Value | TemplateRecord


def type_name(value: Operand) -> str:
    """Return Go's name of the value's type, as messages show it."""
    match value:
        case None:
            return "nil"
        case bool():
            return "bool"
        case str():
            return "string"
        case int():
            return "int"
        case float():
            return "float64"
        case TemplateRecord():
            return value.type_name
        case Mapping():
            return "map[string]string" if is_text_map(value) else "map[string]interface {}"
    return "[]string" if all(isinstance(item, str) for item in value) else "[]interface {}"


def is_text_map(value: Mapping[str, Value]) -> bool:
    """Whether the map is Go's ``map[string]string``, whose absent keys read as ``""``."""
    return all(isinstance(item, str) for item in value.values())


def is_true(value: Operand) -> bool:
    """Return Go's template truth: not zero, not empty, not nil; a struct always."""
    if isinstance(value, TemplateRecord):
        return True
    if isinstance(value, str | Sequence | Mapping):
        return len(value) > 0
    return bool(value)


def to_bytes(text: str) -> bytes:
    """Return the UTF-8 bytes that Go's ``len``, ``index`` and ``slice`` count."""
    return text.encode(errors="surrogateescape")


def to_text(data: bytes) -> str:
    """Return the text of bytes that may have been cut inside a character."""
    return data.decode(errors="surrogateescape")
