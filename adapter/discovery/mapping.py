"""Names of resources, as rules, labels and paths write them.

``podscale.kube.discovery`` knows the cluster; here is only what the adapter asks of it.
"""

from typing import Protocol

from podscale.kube.client.errors import NoMatch
from podscale.kube.client.resource import Resource


class ResourceMapper(Protocol):
    """``podscale.kube.discovery.Mapper``, or whatever stands for the newest one."""

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """Return what ``resource`` means; raises ``NoMatch``."""


def resolve(mapper: ResourceMapper, group: str, resource: str) -> Resource | None:
    """Return the resource, ``None`` for one that the cluster does not have."""
    if not resource:
        return None
    try:
        return mapper.resource_for(resource, group)
    except NoMatch:
        return None


def join(group: str, resource: str) -> str:
    """Return ``resource[.group]``, the form of paths, lists and messages."""
    return f"{resource}.{group}" if group else resource


def split(segment: str) -> tuple[str, str]:
    """Return group and resource of ``resource[.group]``, cut at the first dot."""
    resource, _, group = segment.partition(".")
    return group, resource
