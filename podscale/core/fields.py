"""Field selectors (``status.phase=Running,metadata.name!=x``), as ``fields.ParseSelector``."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_OPERATOR = re.compile(r"!=|==|=")
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


class FieldSelectorError(ValueError):
    """The text is not a field selector; the message is Go's."""


class FieldRequirement(Struct, frozen=True):
    """One field must be, or must not be, one value."""

    field: str
    value: str
    is_equal: bool = True


def parse(text: str) -> tuple[FieldRequirement, ...]:
    """Return the requirements that ``text`` writes, all of which must hold."""
    return tuple(_requirement(part) for part in _terms(text) if part)


def matches(requirements: Sequence[FieldRequirement], fields: Mapping[str, str]) -> bool:
    """Return whether ``fields`` meet every requirement; an absent field is empty."""
    return all(
        (fields.get(wanted.field, "") == wanted.value) == wanted.is_equal for wanted in requirements
    )


def _terms(text: str) -> list[str]:
    terms, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == ",":
            terms.append(text[start:at])
            start = at + 1
        at += 1
    return [*terms, text[start:]]


def _requirement(term: str) -> FieldRequirement:
    at = 0
    while at < len(term):
        if term[at] == "\\":
            at += 2
            continue
        if (found := _OPERATOR.match(term, at)) is not None:
            value = _unescaped(term[found.end() :])
            return FieldRequirement(term[:at], value, found[0] != "!=")
        at += 1
    raise FieldSelectorError(f"invalid selector: '{term}'; can't understand '{term}'")


def _unescaped(value: str) -> str:
    def replace(found: re.Match[str]) -> str:
        if found[1] not in ("\\", ",", "="):
            raise FieldSelectorError(f"invalid field selector: invalid escape sequence: {found[0]}")
        return found[1]

    if re.search(r"(?<!\\)[,=]", value):
        raise FieldSelectorError(f"invalid field selector: unescaped {value!r}")
    return _ESCAPED.sub(replace, value)
