"""The functions that templates of rules can call, each as Go's text/template defines it.

``and`` and ``or`` are in ``nodes``: they do not evaluate what cannot matter.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote_plus

from msgspec import Struct

from podscale.core.goquote import quote
from podscale.core.gotemplate.errors import TemplateExecutionError
from podscale.core.gotemplate.values import Operand, is_true, kind, show

_HTML = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"'}
_JS_HIDDEN = "<>&="
_VERB = re.compile(r"%(.?)", re.DOTALL)


class Builtin(Struct, frozen=True):
    """A function and how many arguments it takes; ``most`` is None for any number."""

    call: Callable[[Sequence[Operand]], Operand]
    least: int
    most: int | None = None


def verbs(pattern: str) -> list[str]:
    """Return the verbs of a ``printf`` pattern that take a value; raises ``ValueError``."""
    found = _VERB.findall(pattern)
    for verb in found:
        if verb not in ("s", "q", "v", "d", "%"):
            raise ValueError(f"printf in rules knows %s, %q, %v, %d and %%, not %{verb}")
    return [verb for verb in found if verb != "%"]


def _index(arguments: Sequence[Operand]) -> Operand:
    item, index = arguments
    if isinstance(item, Mapping):
        if not isinstance(index, str):
            raise TemplateExecutionError(f"value has type {kind(index)}; should be string")
        return item.get(index, "")
    if not isinstance(item, Sequence) or isinstance(item, str):
        raise TemplateExecutionError(f"rules can index lists and maps, not {kind(item)}")
    at = _position(index, len(item))
    if at == len(item):
        raise TemplateExecutionError(f"index out of range: {at}")
    return item[at]


def _position(index: Operand, limit: int) -> int:
    if isinstance(index, bool) or not isinstance(index, int):
        raise TemplateExecutionError(f"cannot index slice/array with {kind(index)}")
    if not 0 <= index <= limit:
        raise TemplateExecutionError(f"index out of range: {index}")
    return index


def _slice(arguments: Sequence[Operand]) -> Operand:
    item, *bounds = arguments
    if not isinstance(item, Sequence):
        raise TemplateExecutionError(f"can't slice item of type {kind(item)}")
    whole = item.encode() if isinstance(item, str) else item  # Go counts bytes
    places = [_position(bound, len(whole)) for bound in bounds]
    start, end = [*places, *[0, len(whole)][len(places) :]]
    if start > end:
        raise TemplateExecutionError(f"invalid slice index: {start} > {end}")
    part = whole[start:end]
    try:
        return part.decode() if isinstance(part, bytes) else part
    except UnicodeDecodeError:
        raise TemplateExecutionError("slice cuts a character in two") from None


def _len(arguments: Sequence[Operand]) -> Operand:
    item = arguments[0]
    if not isinstance(item, Sequence | Mapping):
        raise TemplateExecutionError(f"len of type {kind(item)}")
    return len(item.encode()) if isinstance(item, str) else len(item)


def _print(arguments: Sequence[Operand]) -> str:
    """Return the values, a space between two neighbours of which neither is a text."""
    parts: list[str] = []
    was_text = True
    for value in arguments:
        is_text = isinstance(value, str)
        parts.append(("" if is_text or was_text else " ") + show(value))
        was_text = is_text
    return "".join(parts)


def _printf(arguments: Sequence[Operand]) -> str:
    pattern, *values = arguments
    left = iter(values)
    return _VERB.sub(
        lambda found: "%" if found[1] == "%" else _verb(found[1], next(left)), str(pattern)
    )


def _verb(verb: str, value: Operand) -> str:
    fits = {"s": ("text", "list", "map"), "q": ("text",), "d": ("int",)}
    if verb != "v" and kind(value) not in fits[verb]:
        raise TemplateExecutionError(f"printf in rules cannot write {kind(value)} as %{verb}")
    return quote(str(value)) if verb == "q" else show(value)


def _joined(arguments: Sequence[Operand]) -> str:
    return _print(["<no value>" if value is None else value for value in arguments])


def _js_escaped(character: str) -> str:
    if character in _JS:
        return _JS[character]
    if character.isprintable() and character not in _JS_HIDDEN:
        return character
    return f"\\u{ord(character):04X}"


def _equal(arguments: Sequence[Operand]) -> Operand:
    return any(_are_equal(arguments[0], other) for other in arguments[1:])


def _are_equal(one: Operand, other: Operand) -> bool:
    if one is None or other is None:
        return one is None and other is None
    if kind(one) != kind(other):
        raise TemplateExecutionError(f"cannot compare {kind(one)} and {kind(other)}")
    if not isinstance(one, str | int):
        raise TemplateExecutionError(f"cannot compare a {kind(one)}")
    return one == other


def _is_less(one: Operand, other: Operand) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one < other  # by code point, which is Go's order of UTF-8
    if kind(one) == kind(other) == "int":
        return one < other  # type: ignore[operator] # both are int
    raise TemplateExecutionError(f"cannot order {kind(one)} and {kind(other)}")


BUILTINS: Mapping[str, Builtin] = {
    "eq": Builtin(_equal, 2),
    "ge": Builtin(lambda a: not _is_less(a[0], a[1]), 2, 2),
    "gt": Builtin(lambda a: _is_less(a[1], a[0]), 2, 2),
    "html": Builtin(lambda a: _joined(a).translate(_HTML), 0),
    "index": Builtin(_index, 2, 2),
    "js": Builtin(lambda a: "".join(map(_js_escaped, _joined(a))), 0),
    "le": Builtin(lambda a: not _is_less(a[1], a[0]), 2, 2),
    "len": Builtin(_len, 1, 1),
    "lt": Builtin(lambda a: _is_less(a[0], a[1]), 2, 2),
    "ne": Builtin(lambda a: not _are_equal(a[0], a[1]), 2, 2),
    "not": Builtin(lambda a: not is_true(a[0]), 1, 1),
    "print": Builtin(_print, 0),
    "printf": Builtin(_printf, 1),
    "slice": Builtin(_slice, 1, 3),
    "urlquery": Builtin(lambda a: quote_plus(_joined(a), safe="~"), 0),
}
SHORT_CIRCUIT = frozenset({"and", "or"})
