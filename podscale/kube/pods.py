"""Pods in columns: 100,000 of them in some 50 MB, selected without looking at each.

Rows live in numpy columns; what many pods share (labels and owner: the cohort; spec:
the template; container states) is interned. ``PodSet`` is a selection as columns,
``PodView`` one pod as an object, made on demand.
"""

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.core.selector import Selector
from podscale.kube.freshness import Freshness
from podscale.kube.objects.pod import ContainerState, Pod, Template
from podscale.kube.store import Change
from podscale.kube.watching import Happening
from podscale.kube.wire import OwnerReference


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
    resource_version: str
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
    template: Template
    state: tuple[ContainerState, ...]  # containers that have a status, in order
    resize: tuple[tuple[str, str, str], ...]  # PodResize* conditions: type, reason, message


class PodSet:
    """The pods of one selection, as columns of one length. Valid until the store changes."""

    namespace: str
    version: tuple[int, int]  # equal versions of one selection: nothing about it changed

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        raise NotImplementedError

    @property
    def phase(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    @property
    def ready(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    @property
    def ready_since(self) -> NDArray[np.float64]:
        raise NotImplementedError

    @property
    def started(self) -> NDArray[np.float64]:
        raise NotImplementedError

    @property
    def deleted(self) -> NDArray[np.float64]:
        """deletionTimestamp; NaN: not being deleted."""
        raise NotImplementedError

    @property
    def template(self) -> NDArray[np.int32]:
        """Number of each pod's template; ``templates`` resolves them."""
        raise NotImplementedError

    @property
    def templates(self) -> Mapping[int, Template]:
        """The distinct templates of the selection, by number."""
        raise NotImplementedError

    @property
    def owners(self) -> Mapping[str, OwnerReference]:
        """The distinct controllers of the selection, by UID."""
        raise NotImplementedError

    def views(self) -> Iterator[PodView]:
        """Yield each pod as an object."""
        raise NotImplementedError


class PodStore:
    """All pods of the scopes. A ``Sink[Pod]`` and a ``Described``."""

    def __init__(
        self, scopes: Sequence[str] = ("",), *, keep_annotations: Sequence[str] = ("vpa",)
    ) -> None:
        """``keep_annotations``: prefixes of the annotations worth their memory."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def get(self, namespace: str, name: str) -> PodView | None:
        """Return one pod."""
        raise NotImplementedError

    def select(self, namespace: str, selector: Selector) -> PodSet:
        """Return the pods of ``namespace`` that ``selector`` matches."""
        raise NotImplementedError

    def owned_by(self, uid: str) -> PodSet:
        """Return the pods whose controller has this UID."""
        raise NotImplementedError

    def select_all(self, namespace: str | None = None) -> PodSet:
        """Return the pods of ``namespace``, or of the cluster (None)."""
        raise NotImplementedError

    def names(self, namespace: str, selector: Selector) -> list[str]:
        raise NotImplementedError

    def exists(self, namespace: str, name: str) -> bool:
        raise NotImplementedError

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        raise NotImplementedError

    def accept(self, answer: Pod) -> None:
        """Take in the server's answer to our own write."""
        raise NotImplementedError

    def forget(self, namespace: str, name: str, uid: str = "") -> None:
        """Take out a pod we deleted ourselves."""
        raise NotImplementedError

    def subscribe(self, callback: Callable[[Change[PodView]], None]) -> Callable[[], None]:
        """Call back for every change; as ``Store.subscribe``."""
        raise NotImplementedError

    def apply(self, happening: Happening[Pod], *, scope: str, now: float) -> None:
        """Take in what a reflector saw."""
        raise NotImplementedError

    def freshness(self, now: float | None = None) -> Freshness:
        raise NotImplementedError

    @property
    def is_synced(self) -> bool:
        raise NotImplementedError

    def is_current(self, now: float | None = None) -> bool:
        raise NotImplementedError

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        raise NotImplementedError
