"""Names to resources: which resource a label, a metric path or a scaleTargetRef means.

``Mapper`` is pure and immutable; ``podscale.kube.discovery.refreshed`` keeps the current one.
Semantics follow client-go's discovery RESTMapper (``restmapper/discovery.go`` and
``meta/restmapper.go``, ``meta/priority.go``): an empty group means any group, a group
may be given as a prefix, resource names match in any case, singular or plural, and of
several candidates the first group in discovery order wins, its preferred version first.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from podscale.kube.client.errors import NoMatch
from podscale.kube.client.resource import Resource


class KindResources(Protocol):
    """Which resources a kind has (``podscale.kube.discovery.refreshed.ApiDiscovery``)."""

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
