"""What an explanation is: reasons, the one to name first in front, and the facts behind.

Reasons are tokens of a closed set, which conditions, metrics and tests share. The products give
their tokens, and the words for each. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

Fact: TypeAlias = "str | int | float | bool | Sequence[Fact] | Mapping[str, Fact] | None"
Facts: TypeAlias = Mapping[str, Fact]


class Words(Struct, frozen=True):
    """A reason in words: what it means and what would have to change."""

    means: str
    change: str


class Explanation(Struct, frozen=True):
    """Why one thing is as it is."""

    reasons: tuple[str, ...]  # the first one is named first, none twice
    facts: Facts
    decision: Facts  # what came of it, under the names of the API; what is not known is absent
    sentences: tuple[str, ...]
    why: str  # the sentence that belongs to the first reason
    change: str  # what would have to change for another outcome

    @property
    def first_reason(self) -> str:
        return self.reasons[0] if self.reasons else ""

    @property
    def also(self) -> tuple[str, ...]:
        """Return the reasons that took part beside the first."""
        return self.reasons[1:]

    def to_json(self) -> dict[str, Any]:
        """Return the fields that the decisions of every API have."""
        return {
            "first_reason": self.first_reason,
            "also": list(self.also),
            "facts": dict(self.facts),
            "change": self.change,
        }


def one_sentence(texts: Iterable[str]) -> str:
    """Return sentences as one. What was done about a size follows from what comes before it."""
    first, *others = [text.removesuffix(".") for text in texts]
    for text in others:
        joint = ", so " if text.startswith("The size") else "; "
        first += joint + (text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}")
    return f"{first}."


def merged(
    every: Iterable[Facts], names: Sequence[str] = (), of_name: frozenset[str] = frozenset()
) -> dict[str, Fact]:
    """Return the facts under their names; where two have one name, the earlier one's stands.

    Facts in ``of_name`` are said of the thing that ``names`` say: those of another thing than the
    earliest one are left out.
    """
    found: dict[str, Fact] = {}
    for facts in every:
        is_other = any(name in found and facts.get(name, found[name]) != found[name]
                       for name in names)  # fmt: skip
        for name, fact in facts.items():
            if not (is_other and name in of_name):
                found.setdefault(name, fact)
    return found
