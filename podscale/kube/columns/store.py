"""A store whose objects are rows: fed like ``Store``, read through cohorts.

What a subclass keeps beyond names, labels and owners it writes in ``_fill`` and gives
back in ``_release``.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, TypeVar

from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import HasMetadata
from podscale.kube.columns.rows import Rows
from podscale.kube.informer.fed_store import FedStore

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
        if self._listeners and isinstance(obj, self._type):
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
