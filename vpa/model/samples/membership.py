"""Which VPAs a set of labels belongs to, found without comparing each with each.

A VPA is filed under one label that its selector demands, so a label set looks only at the
VPAs filed under its own labels, and a new VPA at the label sets that carry its one; the
answer is kept per label set until VPAs change.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from podscale.core.selectors.selector import Selector

Pair = tuple[str, str]
Labels = tuple[Pair, ...]  # sorted
_FEW = 64  # label sets that are looked through faster than indexed


class VpaKey(NamedTuple):
    namespace: str
    name: str


def canonical(labels: Mapping[str, str]) -> Labels:
    """Return labels as a key."""
    return tuple(sorted(labels.items()))


class Membership:
    """Selectors of VPAs, and the label sets that containers were seen with."""

    def __init__(self) -> None:
        self._selectors: dict[VpaKey, Selector] = {}
        self._filed: dict[tuple[str, Pair | None], dict[VpaKey, Selector]] = {}
        self._known: dict[str, dict[Labels, frozenset[VpaKey]]] = {}  # by namespace
        self._index = _Index("", {})

    def put(self, key: VpaKey, selector: Selector) -> list[Labels] | None:
        """Set the selector of a VPA; return the known label sets that it matches, None
        where the selector is what it was.
        """
        if self._selectors.get(key) == selector:
            return None
        self.remove(key)
        if selector.nothing:
            return []
        self._selectors[key] = selector
        pivot = _pivot(selector)
        self._filed.setdefault((key.namespace, pivot), {})[key] = selector
        carrying = self._carrying(key.namespace, pivot)
        matched = [labels for labels in carrying if selector.matches(dict(labels))]
        for labels in matched:
            self._known[key.namespace][labels] |= {key}
        return matched

    def remove(self, key: VpaKey) -> None:
        selector = self._selectors.pop(key, None)
        if selector is None:
            return
        pivot = _pivot(selector)
        filed = self._filed[key.namespace, pivot]
        del filed[key]
        if not filed:
            del self._filed[key.namespace, pivot]
        known = self._known.get(key.namespace, {})
        for labels in self._carrying(key.namespace, pivot):
            if key in known[labels]:
                known[labels] -= {key}

    def of(self, namespace: str, labels: Labels) -> frozenset[VpaKey]:
        """Return the VPAs whose selector matches the labels, which are known from now on."""
        known = self._known.setdefault(namespace, {})
        found = known.get(labels)
        if found is None:
            found = known[labels] = self.asked(namespace, labels)
            self._index.add(namespace, labels)
        return found

    def asked(self, namespace: str, labels: Labels) -> frozenset[VpaKey]:
        """Return the same, and remember nothing: for pods that may never matter."""
        mapping = dict(labels)
        return frozenset(
            key
            for pair in (*labels, None)
            for key, selector in self._filed.get((namespace, pair), {}).items()
            if selector.matches(mapping)
        )

    def matching(self, key: VpaKey) -> list[Labels]:
        """Return the known label sets that match the selector of one VPA."""
        selector = self._selectors.get(key)
        if selector is None:
            return []
        known = self._known.get(key.namespace, {})
        carrying = self._carrying(key.namespace, _pivot(selector))
        return [labels for labels in carrying if key in known[labels]]

    def forget(self, namespace: str, labels: Labels) -> None:
        """Drop a label set that nobody has any more: each rollout brings a new one."""
        known = self._known.get(namespace, {})
        known.pop(labels, None)
        if not known:
            self._known.pop(namespace, None)
        self._index = _Index("", {})

    def _carrying(self, namespace: str, pivot: Pair | None) -> Sequence[Labels]:
        # The known label sets that carry the pair. VPAs come by the thousand, all with a
        # pair of their own: looking through all label sets for each would take minutes. One
        # namespace is indexed at a time, and a small one not at all.
        known = self._known.get(namespace, {})
        if pivot is None:
            return list(known)
        if self._index.namespace == namespace:
            return self._index.carrying.get(pivot, ())
        if len(known) < _FEW:
            return [labels for labels in known if pivot in labels]
        self._index = _Index(namespace, {})
        for labels in known:
            self._index.add(namespace, labels)
        return self._index.carrying.get(pivot, ())


class _Index(Struct):
    # The label sets of one namespace by each pair that they carry.
    namespace: str
    carrying: dict[Pair, list[Labels]]

    def add(self, namespace: str, labels: Labels) -> None:
        if namespace == self.namespace:
            for pair in labels:
                self.carrying.setdefault(pair, []).append(labels)


def _pivot(selector: Selector) -> Pair | None:
    # One pair that every match carries. The last is usually the most telling: keys are
    # sorted, and app.kubernetes.io/name comes before what tells instances apart.
    for requirement in reversed(selector.requirements):
        if requirement.operator in ("=", "==", "in") and len(requirement.values) == 1:
            return (requirement.key, requirement.values[0])
    return None
