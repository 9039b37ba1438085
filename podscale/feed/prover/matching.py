"""When a match between two vectors may be widened (coalescing.md 1.5).

A label is *matched* if it is in ``on``, or not in ``ignoring``. Pure: only labels, no trees.
"""

from msgspec import Struct

from podscale.feed.plan import KeyLabels
from podscale.feed.prover.tree import SET_OPS, Binary
from podscale.feed.prover.verdict import NotProvable


class MatcherFacts(Struct, frozen=True):
    """What is known of one node's value."""

    bound: frozenset[str]  # B: key labels its series were selected by
    carries: bool  # p: the request's own output has the namespace label


class Matched(Struct, frozen=True):
    """The widened clause and what is known of the result."""

    labels: tuple[str, ...]
    facts: MatcherFacts


def match(node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels) -> Matched:
    """Return how the match widens; raises ``NotProvable``."""
    bound = left.bound | right.bound
    widened = _clause(node, left, right, key)
    _key_labels(node, left, right, key)
    if node.op in SET_OPS:
        _set_operator(node, left, right, key)
    elif node.group:
        _many_to_one(node, left, right, key)
    elif not all(_matched(node, widened, label) for label in bound):
        raise NotProvable("one-to-one match drops a key label")
    return Matched(
        widened,
        MatcherFacts(
            left.bound if node.op == "unless" else bound, _carries(node, left, right, key)
        ),
    )


def _matched(node: Binary, labels: tuple[str, ...], label: str) -> bool:
    return (label in labels) == (node.clause == "on")


def _clause(
    node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels
) -> tuple[str, ...]:
    """Return the clause's labels with the namespace matched if both sides bind it."""
    namespace = key.namespace
    if namespace not in left.bound & right.bound:
        return node.labels
    if _matched(node, node.labels, namespace):
        # The clause stays, so the originals must agree on whether there is such a label.
        if left.carries != right.carries:
            raise NotProvable("namespace label in only one original operand")
        return node.labels
    if node.clause == "on":
        return (namespace, *node.labels)
    return tuple(label for label in node.labels if label != namespace)


def _key_labels(node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels) -> None:
    both, one = left.bound & right.bound, left.bound ^ right.bound
    if key.object in both and not _matched(node, node.labels, key.object):
        raise NotProvable("objects are matched across each other (object label not in matching)")
    if key.namespace in one and _matched(node, node.labels, key.namespace):
        binding = left if key.namespace in left.bound else right
        if not binding.carries:
            raise NotProvable("namespace label matched against an operand that is not bound")


def _set_operator(node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels) -> None:
    if node.op == "and":
        if not all(_matched(node, node.labels, label) for label in right.bound - left.bound):
            raise NotProvable("and: a label bound only on the right is not matched")
    elif node.op == "unless":
        if not right.bound <= left.bound:
            raise NotProvable("unless: left side is not bound")
    elif left.bound != right.bound:
        raise NotProvable("or: the operands are bound to different labels")
    elif key.namespace in left.bound and left.carries != right.carries:
        raise NotProvable("namespace label in only one original operand")


def _many_to_one(node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels) -> None:
    many, one = (left, right) if node.group == "left" else (right, left)
    if many.bound & set(node.included):
        raise NotProvable("group modifier overwrites a key label")
    for label in one.bound - many.bound:
        is_included = label in node.included
        if not is_included and not _matched(node, node.labels, label):
            raise NotProvable("a key label bound only on the one side is lost")
        if is_included and label == key.namespace and not one.carries:
            raise NotProvable("group modifier reads a namespace label that is not in the original")


def _carries(node: Binary, left: MatcherFacts, right: MatcherFacts, key: KeyLabels) -> bool:
    base, other = (right, left) if node.group == "right" else (left, right)
    if key.namespace in other.bound and key.namespace not in base.bound:
        return node.op != "unless"
    if node.op in SET_OPS or node.group:
        return base.carries
    return base.carries and _matched(node, node.labels, key.namespace)
