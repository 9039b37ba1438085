"""Names, labels and owners of any resource: enough to describe metrics of objects.

Fed by metadata-only watches. ``DescribedObjects`` is what the adapter asks; ``PodStore``
answers it too. ``podscale.kube.columns.on_demand`` starts such stores when they are asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from podscale.core.selectors.selector import Selector
from podscale.kube.client.wire import OwnerReference, PartialObjectMetadata
from podscale.kube.columns.rows import Rows
from podscale.kube.columns.store import ColumnarStore
from podscale.kube.informer.freshness import Freshness


class DescribedObjects(Protocol):
    """Which objects there are."""

    def names(self, namespace: str, selector: Selector) -> list[str]:
        """Return the names of the objects that match, in the order of an API server's LIST.

        ``namespace`` "" is: no namespace (nodes), or all of them.
        """

    def exists(self, namespace: str, name: str) -> bool:
        """Return whether there is such an object."""

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return its labels; None: no such object."""

    def freshness(self, now: float | None = None) -> Freshness:
        """Return how far the above may be believed."""


class ObjectDescription(Struct, frozen=True):
    """One object as a metadata store knows it."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    owner: OwnerReference | None  # the controller


class MetadataStore(ColumnarStore[PartialObjectMetadata, ObjectDescription]):
    """A ``DescribedObjects`` over a metadata-only watch. A ``Sink[PartialObjectMetadata]``."""

    _type = PartialObjectMetadata

    def __init__(self, scopes: Sequence[str] = ("",)) -> None:
        super().__init__(Rows(), scopes)

    def _view(self, namespace: str, row: int) -> ObjectDescription:
        cohort = self._rows.cohort(row)
        return ObjectDescription(namespace, self._rows.names[row], cohort.labels, cohort.owner)
