"""Aggregated discovery documents as resources in priority order. Pure."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import ObjectMeta

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class GroupVersionKind(Struct, frozen=True, rename="camel"):
    """``responseKind``: an empty group or version is that of the resource."""

    kind: str = ""
    group: str = ""
    version: str = ""


class DiscoveredResource(Struct, frozen=True, rename="camel"):
    resource: str
    response_kind: GroupVersionKind | None = None
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
