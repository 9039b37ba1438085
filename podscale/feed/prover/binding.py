"""Takes the matchers that a request injects out of a tree (coalescing.md 1.3).

Random sentinels stand for the request's values. A sentinel anywhere but as the whole value
of a matcher on its own label cannot be widened. Pure.
"""

import secrets

from msgspec import Struct
from msgspec.structs import replace

from podscale.feed.plan import KeyLabels
from podscale.feed.prover.tree import (
    Aggregation,
    Binary,
    Matcher,
    Node,
    Text,
    VectorSelector,
    with_children,
)
from podscale.feed.prover.verdict import NotProvable


class Sentinels(Struct, frozen=True):
    """Values that no rule contains: one namespace and two names."""

    namespace: str
    names: tuple[str, str]

    def stand_in(self, text: str) -> bool:
        return any(value in text for value in (self.namespace, *self.names))


def sentinels() -> Sentinels:
    first, second, third = (f"s{secrets.token_hex(8)}" for _ in range(3))
    return Sentinels(first, (second, third))


def bind(node: Node, labels: KeyLabels, values: Sentinels) -> Node:
    """Return the tree with injected matchers removed and noted in ``VectorSelector.bound``.

    Raises ``NotProvable``.
    """
    match node:
        case VectorSelector():
            return _selector(node, labels, values)
        case Aggregation():
            _refuse(node.labels, values)
        case Binary():
            _refuse((*node.labels, *node.included), values)
        case Text(value):
            _refuse((value,), values)
    return with_children(node, lambda child: bind(child, labels, values))


def _selector(node: VectorSelector, labels: KeyLabels, values: Sentinels) -> VectorSelector:
    kept = [m for m in node.matchers if _injected(m, labels, values) is None]
    bound = {_injected(m, labels, values) for m in node.matchers} - {None}
    _refuse(
        (node.name or "", *(text for m in kept for text in (m.label, m.value))),
        values,
    )
    if bound and not _is_named(node, kept):
        raise NotProvable("selector without metric name")
    # Namespace first, whatever the order in the text: equal plans print equal texts.
    order = tuple(label for label in labels.key() if label in bound)
    return replace(node, matchers=tuple(kept), bound=order)


def _injected(matcher: Matcher, labels: KeyLabels, values: Sentinels) -> str | None:
    if (
        labels.namespace
        and matcher.label == labels.namespace
        and matcher.op in ("=", "=~")
        and matcher.value == values.namespace
    ):
        return labels.namespace
    if (
        labels.object
        and matcher.label == labels.object
        and matcher.op == "=~"
        and matcher.value == "|".join(values.names)
    ):
        return labels.object
    return None


def _is_named(node: VectorSelector, matchers: list[Matcher]) -> bool:
    return bool(node.name) or any(m.label == "__name__" and m.op in ("=", "=~") for m in matchers)


def _refuse(texts: tuple[str, ...], values: Sentinels) -> None:
    if any(map(values.stand_in, texts)):
        raise NotProvable("request value inside another matcher or operator")
