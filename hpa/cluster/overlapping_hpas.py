"""Which other HPAs select a pod of ours: an index over selectors, per namespace.

Follows ``hpa_selector_store.go``, Kubernetes 1.37 (PR 139142): an HPA is registered with a
selector that matches nothing until its first pass, and a pass that ends after its HPA was
deleted registers nothing. Each selector lies under one of the label values it requires, so
that the check looks at few of them. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from podscale.core.selectors.selector import NOTHING, Selector

_Pair = tuple[str, str]
_ANY: _Pair = ("", "")  # selectors that require no particular value


class OverlappingHpas:
    """The selectors of all HPAs known."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}  # of namespaces that have an HPA
        # One for all: a namespace that went and came back shows no version that it had before.
        self._versions = count(1)

    def add(self, namespace: str, name: str, selector: Selector = NOTHING) -> bool:
        """Register an HPA; False where it is registered already."""
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = _Space(self._versions)
        if name in space:
            return False
        space.put(name, selector)
        return True

    def change(self, namespace: str, name: str, selector: Selector) -> bool:
        """Change the selector of a registered HPA; False where it has gone."""
        space = self._spaces.get(namespace)
        if space is None or name not in space:
            return False
        space.put(name, selector)
        return True

    def drop(self, namespace: str, name: str) -> bool:
        """Forget an HPA; False where it is not registered."""
        space = self._spaces.get(namespace)
        if space is None or not space.drop(name):
            return False
        if not space:
            del self._spaces[namespace]
        return True

    def version(self, namespace: str) -> int:
        """Return a number that changes whenever ``of`` may answer differently; 0: no HPA."""
        space = self._spaces.get(namespace)
        return space.version if space is not None else 0

    def of(self, namespace: str, name: str, labels: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
        """Return the others that select one of these label sets, sorted by name."""
        space = self._spaces.get(namespace)
        if space is None:
            return ()
        found: set[str] = set()
        for each in labels:
            found |= space.matching(each)
        found.discard(name)
        return tuple(sorted(found))


class _Space:
    """The selectors of one namespace."""

    def __init__(self, versions: Iterator[int]) -> None:
        self.version = 0
        self._versions = versions
        self._selectors: dict[str, Selector] = {}
        self._under: dict[_Pair, str | dict[str, None]] = {}  # one name, as mostly, as it is

    def __len__(self) -> int:
        return len(self._selectors)

    def __contains__(self, name: str) -> bool:
        return name in self._selectors

    def put(self, name: str, selector: Selector) -> None:
        known = self._selectors.get(name)
        if known is not None and known == selector:
            return
        self.drop(name)
        self.version = next(self._versions)
        self._selectors[name] = selector
        for pair in _pairs(selector):
            members = self._under.get(pair)
            if members is None:
                self._under[pair] = name
            elif isinstance(members, str):
                self._under[pair] = {members: None, name: None}
            else:
                members[name] = None

    def drop(self, name: str) -> bool:
        known = self._selectors.pop(name, None)
        if known is None:
            return False
        self.version = next(self._versions)
        for pair in _pairs(known):
            members = self._under[pair]
            if isinstance(members, dict):
                del members[name]
                if members:
                    continue
            del self._under[pair]
        return True

    def matching(self, labels: Mapping[str, str]) -> set[str]:
        found = set()
        for pair in (_ANY, *labels.items()):
            members = self._under.get(pair, ())
            for name in (members,) if isinstance(members, str) else members:
                if self._selectors[name].matches(labels):
                    found.add(name)
        return found


def _pairs(selector: Selector) -> tuple[_Pair, ...]:
    if selector.nothing:
        return ()
    for requirement in selector.requirements:
        if requirement.operator in ("=", "==", "in"):
            return tuple((requirement.key, value) for value in dict.fromkeys(requirement.values))
    return (_ANY,)
