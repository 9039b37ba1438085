"""The objects of one resource in memory, as the API server last showed them.

A store is fed by a ``Reflector`` and by the answers to our own writes (``accept``); it
is read without waiting. Objects are ordered by resourceVersion: an older state never
replaces a newer one, so our own write is visible at once and stays so.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from podscale.core.selector import Selector
from podscale.kube.freshness import Freshness
from podscale.kube.watching import Happening
from podscale.kube.wire import HasMetadata

T = TypeVar("T", bound=HasMetadata)
V = TypeVar("V")


class Change(Struct, Generic[V], frozen=True):
    """One object before and after. ``old`` None: added; ``new`` None: deleted."""

    namespace: str
    name: str
    old: V | None
    new: V | None


class Sink(Protocol[T]):
    """What a reflector feeds."""

    def apply(self, happening: Happening[T], *, scope: str, now: float) -> None:
        """Take in what happened in ``scope`` (a namespace; "" is all) at ``now`` (monotonic)."""
        ...


class Store(Generic[T]):
    """Objects by namespace and name."""

    def __init__(self, scopes: Sequence[str] = ("",)) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, namespace: str, name: str) -> T | None:
        """Return the object (``namespace`` is "" for a resource without namespaces)."""
        raise NotImplementedError

    def values(self, namespace: str | None = None) -> Iterator[T]:
        """Yield the objects of ``namespace``, or of all (None), in no particular order."""
        raise NotImplementedError

    def select(self, namespace: str, selector: Selector) -> list[T]:
        """Return the objects of ``namespace`` that ``selector`` matches, by name."""
        raise NotImplementedError

    def accept(self, answer: T) -> None:
        """Take in the server's answer to our own write, unless something newer is known."""
        raise NotImplementedError

    def forget(self, namespace: str, name: str, uid: str = "") -> None:
        """Take out what we deleted ourselves (only this incarnation, if ``uid`` is given)."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[Change[T]], None]) -> Callable[[], None]:
        """Call back for every change, in order, from the feeding task; returns the way out.

        Callbacks must be quick and must not raise.
        """
        raise NotImplementedError

    def changes(self) -> AsyncIterator[list[Change[T]]]:
        """Yield changes since the last round, one per object (old of the first, new of the
        last): bounded by the number of objects however slow the reader is."""
        raise NotImplementedError

    def apply(self, happening: Happening[T], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        raise NotImplementedError

    def freshness(self, now: float | None = None) -> Freshness:
        """Return how far the store may be believed at ``now`` (time.monotonic)."""
        raise NotImplementedError

    @property
    def is_synced(self) -> bool:
        """Whether the first list has been read whole; ``/readyz`` reports it."""
        raise NotImplementedError

    def is_current(self, now: float | None = None) -> bool:
        """Whether a watch stands in every scope; False: nothing may shrink because of it."""
        raise NotImplementedError

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        raise NotImplementedError
