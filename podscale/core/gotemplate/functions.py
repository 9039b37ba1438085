"""The functions that Go gives every template. ``and`` and ``or`` are in ``execute``:
they do not evaluate what cannot matter."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote_from_bytes

from msgspec import Struct

from podscale.core.gotemplate.errors import TemplateExecutionError
from podscale.core.gotemplate.format import sprint, sprintf, sprintln
from podscale.core.gotemplate.values import (
    Operand,
    TemplateRecord,
    Value,
    is_text_map,
    is_true,
    to_bytes,
    to_text,
    type_name,
)

_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS = {
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
    "<": "\\u003C",
    ">": "\\u003E",
    "&": "\\u0026",
    "=": "\\u003D",
}
_QUERY_SAFE = "-_.~"


class Builtin(Struct, frozen=True):
    """A function and how many arguments it takes; ``most`` is None for any number."""

    call: Callable[[Sequence[Operand]], Operand]
    least: int
    most: int | None = None


def _fail(reason: str) -> TemplateExecutionError:
    return TemplateExecutionError(reason)


def _position(index: Operand, limit: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int):
        kind = "nil" if index is None else f"type {type_name(index)}"
        raise _fail(f"cannot index slice/array with {kind}")
    if not 0 <= index <= limit:
        raise _fail(f"index out of range: {index}")
    return index


def _index(arguments: Sequence[Operand]) -> Operand:
    item = arguments[0]
    if item is None:
        raise _fail("index of untyped nil")
    for index in arguments[1:]:
        item = _indexed(item, index)
    return item


def _indexed(item: Operand, index: Operand) -> Operand:
    match item:
        case None:
            raise _fail("index of nil pointer")
        case str():
            data = to_bytes(item)
            at = _position(index, len(data))
            if at < len(data):
                return data[at]
        case Mapping():
            if not isinstance(index, str):
                raise _fail(f"value has type {type_name(index)}; should be string")
            absent = "" if is_text_map(item) else None
            return item.get(index, absent)
        case TemplateRecord() | bool() | int() | float():
            raise _fail(f"can't index item of type {type_name(item)}")
        case _:
            at = _position(index, len(item))
            if at < len(item):
                return item[at]
    raise _fail(f"index out of range: {index}")


def _slice(arguments: Sequence[Operand]) -> Operand:
    item, *bounds = arguments
    if item is None:
        raise _fail("slice of untyped nil")
    if isinstance(item, str):
        if len(bounds) == 3:
            raise _fail("cannot 3-index slice a string")
        data = to_bytes(item)
        start, end = _bounds(bounds, len(data))
        return to_text(data[start:end])
    if isinstance(item, TemplateRecord | Mapping | bool | int | float):
        raise _fail(f"can't slice item of type {type_name(item)}")
    start, end = _bounds(bounds, len(item))
    return item[start:end]


def _bounds(bounds: Sequence[Operand], length: int) -> tuple[int, int]:
    places = [_position(bound, length) for bound in bounds]
    edges = [*places, *[0, length][len(places) :]]
    for low, high in itertools.pairwise(edges):
        if low > high:
            raise _fail(f"invalid slice index: {low} > {high}")
    return edges[0], edges[1]


def _len(arguments: Sequence[Operand]) -> Operand:
    item = arguments[0]
    if isinstance(item, str):
        return len(to_bytes(item))
    if item is None or isinstance(item, TemplateRecord | bool | int | float):
        raise _fail(f"len of {'nil pointer' if item is None else f'type {type_name(item)}'}")
    return len(item)


def _printf(arguments: Sequence[Operand]) -> Operand:
    pattern, *values = arguments
    if not isinstance(pattern, str):
        raise _fail(f"wrong type for value; expected string; got {type_name(pattern)}")
    return sprintf(pattern, values)


def _joined(arguments: Sequence[Operand]) -> str:
    if len(arguments) == 1 and isinstance(arguments[0], str):
        return arguments[0]
    return sprint(["<no value>" if value is None else value for value in arguments])


def _js_escaped(character: str) -> str:
    if (known := _JS.get(character)) is not None:
        return known
    if character.isprintable():
        return character
    return f"\\u{ord(character):04X}"


def _equal(arguments: Sequence[Operand]) -> Operand:
    if len(arguments) < 2:
        raise _fail("missing argument for comparison")
    return any(_are_equal(arguments[0], other) for other in arguments[1:])


def _are_equal(one: Operand, other: Operand) -> bool:
    if one is None or other is None:
        return one is None and other is None
    kinds = {_kind(one), _kind(other)}
    if len(kinds) > 1:
        raise _fail(f"incompatible types for comparison: {type_name(one)} and {type_name(other)}")
    if kinds <= {"map", "list", "struct"}:
        raise _fail(f"non-comparable type {type_name(other)}")
    return one == other


def _kind(value: Operand) -> str:
    match value:
        case TemplateRecord():
            return "struct"
        case Mapping():
            return "map"
        case str() | bool() | int() | float():
            return type(value).__name__
    return "list"


def _is_less(one: Operand, other: Operand) -> bool:
    for value in (one, other):
        if value is None or isinstance(value, TemplateRecord | Mapping) or _kind(value) == "list":
            raise _fail("invalid type for comparison")
    if _kind(one) != _kind(other):
        raise _fail(f"incompatible types for comparison: {type_name(one)} and {type_name(other)}")
    if isinstance(one, bool):
        raise _fail("invalid type for comparison")
    if isinstance(one, str) and isinstance(other, str):
        return to_bytes(one) < to_bytes(other)
    return one < other  # type: ignore[operator] # both int or both float


def _call(arguments: Sequence[Operand]) -> Operand:
    shown = type_name(arguments[0])
    raise _fail(f"error calling call: non-function of type {shown}")


BUILTINS: Mapping[str, Builtin] = {
    "call": Builtin(_call, 1),
    "eq": Builtin(_equal, 1),
    "ge": Builtin(lambda a: not _is_less(a[0], a[1]), 2, 2),
    "gt": Builtin(lambda a: not (_is_less(a[0], a[1]) or _are_equal(a[0], a[1])), 2, 2),
    "html": Builtin(lambda a: _joined(a).translate(_HTML), 0),
    "index": Builtin(_index, 1),
    "js": Builtin(lambda a: "".join(map(_js_escaped, _joined(a))), 0),
    "le": Builtin(lambda a: _is_less(a[0], a[1]) or _are_equal(a[0], a[1]), 2, 2),
    "len": Builtin(_len, 1, 1),
    "lt": Builtin(lambda a: _is_less(a[0], a[1]), 2, 2),
    "ne": Builtin(lambda a: not _are_equal(a[0], a[1]), 2, 2),
    "not": Builtin(lambda a: not is_true(a[0]), 1, 1),
    "print": Builtin(sprint, 0),
    "printf": Builtin(_printf, 1),
    "println": Builtin(sprintln, 0),
    "slice": Builtin(_slice, 1, 4),
    "urlquery": Builtin(
        lambda a: quote_from_bytes(to_bytes(_joined(a)), _QUERY_SAFE + " ").replace(" ", "+"), 0
    ),
}
SHORT_CIRCUIT = frozenset({"and", "or"})


def field_of(value: Operand, name: str) -> Value:
    """Return the field or entry ``name``; absent entries of maps are None, "no value"."""
    match value:
        case None:
            return None
        case TemplateRecord():
            if name not in value.fields:
                raise _fail(f"can't evaluate field {name} in type struct")
            return value.fields[name]
        case Mapping():
            return value.get(name)
    raise _fail(f"can't evaluate field {name} in type {type_name(value)}")
