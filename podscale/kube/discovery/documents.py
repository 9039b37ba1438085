"""Discovery documents, aggregated (v2) and old, as resources in priority order. Pure."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from podscale.kube.client.resource import Resource
from podscale.kube.client.wire import ObjectMeta

AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)


class GroupVersionKind(Struct, frozen=True, rename="camel"):
    """``responseKind``: an empty group or version is that of the resource."""

    kind: str = ""
    group: str = ""
    version: str = ""


class Subresource(Struct, frozen=True, rename="camel"):
    """A subresource in aggregated discovery."""

    subresource: str


class DiscoveredResource(Struct, frozen=True, rename="camel"):
    """A resource in aggregated discovery."""

    resource: str
    response_kind: GroupVersionKind | None = None
    scope: str = "Namespaced"
    singular_resource: str = ""
    # The aggregator invents the parent of a lone "pods/http_requests" and gives it null verbs,
    # so every cluster with prometheus-adapter has some.
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None
    subresources: tuple[Subresource, ...] | None = None


class DiscoveredVersion(Struct, frozen=True, rename="camel"):
    """A version of a group; ``freshness`` Stale: its APIService did not answer."""

    version: str
    resources: tuple[DiscoveredResource, ...] | None = None
    freshness: str = "Current"


class DiscoveredGroup(Struct, frozen=True, rename="camel"):
    """A group; versions are in order of preference."""

    metadata: ObjectMeta = ObjectMeta()
    versions: tuple[DiscoveredVersion, ...] = ()


class GroupVersion(Struct, frozen=True, rename="camel"):
    """A version in the old group list."""

    group_version: str
    version: str


class OldGroup(Struct, frozen=True, rename="camel"):
    """A group in the old list."""

    name: str
    versions: tuple[GroupVersion, ...] = ()
    preferred_version: GroupVersion | None = None


class Root(Struct, frozen=True, rename="camel"):
    """The answer of ``/api`` and ``/apis`` in whichever form it comes."""

    kind: str = ""
    items: tuple[DiscoveredGroup, ...] = ()  # APIGroupDiscoveryList
    groups: tuple[OldGroup, ...] = ()  # APIGroupList
    versions: tuple[str, ...] = ()  # APIVersions (core)

    @property
    def is_aggregated(self) -> bool:
        """Whether resources are in it already."""
        return self.kind == "APIGroupDiscoveryList"

    @property
    def group_versions(self) -> dict[str, list[str]]:
        """The versions of each group, preferred first, with or without resources."""
        served = {group.metadata.name: [v.version for v in group.versions] for group in self.items}
        served |= {
            group.name: [v.version for v in ordered_versions(group)] for group in self.groups
        }
        if self.versions:
            served[""] = list(self.versions)
        return served


class OldResource(Struct, frozen=True, rename="camel"):
    """A resource in an ``APIResourceList``; subresources are entries of their own."""

    name: str
    kind: str = ""
    singular_name: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()


class OldResources(Struct, frozen=True, rename="camel"):
    """``APIResourceList``."""

    group_version: str = ""
    resources: tuple[OldResource, ...] = ()


def aggregated(groups: Iterable[DiscoveredGroup]) -> Iterator[Resource]:
    """Yield the resources of aggregated discovery."""
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
                    singular=found.singular_resource or kind.lower(),
                    verbs=frozenset(found.verbs or ()),
                    has_scale=any(sub.subresource == "scale" for sub in found.subresources or ()),
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


def ordered_versions(group: OldGroup) -> list[GroupVersion]:
    """Return the versions of a group, preferred first."""
    preferred = group.preferred_version.version if group.preferred_version else ""
    return sorted(group.versions, key=lambda version: version.version != preferred)


def old(group: str, version: str, document: OldResources) -> Iterator[Resource]:
    """Yield the resources of one group version."""
    scaled = {
        found.name.partition("/")[0]
        for found in document.resources
        if found.name.endswith("/scale")
    }
    for found in document.resources:
        if "/" in found.name:
            continue
        yield Resource(
            group=group,
            version=version,
            plural=found.name,
            kind=found.kind,
            namespaced=found.namespaced,
            singular=found.singular_name or found.kind.lower(),
            verbs=frozenset(found.verbs),
            has_scale=found.name in scaled,
            short_names=found.short_names,
        )
