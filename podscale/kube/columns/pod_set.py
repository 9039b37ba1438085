"""Pods as they are read: one as an object, a selection as columns."""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.kube.client.wire import OwnerReference
from podscale.kube.objects.pod import ContainerState, PodCondition, WirePodTemplate


class Phase(enum.IntEnum):
    """``status.phase``."""

    UNKNOWN = 0
    PENDING = 1
    RUNNING = 2
    SUCCEEDED = 3
    FAILED = 4


class Ready(enum.IntEnum):
    """The Ready condition; ``NONE``: the pod has no such condition."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    UNKNOWN = 3


class PodView(Struct, frozen=True):
    """One pod: everything the store keeps of it. Times are unix seconds, NaN: not set."""

    namespace: str
    name: str
    uid: str
    resource_version: str  # "": it was not a number
    labels: Mapping[str, str]
    annotations: Mapping[str, str]  # only those the store was told to keep
    owner: OwnerReference | None  # the controller
    node: str
    phase: Phase
    ready: Ready
    ready_since: float  # lastTransitionTime of the Ready condition
    started: float  # status.startTime
    created: float
    deleted: float  # deletionTimestamp
    template: WirePodTemplate
    states: tuple[ContainerState, ...]  # containers that have a status, init containers first
    resize: tuple[PodCondition, ...]  # the PodResize* conditions


class PodSet:
    """The pods of one selection, as columns of one length: a snapshot, in no order.

    As long as ``version`` is equal for one selection, nothing in it has changed.
    """

    def __init__(
        self,
        names: list[str],
        table: NDArray[np.void],
        *,
        version: tuple[int, int],
        spans: Sequence[tuple[str, int, str]],
        templates: Mapping[int, WirePodTemplate],
        owners: Mapping[str, OwnerReference],
        get: Callable[[str, str], PodView | None],
    ) -> None:
        """``spans``: namespace, number of pods and their controller's UID, in order."""
        self.names = names
        self.version = version
        self.templates = templates  # the distinct ones, by number
        self.owners = owners  # the distinct controllers, by UID
        self._table = table
        self._spans = spans
        self._get = get

    def __len__(self) -> int:
        return len(self.names)

    @property
    def namespaces(self) -> list[str]:
        """The namespace of each pod."""
        return [namespace for namespace, count, _uid in self._spans for _ in range(count)]

    @property
    def owner_uids(self) -> list[str]:
        """The UID of each pod's controller, a key of ``owners``; "": it has none."""
        return [uid for _, count, uid in self._spans for _ in range(count)]

    @property
    def phase(self) -> NDArray[np.uint8]:
        """``Phase`` numbers."""
        column: NDArray[np.uint8] = self._table["phase"]
        return column

    @property
    def ready(self) -> NDArray[np.uint8]:
        """``Ready`` numbers."""
        column: NDArray[np.uint8] = self._table["ready"]
        return column

    @property
    def ready_since(self) -> NDArray[np.float64]:
        """lastTransitionTime of the Ready condition."""
        column: NDArray[np.float64] = self._table["ready_since"]
        return column

    @property
    def started(self) -> NDArray[np.float64]:
        """status.startTime; NaN: not set."""
        column: NDArray[np.float64] = self._table["started"]
        return column

    @property
    def created(self) -> NDArray[np.float64]:
        """creationTimestamp."""
        column: NDArray[np.float64] = self._table["created"]
        return column

    @property
    def deleted(self) -> NDArray[np.float64]:
        """deletionTimestamp; NaN: not being deleted."""
        column: NDArray[np.float64] = self._table["deleted"]
        return column

    @property
    def template(self) -> NDArray[np.int32]:
        """Number of each pod's template, a key of ``templates``."""
        column: NDArray[np.int32] = self._table["template"]
        return column

    def views(self) -> Iterator[PodView]:
        """Yield each pod as an object, as it is now; those that have gone are left out."""
        for namespace, name in zip(self.namespaces, self.names, strict=True):
            view = self._get(namespace, name)
            if view is not None:
                yield view
