"""Names to resources: which resource a label, a metric path or a scaleTargetRef means.

``Mapper`` is pure and immutable; ``ApiDiscovery`` keeps the current one, from aggregated discovery
(v2, served since Kubernetes 1.30). An API group that cannot be reached (an APIService that is down,
perhaps our own) leaves the rest intact.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec
import structlog
from msgspec import Struct

from podscale.kube.client.api import Api
from podscale.kube.client.errors import ApiUnreachable, KubeError, NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import ObjectMeta, decode

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class ResponseKind(Struct, frozen=True):
    kind: str = ""


class DiscoveredResource(Struct, frozen=True, rename="camel"):
    resource: str
    response_kind: ResponseKind | None = None
    scope: str = "Namespaced"
    singular_resource: str = ""
    # The aggregator invents the parent of a lone "pods/http_requests" and gives it null verbs,
    # so every cluster with prometheus-adapter has some.
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None


class DiscoveredVersion(Struct, frozen=True, rename="camel"):
    """A version of a group; ``freshness`` Stale: its APIService did not answer."""

    version: str
    resources: tuple[DiscoveredResource, ...] | None = None
    freshness: str = "Current"


class DiscoveredGroup(Struct, frozen=True, rename="camel"):
    """A group; versions are in order of preference."""

    metadata: ObjectMeta = ObjectMeta()
    versions: tuple[DiscoveredVersion, ...] = ()


class Root(Struct, frozen=True, rename="camel"):
    """The answer of ``/api`` and ``/apis``."""

    kind: str = ""  # other than APIGroupDiscoveryList: a server older than 1.30
    items: tuple[DiscoveredGroup, ...] = ()


def aggregated(groups: Iterable[DiscoveredGroup]) -> Iterator[Resource]:
    for group in groups:
        for version in group.versions:
            for found in version.resources or ():
                kind = found.response_kind.kind if found.response_kind else ""
                yield Resource(
                    group=group.metadata.name,
                    version=version.version,
                    plural=found.resource,
                    kind=kind,
                    namespaced=found.scope == "Namespaced",
                    singular_name=found.singular_resource,
                    verbs=frozenset(found.verbs or ()),
                    short_names=found.short_names or (),
                )


def stale(groups: Iterable[DiscoveredGroup]) -> list[str]:
    """Return the ``group/version`` of what aggregated discovery could not refresh."""
    return [
        f"{group.metadata.name}/{version.version}"
        for group in groups
        for version in group.versions
        if version.freshness == "Stale"
    ]


class KindResources(Protocol):
    """Which resources a kind has (``ApiDiscovery``)."""

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]: ...


class Mapper:
    """The mapping over one snapshot of discovery."""

    def __init__(
        self,
        resources: Iterable[Resource] = (),
        versions: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Take resources in priority order: groups as discovered (core first), preferred
        version of each group before its others; subresources left out.

        ``versions``: the served versions by group, preferred first, where discovery shows
        versions without resources (custom metrics of other adapters).
        """
        self.resources = tuple(resources)
        self._by_name: dict[str, list[Resource]] = {}
        self._by_kind: dict[tuple[str, str], list[Resource]] = {}
        self._versions = {group: list(names) for group, names in (versions or {}).items()}
        for resource in self.resources:
            for name in {resource.plural, resource.singular}:
                self._by_name.setdefault(name, []).append(resource)
            self._by_kind.setdefault((resource.group, resource.kind), []).append(resource)
            served = self._versions.setdefault(resource.group, [])
            if resource.version not in served:
                served.append(resource.version)

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """Return the resource that ``resource`` (singular or plural, any case) means.

        Raises ``NoMatch`` with Go's text ("no matches for /, Resource=bogus").
        """
        name = resource.lower()
        partial = f"{group}/{version}, Resource={name}"
        if not name:
            raise NoMatch(f"a resource must be present, got: {partial}")
        prefixed: Resource | None = None
        for candidate in self._by_name.get(name, ()):
            if version and candidate.version != version:
                continue
            if not group or candidate.group == group:
                return candidate
            # With a version given, upstream takes the group literally.
            if prefixed is None and not version and candidate.group.startswith(group):
                prefixed = candidate
        if prefixed is None:
            raise NoMatch(f"no matches for {partial}")
        return prefixed

    def parse(self, text: str) -> Resource:
        """Return what ``ingress``, ``ingress.networking``, ``deployments.apps`` means."""
        resource, _, group = text.partition(".")
        return self.resource_for(resource, group)

    def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        """Return every resource of that kind, best first (``RESTMappings``).

        The group is exact ("" is core); ``version`` moves its resource to the front.
        Raises ``NoMatch`` ("no matches for kind ...") when there is none.
        """
        found = self._by_kind.get((group, kind))
        if not found:
            where = f'version "{group}/{version}"' if version else f'group "{group}"'
            raise NoMatch(f'no matches for kind "{kind}" in {where}')
        return tuple(sorted(found, key=lambda resource: resource.version != version))

    def versions(self, group: str) -> tuple[str, ...]:
        """Return the served versions of ``group``, preferred first; empty: not served."""
        return tuple(self._versions.get(group, ()))


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
        self.failure: KubeError | None = None  # of the last of ``failed_groups`` that is a path
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
        self._failed, self.failure = tuple(failed), error
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
