"""Which other HPAs select a pod of ours: an index over selectors, per namespace.

Follows ``hpa_selector_store.go``, Kubernetes 1.37 (PR 139142): an HPA is registered with a
selector that matches nothing until its first pass, and a pass that ends after its HPA was
deleted registers nothing. Each selector lies under one of the label values it requires, so
that the check looks at few of them. Pure.
"""

from collections.abc import Iterable, Mapping
from itertools import count

from podscale.core.selectors.selector import NOTHING, Selector
from podscale.core.value_index import ValueIndex

_Pair = tuple[str, str]
_ANY: _Pair = ("", "")  # selectors that require no particular value


class OverlappingHpas:
    """The selectors of all HPAs known."""

    def __init__(self) -> None:
        self._selectors: dict[str, dict[str, Selector]] = {}  # by namespace and name
        self._under: ValueIndex[tuple[str, _Pair], str] = ValueIndex()
        self._versions: dict[str, int] = {}
        # One for all: a namespace that went and came back shows no version that it had before.
        self._numbers = count(1)

    def add(self, namespace: str, name: str, selector: Selector = NOTHING) -> bool:
        """Register an HPA; False where it is registered already."""
        known = self._selectors.setdefault(namespace, {})
        if name in known:
            return False
        known[name] = selector
        self._versions[namespace] = next(self._numbers)
        for pair in _pairs(selector):
            self._under.add((namespace, pair), name)
        return True

    def change(self, namespace: str, name: str, selector: Selector) -> bool:
        """Change the selector of a registered HPA; False where it has gone."""
        known = self._selectors.get(namespace, {}).get(name)
        if known is None:
            return False
        if known != selector:
            self.drop(namespace, name)
            self.add(namespace, name, selector)
        return True

    def drop(self, namespace: str, name: str) -> bool:
        """Forget an HPA; False where it is not registered."""
        known = self._selectors.get(namespace, {})
        selector = known.pop(name, None)
        if selector is None:
            return False
        for pair in _pairs(selector):
            self._under.discard((namespace, pair), name)
        if known:
            self._versions[namespace] = next(self._numbers)
        else:
            del self._selectors[namespace], self._versions[namespace]
        return True

    def version(self, namespace: str) -> int:
        """Return a number that changes whenever ``of`` may answer differently; 0: no HPA."""
        return self._versions.get(namespace, 0)

    def of(self, namespace: str, name: str, labels: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
        """Return the others that select one of these label sets, sorted by name."""
        known = self._selectors.get(namespace, {})
        found = {
            other
            for each in labels
            for pair in (_ANY, *each.items())
            for other in self._under.get((namespace, pair))
            if known[other].matches(each)
        }
        return tuple(sorted(found - {name}))


def _pairs(selector: Selector) -> tuple[_Pair, ...]:
    if selector.nothing:
        return ()
    for requirement in selector.requirements:
        if requirement.operator in ("=", "==", "in"):
            return tuple((requirement.key, value) for value in dict.fromkeys(requirement.values))
    return (_ANY,)
