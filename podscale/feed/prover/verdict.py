"""What the prover may say about a plan. Pure values."""

from typing import Literal

from msgspec import Struct

from podscale.feed.plan import KeyLabels
from podscale.feed.prover.printer import printed
from podscale.feed.prover.skeleton import Skeleton
from podscale.feed.prover.tree import (
    Aggregation,
    FunctionCall,
    Node,
    VectorSelector,
    bound_selectors,
    filled,
)


class NotProvable(Exception):
    """The tree cannot be widened; the text says why, for `doctor` and logs."""


class Default(Struct, frozen=True):
    """A root ``or vector(c)``: applied to the answer of one namespace while it is read."""

    value: float
    when: Literal["no sample", "no sample with an empty label set"]


class Widened(Struct, frozen=True, eq=False):
    """Many requests of the plan may share one query."""

    tree: Node  # bound labels without matchers
    skeleton: Skeleton
    labels: KeyLabels
    bound: frozenset[str]
    carries_namespace: bool  # the request's own answer has the namespace label (p)
    default: Default | None = None
    stamped: VectorSelector | None = None  # the one selector whose sample times are the answer's

    outcome = "widen"

    @property
    def is_by_name(self) -> bool:
        """Return whether the query depends on the objects' names."""
        return bool(self.labels.object) and self.labels.object in self.bound

    def selectors(self, label: str) -> int:
        """Return how many selectors bind ``label``: so often its values stand in the text."""
        return sum(label in selector.bound for selector in bound_selectors(self.tree))

    def text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str:
        """Return the query for these namespaces; ``names`` empty: all objects (wide)."""
        return printed(filled(self.tree, self._values(namespaces, names)))

    def stamp_text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str | None:
        """Return the query for the times of the samples behind ``text``, if they can be known."""
        if self.stamped is None:
            return None
        timestamps = FunctionCall("timestamp", (self.stamped,), is_scalar=False)
        newest = Aggregation("max", "by", self.labels.key(), timestamps)
        return printed(filled(newest, self._values(namespaces, names)))

    def _values(
        self, namespaces: tuple[str, ...], names: tuple[str, ...]
    ) -> dict[str, tuple[str, ...]]:
        return {self.labels.namespace: namespaces, self.labels.object: names}


class Constant(Struct, frozen=True, eq=False):
    """No request value in the text: equal texts share one answer."""

    outcome = "text-cache"


class Single(Struct, frozen=True, eq=False):
    """Every request takes its own query."""

    reason: str

    outcome = "per-request"


Verdict = Widened | Constant | Single
