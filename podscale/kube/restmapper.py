"""Names to resources: which resource a label, a metric path or a scaleTargetRef means.

``Mapper`` is pure and immutable; ``podscale.kube.discovery`` keeps the current one.
Semantics follow client-go's discovery RESTMapper (``restmapper/discovery.go`` and
``meta/restmapper.go``, ``meta/priority.go``): an empty group means any group, a group
may be given as a prefix, resource names match in any case, singular or plural, and of
several candidates the first group in discovery order wins, its preferred version first.
"""

from collections.abc import Iterable

from podscale.kube.resource import Resource


class Mapper:
    """The mapping over one snapshot of discovery."""

    def __init__(self, resources: Iterable[Resource] = ()) -> None:
        """Take resources in priority order: groups as discovered (core first), preferred
        version of each group before its others; subresources left out."""
        raise NotImplementedError

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All resources, in priority order."""
        raise NotImplementedError

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """Return the resource that ``resource`` (singular or plural, any case) means.

        Raises ``NoMatch`` with Go's text ("no matches for /, Resource=bogus").
        """
        raise NotImplementedError

    def parse(self, text: str) -> Resource:
        """Return what ``ingress``, ``ingress.networking``, ``deployments.apps`` means."""
        raise NotImplementedError

    def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        """Return every resource of that kind, best first (``RESTMappings``).

        The group is exact ("" is core); ``version`` moves its resource to the front.
        Raises ``NoMatch`` ("no matches for kind ...") when there is none.
        """
        raise NotImplementedError

    def versions(self, group: str) -> tuple[str, ...]:
        """Return the served versions of ``group``, preferred first; empty: not served."""
        raise NotImplementedError
