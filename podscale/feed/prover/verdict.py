"""What the prover may say about a plan, and its text with holes where a request's values stand.

The template is rendered once with opaque marks. A request whose own text differs from the filled
skeleton (a branch, a cut or a formatted value) is not covered by the proof and takes its own query;
so ``if``, ``range``, ``printf`` need no analysis. Pure but for the marks.
"""

import re
import secrets
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover import tree as promql
from podscale.feed.prover.printer import printed

# A name of these characters always matches itself in an unescaped alternation.
NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
NAME = re.compile(r"[A-Za-z0-9_.:-]+")

_MARK_MATCHERS, _MARK_NAMESPACE, _MARK_NAMES = (f"mark{secrets.token_hex(8)}" for _ in range(3))
_SPLIT = re.compile(f"({_MARK_MATCHERS}|{_MARK_NAMESPACE}|{_MARK_NAMES})")


class Skeleton(Struct, frozen=True, eq=False):
    """Static text at even places, marks at odd ones."""

    plan: QueryPlan
    pieces: tuple[str, ...]

    @property
    def is_constant(self) -> bool:
        """Return whether no request value is printed."""
        return len(self.pieces) == 1 or not self.plan.labels.key()

    def fill(self, namespace: str, names: Sequence[str]) -> str:
        """Return the text with a request's values in the holes."""
        values = {
            _MARK_MATCHERS: self.plan.label_matchers(namespace, names),
            _MARK_NAMESPACE: namespace,
            _MARK_NAMES: "|".join(names),
        }
        return "".join(
            values[piece] if place % 2 else piece for place, piece in enumerate(self.pieces)
        )

    def covers(self, namespace: str, names: Sequence[str]) -> bool:
        """Return whether the proof holds for this request. Raises ValueError where the
        template cannot be executed.
        """
        labels = self.plan.labels
        if labels.namespace and not NAMESPACE.fullmatch(namespace):
            return False
        if labels.object and not (names and all(map(NAME.fullmatch, names))):
            return False
        return self.plan.rendered(namespace, names) == self.fill(namespace, names)


def skeleton(plan: QueryPlan) -> Skeleton:
    """Return the plan's skeleton; raises ValueError where the template cannot be executed."""
    values = {}
    if plan.labels.namespace:
        values[plan.labels.namespace] = _MARK_NAMESPACE
    if plan.labels.object:
        values[plan.labels.object] = _MARK_NAMES
    return Skeleton(plan, tuple(_SPLIT.split(plan.render(_MARK_MATCHERS, values))))


class NotProvable(Exception):
    """The tree cannot be widened; the text says why, for `doctor` and logs."""


class Default(Struct, frozen=True):
    """A root ``or vector(c)``: applied to the answer of one namespace while it is read."""

    value: float
    when: Literal["no sample", "no sample with an empty label set"]


class Widened(Struct, frozen=True, eq=False):
    """Many requests of the plan may share one query."""

    tree: promql.Node  # bound labels without matchers
    skeleton: Skeleton
    labels: KeyLabels
    bound: frozenset[str]
    carries_namespace: bool  # the request's own answer has the namespace label (p)
    default: Default | None = None
    stamped: promql.VectorSelector | None = None  # whose samples' times are the answer's

    @property
    def is_by_name(self) -> bool:
        """Return whether the query depends on the objects' names."""
        return bool(self.labels.object) and self.labels.object in self.bound

    def selectors(self, label: str) -> int:
        """Return how many selectors bind ``label``: so often its values stand in the text."""
        return sum(label in selector.bound for selector in promql.bound_selectors(self.tree))

    def text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str:
        """Return the query for these namespaces; ``names`` empty: all objects (wide)."""
        return printed(promql.filled(self.tree, self._values(namespaces, names)))

    def stamp_text(self, namespaces: tuple[str, ...], names: tuple[str, ...] = ()) -> str | None:
        """Return the query for the times of the samples behind ``text``, if they can be known."""
        if self.stamped is None:
            return None
        timestamps = promql.FunctionCall("timestamp", (self.stamped,), is_scalar=False)
        newest = promql.Aggregation("max", "by", self.labels.key(), timestamps)
        return printed(promql.filled(newest, self._values(namespaces, names)))

    def _values(
        self, namespaces: tuple[str, ...], names: tuple[str, ...]
    ) -> dict[str, tuple[str, ...]]:
        return {self.labels.namespace: namespaces, self.labels.object: names}


class Constant(Struct, frozen=True, eq=False):
    """No request value in the text: equal texts share one answer."""


class Single(Struct, frozen=True, eq=False):
    """Every request takes its own query."""

    reason: str


Verdict = Widened | Constant | Single
