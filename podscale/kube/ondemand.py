"""Metadata stores by resource, started when first asked for and dropped when idle."""

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from podscale.kube.api import Api
from podscale.kube.errors import Unreachable
from podscale.kube.metadata import Described, MetadataStore
from podscale.kube.reflector import Reflector
from podscale.kube.resource import Resource
from podscale.kube.watching import DEFAULT_RHYTHM, Rhythm, Source
from podscale.kube.wire import PartialObjectMetadata

_log = structlog.get_logger()
_LOOK_S = 0.05  # how often a caller that waits for the first list looks for its failure


class _Watched:
    """One running store."""

    def __init__(self, store: MetadataStore, task: asyncio.Task[None], asked: float) -> None:
        self.store = store
        self.task = task
        self.asked = asked


class OnDemand:
    """Describes any resource; ``run`` owns the watches behind it."""

    def __init__(
        self,
        api: Api,
        *,
        namespaces: Sequence[str] = (),
        idle_s: float = 900.0,
        rhythm: Rhythm = DEFAULT_RHYTHM,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``namespaces``: watch only these; none named is all."""
        self._api = api
        self._namespaces = tuple(namespaces)
        self._idle_s = idle_s
        self._rhythm = rhythm
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

    async def describe(self, resource: Resource, *, timeout_s: float = 10.0) -> Described:
        """Return the store of ``resource``, synced.

        Raises what the first list raised (``Forbidden``, ...) or, when it takes longer than
        ``timeout_s``, ``Unreachable``.
        """
        watched = self._watched.get(resource.path())
        if watched is None:
            watched = self._start(resource)
        watched.asked = self._clock()
        if not watched.store.is_synced:
            await _first_list(watched.store, resource, timeout_s)
        return watched.store

    @property
    def stores(self) -> dict[str, MetadataStore]:
        """The running stores by collection path: what health and metrics report."""
        return {path: watched.store for path, watched in self._watched.items()}

    def _start(self, resource: Resource) -> _Watched:
        if self._group is None:
            raise Unreachable(f"cannot describe {resource.group_resource}: watches are not running")
        scopes = self._namespaces if self._namespaces and resource.namespaced else ("",)
        store = MetadataStore(scopes)
        sources = [
            Source(
                resource,
                PartialObjectMetadata,
                namespace=scope,
                metadata_only=True,
                rhythm=self._rhythm,
            )
            for scope in scopes
        ]
        reflector = Reflector(self._api, sources, store, clock=self._clock)
        task = self._group.create_task(reflector.run(), name=f"describe {resource.path()}")
        watched = _Watched(store, task, self._clock())
        self._watched[resource.path()] = watched
        return watched

    def _drop_idle(self) -> None:
        now = self._clock()
        for path, watched in list(self._watched.items()):
            if now - watched.asked > self._idle_s:
                watched.task.cancel()
                del self._watched[path]
                _log.info("watch dropped", resource=path, idle_s=round(now - watched.asked))


async def _first_list(store: MetadataStore, resource: Resource, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not store.is_synced:
                error = store.freshness().error
                if error is not None:
                    raise error.with_traceback(None)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        text = f"no list of {resource.group_resource} within {timeout_s:g} s"
        raise Unreachable(text, is_timeout=True) from None
