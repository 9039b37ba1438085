"""Names, labels and owners of any resource: enough to describe metrics of objects.

Stores fed by metadata-only watches, started when first asked for and dropped when idle. One holds
all namespaces. Where these may not be listed, each namespace that is asked for gets its own, until
they may.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiUnreachable, Forbidden
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import OwnerReference, PartialObjectMetadata
from podscale.kube.columns.store import ColumnarStore, Rows
from podscale.kube.informer.list_watch import WatchSource
from podscale.kube.informer.reflector import Reflector


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


_log = structlog.get_logger()
_LOOK_S = 0.05  # how often a caller that waits for the first list looks for its failure
# Namespaces come from URLs: watches of single ones beyond this make room for each other.
_MOST_SINGLE = 100


class _Watched(Struct, eq=False):
    store: MetadataStore
    task: asyncio.Task[None]
    asked: float
    namespace: str  # "": all
    is_refused: bool = False  # the first list was forbidden


class OnDemandMetadata:
    """Describes any resource; ``run`` owns the watches behind it."""

    def __init__(
        self,
        api: Api,
        *,
        idle_s: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._idle_s = idle_s
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Own the watches: start, drop, for ever. Must run for ``describe`` to work."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    await asyncio.sleep(self._idle_s / 4)
                    self._drop_idle()
        finally:
            self._group = None
            self._watched.clear()

    async def describe(
        self, resource: Resource, *, namespace: str = "", timeout_s: float = 10.0
    ) -> MetadataStore:
        """Return the store of ``resource``, synced: of all namespaces or, as long as these may
        not be listed, of ``namespace``.

        Raises what the first list raised (``Forbidden``, ...) or, when it takes longer than
        ``timeout_s``, ``ApiUnreachable``.
        """
        everywhere = self._ask(resource, "")
        # Once refused it is not waited for: what follows a refusal may be a server that is gone.
        if everywhere.store.is_synced or not (everywhere.is_refused and namespace):
            try:
                return await _synced(everywhere, resource, timeout_s)
            except Forbidden:
                everywhere.is_refused = True
                if not namespace:
                    raise
        return await self.within(resource, namespace, timeout_s=timeout_s)

    async def within(
        self, resource: Resource, namespace: str, *, timeout_s: float = 10.0
    ) -> MetadataStore:
        """Return the store of ``resource`` in one namespace, synced; raises as ``describe``."""
        return await _synced(self._ask(resource, namespace), resource, timeout_s)

    @property
    def stores(self) -> dict[str, MetadataStore]:
        """The running stores by collection path: what health and metrics report."""
        return {path: watched.store for path, watched in self._watched.items()}

    def _ask(self, resource: Resource, namespace: str) -> _Watched:
        path = resource.path(namespace)
        watched = self._watched.get(path)
        if watched is None:
            if namespace:
                self._make_room()
            watched = self._watched[path] = self._start(resource, namespace)
        watched.asked = self._clock()
        return watched

    def _start(self, resource: Resource, namespace: str) -> _Watched:
        if self._group is None:
            raise ApiUnreachable(
                f"cannot describe {resource.group_resource}: watches are not running"
            )
        store = MetadataStore((namespace,))
        source = WatchSource(resource, PartialObjectMetadata, metadata_only=True)
        reflector = Reflector(self._api, source, store, clock=self._clock)
        task = self._group.create_task(reflector.run(), name=f"describe {resource.path(namespace)}")
        return _Watched(store, task, self._clock(), namespace)

    def _make_room(self) -> None:
        single = [(path, watched) for path, watched in self._watched.items() if watched.namespace]
        if len(single) < _MOST_SINGLE:
            return
        # What was refused is worth least; then what nobody has asked for in a long time.
        path, _ = min(
            single, key=lambda each: (each[1].store.freshness().error is None, each[1].asked)
        )
        self._drop(path)

    def _drop_idle(self) -> None:
        now = self._clock()
        for path, watched in list(self._watched.items()):
            if now - watched.asked > self._idle_s:
                self._drop(path)

    def _drop(self, path: str) -> None:
        watched = self._watched.pop(path)
        watched.task.cancel()
        idle_s = round(self._clock() - watched.asked)
        _log.info("watch dropped", resource=path, idle_s=idle_s)


async def _synced(watched: _Watched, resource: Resource, timeout_s: float) -> MetadataStore:
    store = watched.store
    if store.is_synced:
        return store
    try:
        async with asyncio.timeout(timeout_s):
            while not store.is_synced:
                error = store.freshness().error
                if error is not None:
                    raise error.with_traceback(None)
                if watched.task.done():  # others needed its place
                    text = f"too many namespaces of {resource.group_resource} are asked for"
                    raise ApiUnreachable(text)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        text = f"no list of {resource.group_resource} within {timeout_s:g} s"
        raise ApiUnreachable(text, is_timeout=True) from None
    return store
