"""Which VPAs a set of labels belongs to, found without comparing each with each.

A VPA is filed under one label that its selector demands, so a label set looks only at the
VPAs filed under its own labels; the answer is kept per label set until VPAs change.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podscale.core.selector import Selector

Labels = tuple[tuple[str, str], ...]  # sorted


class VpaKey(NamedTuple):
    """Namespace and name of a VPA."""

    namespace: str
    name: str


def canonical(labels: Mapping[str, str]) -> Labels:
    """Return labels as a key."""
    return tuple(sorted(labels.items()))


class Membership:
    """Selectors of VPAs, and label sets that were asked for."""

    def __init__(self) -> None:
        self._selectors: dict[VpaKey, Selector] = {}
        self._filed: dict[tuple[str, tuple[str, str] | None], dict[VpaKey, Selector]] = {}
        self._known: dict[tuple[str, Labels], frozenset[VpaKey]] = {}

    def put(self, key: VpaKey, selector: Selector | None) -> bool:
        """Set the selector of a VPA, None for one that matches nothing; return whether
        that changed anything.
        """
        if self._selectors.get(key) == selector:
            return False
        self.remove(key)
        if selector is not None and not selector.nothing:
            self._selectors[key] = selector
            self._filed.setdefault((key.namespace, _pivot(selector)), {})[key] = selector
            for namespace, labels in self._known:
                if namespace == key.namespace and selector.matches(dict(labels)):
                    self._known[namespace, labels] |= {key}
        return True

    def remove(self, key: VpaKey) -> None:
        """Forget a VPA."""
        selector = self._selectors.pop(key, None)
        if selector is None:
            return
        filed = self._filed[key.namespace, _pivot(selector)]
        del filed[key]
        if not filed:
            del self._filed[key.namespace, _pivot(selector)]
        for place, members in self._known.items():
            if key in members:
                self._known[place] = members - {key}

    def of(self, namespace: str, labels: Labels) -> frozenset[VpaKey]:
        """Return the VPAs whose selector matches the labels."""
        place = (namespace, labels)
        found = self._known.get(place)
        if found is None:
            mapping = dict(labels)
            found = frozenset(
                key
                for pair in (*labels, None)
                for key, selector in self._filed.get((namespace, pair), {}).items()
                if selector.matches(mapping)
            )
            self._known[place] = found
        return found

    def forget(self, unused: Iterable[tuple[str, Labels]]) -> None:
        """Drop label sets that nobody has any more: each rollout brings a new one."""
        for place in unused:
            self._known.pop(place, None)


def _pivot(selector: Selector) -> tuple[str, str] | None:
    # One pair that every match carries. The last is usually the most telling: keys are
    # sorted, and app.kubernetes.io/name comes before what tells instances apart.
    for requirement in reversed(selector.requirements):
        if requirement.operator in ("=", "==", "in") and len(requirement.values) == 1:
            return (requirement.key, requirement.values[0])
    return None
