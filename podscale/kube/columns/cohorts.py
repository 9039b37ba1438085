"""Objects grouped so that selectors are evaluated per group, not per object.

A cohort is a set of objects of one namespace with equal labels and equal controller
(the pods of one ReplicaSet). Thousands of pods are a few cohorts: a label selector is
evaluated once per cohort, and found through an index of label pairs, never by scanning
all of them. Pure: no I/O, no clock.
"""

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from podscale.core.selectors.selector import Selector
from podscale.core.value_index import ValueIndex
from podscale.kube.client.wire import OwnerReference

_Key = tuple[str, tuple[tuple[str, str], ...], str]
_EMPTY: dict[str, str] = {}


class Cohort:
    """One group: its rows, and what they share."""

    __slots__ = ("key", "labels", "namespace", "number", "owner", "rows", "version")

    def __init__(
        self, number: int, key: _Key, labels: Mapping[str, str], owner: OwnerReference | None
    ) -> None:
        self.number = number
        self.key = key
        self.namespace = key[0]
        self.labels = labels
        if owner is not None:  # of thousands of cohorts there are three kinds
            kind, api_version = sys.intern(owner.kind), sys.intern(owner.api_version)
            owner = replace(owner, kind=kind, api_version=api_version)
        self.owner = owner
        self.rows = array("i")
        self.version = 0  # the store's count of changes at the last change in here


_number_of = attrgetter("number")


class Version(Struct, eq=False, gc=False):
    """The cohorts that a selector matched, and their last change."""

    cohorts: tuple[Cohort, ...]
    newest: int
    moved: int  # of the namespace: when a cohort had come or gone last


class Cohorts:
    """All cohorts, found by what their members share."""

    def __init__(self) -> None:
        self._by_key: dict[_Key, Cohort] = {}
        self._by_number: dict[int, Cohort] = {}
        self._by_namespace: ValueIndex[str, Cohort] = ValueIndex()
        self._by_pair: ValueIndex[tuple[str, str, str], Cohort] = ValueIndex()
        self._by_owner: ValueIndex[str, Cohort] = ValueIndex()
        self._moves = 0  # how often a cohort came or went
        self._moved: dict[str, int] = {}  # by namespace: ``_moves`` at the last one in there
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def __getitem__(self, number: int) -> Cohort:
        return self._by_number[number]

    def of(
        self, namespace: str, labels: Mapping[str, str] | None, owner: OwnerReference | None
    ) -> Cohort:
        """Return the cohort of such objects, new if there is none."""
        labels = labels or _EMPTY
        key = (namespace, tuple(sorted(labels.items())), owner.uid if owner else "")
        cohort = self._by_key.get(key)
        if cohort is None:
            number = self._free.pop() if self._free else len(self._by_number)
            cohort = Cohort(number, key, labels, owner)
            self._by_key[key] = self._by_number[number] = cohort
            self._by_namespace.add(namespace, cohort)
            self._note_move(namespace)
            for name, value in labels.items():
                self._by_pair.add((namespace, name, value), cohort)
            if owner is not None:
                self._by_owner.add(owner.uid, cohort)
        return cohort

    def drop(self, cohort: Cohort) -> None:
        """Forget an empty cohort; its number may be given out again."""
        number, namespace = cohort.number, cohort.namespace
        del self._by_key[cohort.key], self._by_number[number]
        self._by_namespace.discard(namespace, cohort)
        self._note_move(namespace)
        for name, value in cohort.labels.items():
            self._by_pair.discard((namespace, name, value), cohort)
        if cohort.owner is not None:
            self._by_owner.discard(cohort.owner.uid, cohort)
        self._free.append(number)

    def _note_move(self, namespace: str) -> None:
        self._moves += 1
        if self._by_namespace.get(namespace):
            self._moved[namespace] = self._moves
        else:
            self._moved.pop(namespace, None)  # one that comes back has a number never seen

    def in_namespace(self, namespace: str | None) -> list[Cohort]:
        if namespace is None:
            return list(self._by_key.values())
        return list(self._by_namespace.get(namespace))

    def owned_by(self, uid: str) -> list[Cohort]:
        return list(self._by_owner.get(uid))

    def version(
        self, namespace: str, selector: Callable[[], Selector], before: "Version | None"
    ) -> "Version":
        """Return ``before``, an earlier version of the same, as long as nothing that ``selector``
        matches has changed, else another one.

        While no cohort came or went in ``namespace`` nothing is searched for, nor is ``selector``
        called.
        """
        moved = self._moved.get(namespace, 0)
        if before is not None and before.moved == moved:
            cohorts = before.cohorts
        else:
            # In an order of their own: that of the indexes changes with what else is there.
            cohorts = tuple(sorted(self.find(namespace, selector()), key=_number_of))
        newest = max([cohort.version for cohort in cohorts], default=0)
        if before is not None and newest == before.newest and cohorts == before.cohorts:
            before.moved = moved
            return before
        return Version(cohorts, newest, moved)

    def find(self, namespace: str | None, selector: Selector) -> list[Cohort]:
        if selector.nothing:
            return []
        if namespace is None:
            return [cohort for cohort in self._by_key.values() if selector.matches(cohort.labels)]
        candidates = self._candidates(namespace, selector)
        return [cohort for cohort in candidates if selector.matches(cohort.labels)]

    def _candidates(self, namespace: str, selector: Selector) -> Iterable[Cohort]:
        """The smallest set of cohorts that one requirement leaves."""
        best: Sequence[Collection[Cohort]] = [self._by_namespace.get(namespace)]
        size = len(best[0])
        for requirement in selector.requirements:
            if requirement.operator not in ("=", "==", "in"):
                continue
            found = [
                self._by_pair.get((namespace, requirement.key, value))
                for value in requirement.values
            ]
            if (smaller := sum(map(len, found))) < size:
                best, size = found, smaller
        return chain.from_iterable(best)
