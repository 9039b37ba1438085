"""Label selectors. (Contract first; the body follows.)"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

Operator = Literal["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]


class SelectorError(ValueError):
    """The text is not a label selector; the message is Go's where one is on the wire."""


class Requirement(Struct, frozen=True):
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()  # sorted for in and notin


class Selector(Struct, frozen=True):
    """A conjunction of requirements sorted by key; ``nothing`` matches no object."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether every requirement holds."""
        raise NotImplementedError

    def __str__(self) -> str:
        """Return the canonical text, as Go's ``labels.Selector.String``."""
        raise NotImplementedError


def parse(text: str) -> Selector:
    """Return the selector that ``text`` writes (``labels.Parse``); raises ``SelectorError``."""
    raise NotImplementedError


def from_wire(label_selector: Mapping[str, object] | None) -> Selector:
    """Return the selector of a LabelSelector object; ``None`` is nothing, ``{}`` everything."""
    raise NotImplementedError


def to_wire(selector: Selector) -> dict[str, object] | None:
    """Return the LabelSelector object echoed for a metric selector; ``None`` for an empty one."""
    raise NotImplementedError
