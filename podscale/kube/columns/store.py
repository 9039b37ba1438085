"""A store whose objects are rows: fed like ``Store``, read through cohorts.

``Rows`` knows where an object lies: names to rows, rows to cohorts, and which state is newer.
What a subclass of ``ColumnarStore`` keeps beyond names, labels and owners it writes in ``_fill``
and gives back in ``_release``.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import HasMetadata, ObjectMeta
from podscale.kube.columns.cohorts import Cohort, Cohorts
from podscale.kube.informer.fed_store import FedStore
from podscale.kube.informer.freshness import number

# What every row has: resourceVersion (-1: not a number), cohort, place in the cohort's
# rows, and whether the list under way has shown it.
BASE: list[tuple[str, DTypeLike]] = [
    ("version", np.int64),
    ("cohort", np.int32),
    ("place", np.int32),
    ("mark", np.bool_),
]
_FIRST = 64


class Rows:
    """Rows of one structured array, by namespace and name."""

    def __init__(self, fields: Iterable[tuple[str, DTypeLike]] = ()) -> None:
        self.table: NDArray[np.void] = np.zeros(_FIRST, dtype=[*BASE, *fields])
        self.column = _columns(self.table)  # a third of the cost of naming a field each time
        self.names: list[str] = []
        self.cohorts = Cohorts()
        self.changes = 0  # how often anything changed
        self._latest: dict[str, int] = {}  # by namespace: ``changes`` at the last one in there
        self._where: dict[str, dict[str, int]] = {}
        self._free: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def find(self, namespace: str, name: str) -> int | None:
        rows = self._where.get(namespace)
        return rows.get(name) if rows else None

    def namespaces(self) -> list[str]:
        return list(self._where)

    def in_namespace(self, namespace: str) -> Mapping[str, int]:
        return self._where.get(namespace, {})

    def changed(self, namespace: str) -> int:
        """Return a number that is another one after every change in ``namespace``."""
        return self._latest.get(namespace, 0)

    def cohort(self, row: int) -> Cohort:
        return self.cohorts[int(self.column["cohort"][row])]

    def add(self, meta: ObjectMeta) -> int:
        """Return a new row for the object; its own columns are the caller's to fill."""
        if self._free:
            row = self._free.pop()
            self.names[row] = meta.name
        else:
            row = len(self.names)
            if row == len(self.table):
                self._grow()
            self.names.append(meta.name)
        self._where.setdefault(meta.namespace, {})[meta.name] = row
        self._count += 1
        self._join(row, meta)
        return row

    def update(self, row: int, meta: ObjectMeta) -> None:
        """Note a new state of the row's object."""
        cohort = self.cohort(row)
        owner = meta.controller
        same = (meta.labels or {}) == cohort.labels and (owner.uid if owner else "") == (
            cohort.key[2]
        )
        if same:
            self._note_change(cohort)
            self.column["version"][row] = number(meta.resource_version)
            self.column["mark"][row] = True
        else:
            self._leave(row, cohort)
            self._join(row, meta)

    def remove(self, namespace: str, name: str) -> int:
        """Forget the object; returns the row, which is free from now on."""
        rows = self._where[namespace]
        row = rows.pop(name)
        self._leave(row, self.cohort(row))
        if not rows:
            # A namespace that comes back starts at a number that no earlier one had.
            del self._where[namespace], self._latest[namespace]
        self.names[row] = ""
        self._free.append(row)
        self._count -= 1
        return row

    def unmark(self, scope: str) -> None:
        """A list of ``scope`` begins: nothing has been seen yet."""
        if not scope:
            self.column["mark"][:] = False
            return
        for row in self.in_namespace(scope).values():
            self.column["mark"][row] = False

    def unmarked(self, scope: str) -> Iterator[tuple[str, str, int]]:
        """Yield namespace, name and version of what the list of ``scope`` did not show."""
        mark, version = self.column["mark"], self.column["version"]
        for namespace in [scope] if scope else self.namespaces():
            for name, row in self.in_namespace(namespace).items():
                if not mark[row]:
                    yield namespace, name, int(version[row])

    def rows_of(self, cohorts: list[Cohort]) -> NDArray[np.int32]:
        """Return the rows of several cohorts together."""
        if not cohorts:
            return np.empty(0, np.int32)
        if len(cohorts) == 1:
            return np.array(cohorts[0].rows, np.int32)
        return np.concatenate([np.frombuffer(cohort.rows, np.int32) for cohort in cohorts])

    def _join(self, row: int, meta: ObjectMeta) -> None:
        cohort = self.cohorts.of(meta.namespace, meta.labels, meta.controller)
        self._note_change(cohort)
        column = self.column
        column["version"][row] = number(meta.resource_version)
        column["cohort"][row] = cohort.number
        column["place"][row] = len(cohort.rows)
        column["mark"][row] = True
        cohort.rows.append(row)

    def _leave(self, row: int, cohort: Cohort) -> None:
        place = int(self.column["place"][row])
        last = cohort.rows.pop()
        if last != row:
            cohort.rows[place] = last
            self.column["place"][last] = place
        self._note_change(cohort)
        if not cohort.rows:
            self.cohorts.drop(cohort)

    def _note_change(self, cohort: Cohort) -> None:
        self.changes += 1
        cohort.version = self._latest[cohort.namespace] = self.changes

    def _grow(self) -> None:
        # By a quarter: 100,000 rows hold at most 25,000 unused ones.
        grown = np.zeros(len(self.table) + max(len(self.table) // 4, _FIRST), self.table.dtype)
        grown[: len(self.table)] = self.table
        self.table, self.column = grown, _columns(grown)


def _columns(table: NDArray[np.void]) -> dict[str, NDArray[Any]]:
    return {name: table[name] for name in table.dtype.names or ()}


T = TypeVar("T", bound=HasMetadata)
V = TypeVar("V")


class ColumnarStore(FedStore[T, V]):
    """Objects of type ``T`` in rows; subscribers see them as ``V``."""

    _type: ClassVar[type[HasMetadata]]  # T, at run time

    def __init__(self, rows: Rows, scopes: Sequence[str]) -> None:
        super().__init__(scopes)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, namespace: str, name: str) -> V | None:
        row = self._rows.find(namespace, name)
        return None if row is None else self._view(namespace, row)

    def names(self, namespace: str, selector: Selector) -> list[str]:
        """Return the names of the objects that match, in the order of an API server's LIST.

        ``namespace`` "" is: no namespace (nodes), or all of them.
        """
        rows = self._rows
        cohorts = rows.cohorts.find(namespace or None, selector)
        if namespace or len({cohort.namespace for cohort in cohorts}) < 2:
            return sorted(rows.names[row] for cohort in cohorts for row in cohort.rows)
        everywhere = [
            (cohort.namespace, rows.names[row]) for cohort in cohorts for row in cohort.rows
        ]
        return [name for _, name in sorted(everywhere)]

    def count(self, namespace: str) -> int:
        """Return how many objects ``namespace`` has."""
        return len(self._rows.in_namespace(namespace))

    def changed(self, namespace: str) -> int:
        """Return a number that is another one after every change in ``namespace``; 0: empty."""
        return self._rows.changed(namespace)

    def exists(self, namespace: str, name: str) -> bool:
        """Return whether there is such an object."""
        return self._rows.find(namespace, name) is not None

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return its labels; None: no such object."""
        row = self._rows.find(namespace, name)
        return None if row is None else self._rows.cohort(row).labels

    def _note_last_state(self, obj: T) -> None:
        # No earlier event may have shown it. An object that cannot be read is mere metadata.
        if self._callbacks and isinstance(obj, self._type):
            self._put(obj)

    def _version(self, namespace: str, name: str) -> int | None:
        row = self._rows.find(namespace, name)
        return None if row is None else int(self._rows.column["version"][row])

    def _uid(self, namespace: str, name: str) -> str:
        return ""

    def _write(self, obj: T) -> None:
        rows, meta = self._rows, obj.metadata
        row = rows.find(meta.namespace, meta.name)
        if row is None:
            self._fill(rows.add(meta), obj, is_new=True)
        else:
            rows.update(row, meta)
            self._fill(row, obj, is_new=False)

    def _erase(self, namespace: str, name: str) -> None:
        self._release(self._rows.in_namespace(namespace)[name])
        self._rows.remove(namespace, name)

    def _start_list(self, scope: str) -> None:
        self._rows.unmark(scope)

    def _note_listed(self, scope: str, obj: T) -> None:
        row = self._rows.find(obj.metadata.namespace, obj.metadata.name)
        if row is not None:  # it may be put only in vain, being older than what is kept
            self._rows.column["mark"][row] = True

    def _unlisted(self, scope: str) -> Iterator[tuple[str, str, int]]:
        return self._rows.unmarked(scope)

    @abstractmethod
    def _view(self, namespace: str, row: int) -> V:
        """Return the row as subscribers see it."""

    def _fill(self, row: int, obj: T, *, is_new: bool) -> None:
        """Fill the subclass's own columns of ``row``."""

    def _release(self, row: int) -> None:
        """Give back what the subclass holds for ``row``."""
