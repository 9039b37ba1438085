"""Names, labels and owners of any resource: enough to describe metrics of objects.

Fed by metadata-only watches. ``podscale.kube.columns.on_demand`` starts such stores when they
are asked for.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from podscale.kube.client.wire import OwnerReference, PartialObjectMetadata
from podscale.kube.columns.rows import Rows
from podscale.kube.columns.store import ColumnarStore


class ObjectDescription(Struct, frozen=True):
    """One object as a metadata store knows it."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    owner: OwnerReference | None  # the controller


class MetadataStore(ColumnarStore[PartialObjectMetadata, ObjectDescription]):
    """What a metadata-only watch shows. A ``Sink[PartialObjectMetadata]``."""

    _type = PartialObjectMetadata

    def __init__(self, scopes: Sequence[str] = ("",)) -> None:
        super().__init__(Rows(), scopes)

    def _view(self, namespace: str, row: int) -> ObjectDescription:
        cohort = self._rows.cohort(row)
        return ObjectDescription(namespace, self._rows.names[row], cohort.labels, cohort.owner)
