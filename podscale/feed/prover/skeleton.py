"""A plan's text with holes: where a request's values stand verbatim.

The template is rendered once with opaque marks. A request whose own text differs from the
filled skeleton (a branch, a cut or a formatted value) is not covered by the proof and takes
its own query; so ``if``, ``range``, ``printf`` need no analysis. Pure but for the marks.
"""

import re
import secrets
from collections.abc import Sequence

from msgspec import Struct

from podscale.feed.plan import QueryPlan

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
