"""Names, labels and owners of any resource: enough to describe metrics of objects.

Fed by metadata-only watches. ``Described`` is what the adapter asks; ``PodStore``
answers it too. ``OnDemand`` starts such a store when a resource is first asked for and
drops it when nobody has asked for a while.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from podscale.core.selector import Selector
from podscale.kube.api import Api
from podscale.kube.freshness import Freshness
from podscale.kube.resource import Resource
from podscale.kube.watching import DEFAULT_RHYTHM, Happening, Rhythm
from podscale.kube.wire import PartialObjectMetadata


class Described(Protocol):
    """Which objects there are."""

    def names(self, namespace: str, selector: Selector) -> list[str]:
        """Return the names of the objects that match, in the order of an API server's LIST.

        ``namespace`` "" is: no namespace (nodes), or all of them.
        """
        ...

    def exists(self, namespace: str, name: str) -> bool:
        """Return whether there is such an object."""
        ...

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return its labels; None: no such object."""
        ...

    def freshness(self, now: float | None = None) -> Freshness:
        """Return how far the above may be believed."""
        ...


class MetadataStore:
    """A ``Described`` over a metadata-only watch."""

    def __init__(self, scopes: Sequence[str] = ("",)) -> None:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def names(self, namespace: str, selector: Selector) -> list[str]:
        raise NotImplementedError

    def exists(self, namespace: str, name: str) -> bool:
        raise NotImplementedError

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        raise NotImplementedError

    def apply(self, happening: Happening[PartialObjectMetadata], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        raise NotImplementedError

    def freshness(self, now: float | None = None) -> Freshness:
        raise NotImplementedError

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        raise NotImplementedError


class OnDemand:
    """Metadata stores by resource, started when asked for and dropped when idle."""

    def __init__(
        self,
        api: Api,
        *,
        namespaces: Sequence[str] = (),
        idle_s: float = 900.0,
        rhythm: Rhythm = DEFAULT_RHYTHM,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Own the watches: start, drop, for ever. Must run for ``describe`` to work."""
        raise NotImplementedError

    async def describe(self, resource: Resource, *, timeout_s: float = 10.0) -> Described:
        """Return the store of ``resource``, synced.

        Raises what the first list raised (``Forbidden``, ...) or, when it takes longer than
        ``timeout_s``, ``Unreachable``.
        """
        raise NotImplementedError
