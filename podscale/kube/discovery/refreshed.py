"""Keeps a ``Mapper`` that knows what the API server serves now.

Reads aggregated discovery (v2, served since Kubernetes 1.30); an API group that cannot be
reached (an APIService that is down, perhaps our own) leaves the rest intact.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
import structlog

from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiUnreachable, KubeError, NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import decode
from podscale.kube.discovery.documents import AGGREGATED, Root, aggregated, stale
from podscale.kube.discovery.restmapper import Mapper

T = TypeVar("T")

_log = structlog.get_logger()

_TIMEOUT_S = 20.0


class ApiDiscovery:
    """The current mapper and its renewal."""

    def __init__(self, api: Api, *, period_s: float = 60.0, min_gap_s: float = 5.0) -> None:
        self._api = api
        self.period_s = period_s
        self._min_gap_s = min_gap_s
        self._mapper = Mapper()
        self._synced = False
        self._failed: tuple[str, ...] = ()
        self._documents: dict[str, tuple[str, Root]] = {}  # by path: its ETag, and what it said
        self._refreshing = asyncio.Lock()
        self._refreshed = float("-inf")  # loop time of the last attempt's end

    @property
    def mapper(self) -> Mapper:
        """The latest snapshot; an empty one before the first ``refresh``."""
        return self._mapper

    @property
    def failed_groups(self) -> tuple[str, ...]:
        """What could not be read at the last refresh, as ``group/version``."""
        return self._failed

    async def refresh(self) -> Mapper:
        """Read discovery now; raises ``KubeError`` only when nothing at all could be read."""
        async with self._refreshing:
            return await self._refresh()

    async def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """As ``Mapper.resource_for``, but a miss refreshes first (at most every ``min_gap_s``)."""
        return await self._or_refreshed(lambda m: m.resource_for(resource, group, version))

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        """As ``Mapper.for_kind``, but a miss refreshes first."""
        return await self._or_refreshed(lambda m: m.for_kind(kind, group, version))

    async def run(self) -> None:
        """Refresh every ``period_s`` for ever; failures are logged and change nothing."""
        told: tuple[str, ...] = ()
        while True:
            try:
                await self.refresh()
                if self._failed and self._failed != told:
                    _log.warning("discovery incomplete", failed=list(self._failed))
                told = self._failed
            except KubeError as error:
                _log.warning("discovery failed", error=str(error))
            await asyncio.sleep(self.period_s)

    async def _or_refreshed(self, look: Callable[[Mapper], T]) -> T:
        try:
            return look(self._mapper)
        except NoMatch:
            async with self._refreshing:
                now = asyncio.get_running_loop().time()
                if now - self._refreshed >= self._min_gap_s:
                    try:
                        await self._refresh()
                    except KubeError:
                        if not self._synced:
                            raise
            return look(self._mapper)

    async def _refresh(self) -> Mapper:
        failed: list[str] = []
        resources: list[Resource] = []
        versions: dict[str, list[str]] = {}
        error: KubeError | None = None
        read = 0
        for path in ("/api", "/apis"):
            try:
                root = await self._root(path)
            except KubeError as failure:
                error = failure
                failed.append(path)
                # What was known of the half that failed stays known.
                prefix = path == "/api"
                resources += [r for r in self._mapper.resources if (not r.group) == prefix]
                continue
            read += 1
            missing = stale(root.items)
            failed += missing
            resources += self._with_known(list(aggregated(root.items)), missing)
            versions |= {
                group.metadata.name: [version.version for version in group.versions]
                for group in root.items
            }
        self._refreshed = asyncio.get_running_loop().time()
        self._failed = tuple(failed)
        if not read and error is not None:
            raise error
        self._mapper = Mapper(resources, versions)
        self._synced = True
        return self._mapper

    async def _root(self, path: str) -> Root:
        etag, known = self._documents.get(path, ("", Root()))
        answer = await self._api.request(
            "GET",
            path,
            accept=AGGREGATED,
            headers={"If-None-Match": etag} if etag else None,
            timeout_s=_TIMEOUT_S,
        )
        if answer.status == 304:
            return known
        try:
            root = decode(answer.body, Root)
        except msgspec.DecodeError as error:
            raise ApiUnreachable(f"GET {path}: not a discovery document: {error}") from error
        if root.kind != "APIGroupDiscoveryList":
            why = f"{root.kind or 'no kind'} where APIGroupDiscoveryList is expected"
            raise ApiUnreachable(f"GET {path}: {why}: is the cluster older than Kubernetes 1.30?")
        if etag := answer.headers.get("etag", ""):
            self._documents[path] = (etag, root)
        return root

    def _with_known(self, found: list[Resource], missing: list[str]) -> list[Resource]:
        """A group version that does not answer now keeps what it last served, at the end."""
        present = {(r.group, r.version, r.plural) for r in found}
        kept = [
            r
            for r in self._mapper.resources
            if f"{r.group}/{r.version}" in missing and (r.group, r.version, r.plural) not in present
        ]
        return found + kept
