"""Label selectors: the text form, the object form, and matching.

Grammar and messages follow ``labels.Parse``, the object form ``LabelSelectorAsSelector``
and ``ParseToLabelSelector`` of apimachinery.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from sys import getsizeof
from typing import Literal

from msgspec import Struct

from podscale.core.boundedcache import BoundedCache
from podscale.core.goquote import quote
from podscale.core.selectors.labels import key_problems, value_problems

Operator = Literal["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]

_BINARY: dict[str, Operator] = {
    "in": "in",
    "notin": "notin",
    "=": "=",
    "==": "==",
    "!=": "!=",
    ">": "gt",
    "<": "lt",
}
_WIRE: dict[str, Operator] = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
}
# `!=` has no operator of its own in the object form; NotIn of one value means the same.
# Upstream's echo fails there.
_TO_WIRE = {**{operator: name for name, operator in _WIRE.items()}, "!=": "NotIn"}
_SYMBOL = {"gt": ">", "lt": "<"}

# NUL ends upstream's lexer in the middle of white space and is skipped after a token.
_WORD = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>])|([^ \t\r\n=!(),<>\0]+))\0?")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class SelectorError(ValueError):
    """The text is not a label selector; the message is Go's where one is on the wire."""


class Requirement(Struct, frozen=True, gc=False):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()  # sorted for in and notin

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` meet the condition; absent keys meet ``!=`` and ``notin``."""
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value is not None and value in self.values
            case "!=" | "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        number, limit = _int64(value or ""), _int64(self.values[0])
        if number is None or limit is None:
            return False
        return number > limit if self.operator == "gt" else number < limit

    def __str__(self) -> str:
        """Return the canonical text of this requirement."""
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({','.join(self.values)})"
        return f"{self.key}{_SYMBOL.get(self.operator, self.operator)}{self.values[0]}"


class Selector(Struct, frozen=True, gc=False):
    """A conjunction of requirements sorted by key; ``nothing`` matches no object."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether every requirement holds."""
        if self.nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def is_everything(self) -> bool:
        """Whether every object matches because nothing is required."""
        return not self.nothing and not self.requirements

    def __str__(self) -> str:
        """Return the canonical text, as Go's ``labels.Selector.String``."""
        return ",".join(map(str, self.requirements))


EVERYTHING = Selector()
NOTHING = Selector(nothing=True)


def parse(text: str) -> Selector:
    """Return the selector that ``text`` writes (``labels.Parse``); raises ``SelectorError``."""
    found = _known.get(text)
    if found is None:
        found = _selector(_Parser(text).requirements())
        values = sum(len(requirement.values) for requirement in found.requirements)
        _known.put(text, found, 2 * getsizeof(text) + 64 * values + 250 * len(found.requirements))
    return found


_known: BoundedCache[str, Selector] = BoundedCache(4 * 1024 * 1024)


def from_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a plain label map, unchecked (``SelectorFromSet``)."""
    return _selector([Requirement(key, "=", (value,)) for key, value in labels.items()])


def from_wire(label_selector: Mapping[str, object] | None) -> Selector:
    """Return the selector of a LabelSelector object; ``None`` is nothing, ``{}`` everything."""
    if label_selector is None:
        return NOTHING
    labels = label_selector.get("matchLabels") or {}
    expressions = label_selector.get("matchExpressions") or ()
    if not isinstance(labels, Mapping) or not isinstance(expressions, Sequence):
        raise SelectorError("matchLabels must be an object and matchExpressions a list")
    requirements = [_checked(key, "=", (value,), "key") for key, value in labels.items()]
    requirements += [_from_expression(expression) for expression in expressions]
    return _selector(requirements)


def to_wire(selector: Selector) -> dict[str, object] | None:
    """Return the LabelSelector object echoed for a metric selector; ``None`` for an empty one.

    ``!=`` becomes NotIn; of several ``=`` on one key the last stays. ``gt`` and ``lt``
    raise ``SelectorError``: the object form has no word for them.
    """
    labels: dict[str, str] = {}
    expressions: list[dict[str, object]] = []
    for requirement in selector.requirements:
        if requirement.operator in ("=", "=="):
            labels[requirement.key] = requirement.values[0]
        elif requirement.operator in ("gt", "lt"):
            raise SelectorError(f'"{requirement.operator}" isn\'t supported in label selectors')
        else:
            expression: dict[str, object] = {
                "key": requirement.key,
                "operator": _TO_WIRE[requirement.operator],
            }
            if requirement.values:
                expression["values"] = list(requirement.values)
            expressions.append(expression)
    wire: dict[str, object] = {}
    if labels:
        wire["matchLabels"] = labels
    if expressions:
        wire["matchExpressions"] = expressions
    return wire or None


class _Parser:
    """Recursive descent over the tokens; every message is upstream's."""

    def __init__(self, text: str) -> None:
        self._words = [*_words(text), ""]  # the end is the empty word
        self._at = 0

    def requirements(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self._peek()) != "":
            if word != "!" and not _is_identifier(word):
                raise SelectorError(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if (separator := self._next()) == "":
                break
            if separator != ",":
                raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
            following = self._peek()
            if following != "!" and not _is_identifier(following):
                raise SelectorError(f"found '{following}', expected: identifier after ','")
        return found

    def _requirement(self) -> Requirement:
        negated = self._peek() == "!"
        if negated:
            self._next()
        key = self._next()
        if not _is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if problems := key_problems(key):
            raise SelectorError(_invalid("<nil>", key, problems))
        if negated:
            return Requirement(key, "!")
        if self._peek() in ("", ","):
            return Requirement(key, "exists")
        operator = _BINARY.get(word := self._next())
        if operator is None:
            raise SelectorError(f"found '{word}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else (self._exact_value(),)
        return _checked(key, operator, values, "<nil>")

    def _exact_value(self) -> str:
        if self._peek() in ("", ","):
            return ""
        value = self._next()
        if not _is_identifier(value):
            raise SelectorError(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> tuple[str, ...]:
        if (opening := self._next()) != "(":
            raise SelectorError(f"found '{opening}' expected: '('")
        first = self._peek()
        if first != ")" and first != "," and not _is_identifier(first):
            raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while (word := self._next()) != ")":
            if _is_identifier(word):
                values.add(word)
                if self._peek() not in (",", ")"):
                    raise SelectorError(f"found '{self._peek()}', expected: ',' or ')'")
            elif word == ",":
                # An empty value stands before a leading comma, after a trailing one and
                # between two; the set takes care of repetition.
                if not values or self._peek() in (",", ")"):
                    values.add("")
            else:
                raise SelectorError(f"found '{word}', expected: ',', or identifier")
        return tuple(sorted(values)) or ("",)

    def _peek(self) -> str:
        return self._words[self._at]

    def _next(self) -> str:
        word = self._words[self._at]
        self._at = min(self._at + 1, len(self._words) - 1)
        return word


def _words(text: str) -> Iterator[str]:
    at = 0
    while (found := _WORD.match(text, at)) is not None:
        yield found[1] or found[2]
        at = found.end()


def _is_identifier(word: str) -> bool:
    return word != "" and word[0] not in "=!(),<>"


def _selector(requirements: Sequence[Requirement]) -> Selector:
    return Selector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def _from_expression(expression: object) -> Requirement:
    if not isinstance(expression, Mapping):
        raise SelectorError("every item of matchExpressions must be an object")
    name = str(expression.get("operator", ""))
    operator = _WIRE.get(name)
    if operator is None:
        raise SelectorError(f"{quote(name)} is not a valid label selector operator")
    values = tuple(sorted(expression.get("values") or ()))
    return _checked(str(expression.get("key", "")), operator, values, "key")


def _checked(key: str, operator: Operator, values: tuple[str, ...], key_path: str) -> Requirement:
    """Return the requirement, or raise everything that ``labels.NewRequirement`` finds wrong."""
    wrong = [_invalid(key_path, key, problems)] if (problems := key_problems(key)) else []
    if operator in ("in", "notin") and not values:
        wrong.append(
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
        )
    if operator in ("exists", "!") and values:
        shown = "[" + ",".join(map(quote, values)) + "]"
        wrong.append(
            f"values: Invalid value: {shown}: values set must be empty for exists and "
            "does not exist"
        )
    if operator in ("gt", "lt") and _int64(values[0]) is None:
        reason = "for 'Gt', 'Lt' operators, the value must be an integer"
        wrong.append(_invalid("values[0]", values[0], [reason]))
    for index, value in enumerate(values):
        if problems := value_problems(value):
            wrong.append(_invalid(f"values[{index}][{key}]", value, problems))
    if wrong:
        raise SelectorError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    return Requirement(key, operator, values)


def _invalid(path: str, value: str, problems: Sequence[str]) -> str:
    return f"{path}: Invalid value: {quote(value)}: {'; '.join(problems)}"


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text) if len(text) < 64 else 2**63
    return number if -(2**63) <= number < 2**63 else None
