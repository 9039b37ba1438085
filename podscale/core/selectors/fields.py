"""Field selectors (``status.phase=Running,metadata.name!=x``), as ``fields.ParseSelector``."""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

_OPERATOR = re.compile(r"!=|==|=")
_SPECIAL = frozenset("\\,=")  # in a value only behind a backslash


class FieldSelectorError(ValueError):
    """The text is not a field selector; the message is Go's."""


class FieldRequirement(Struct, frozen=True):
    """One field must be, or must not be, one value."""

    field: str
    value: str
    is_equal: bool = True


def parse(text: str) -> tuple[FieldRequirement, ...]:
    """Return the requirements that ``text`` writes, all of which must hold, in Go's order."""
    # Go sorts the terms: of two that are wrong, or that name one field, the first counts.
    return tuple(_requirement(text, term) for term in sorted(_terms(text)) if term)


def matches(requirements: Sequence[FieldRequirement], fields: Mapping[str, str]) -> bool:
    """Return whether ``fields`` meet every requirement; an absent field is empty."""
    return all(
        (fields.get(wanted.field, "") == wanted.value) == wanted.is_equal for wanted in requirements
    )


def exact_match(requirements: Sequence[FieldRequirement], field: str) -> str | None:
    """Return the value that ``field`` must have; None where no requirement names one."""
    return next(
        (each.value for each in requirements if each.field == field and each.is_equal), None
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


def _requirement(text: str, term: str) -> FieldRequirement:
    found = _OPERATOR.search(term)
    if found is None:
        raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
    value = _unescaped(term[found.end() :])
    return FieldRequirement(term[: found.start()], value, found[0] != "!=")


def _unescaped(value: str) -> str:
    if _SPECIAL.isdisjoint(value):
        return value
    found: list[str] = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in _SPECIAL:
                text = f"invalid field selector: invalid escape sequence: \\{escaped}"
                raise FieldSelectorError(text)
            found.append(escaped)
        elif character in _SPECIAL:
            # Go prints the number of the character.
            text = f"invalid field selector: unescaped character in value: {ord(character)}"
            raise FieldSelectorError(text)
        else:
            found.append(character)
    return "".join(found)
