"""Names of resources, as rules, labels and paths write them.

``podscale.kube.discovery`` knows the cluster; here is only what the adapter asks of it,
and what stands in where no cluster can be asked: it knows the kinds that every cluster has, and
presumes that any other name is that of a resource which does exist.
"""

from typing import Protocol

from podscale.kube.client import resource as kinds
from podscale.kube.client.errors import NoMatch
from podscale.kube.client.resource import Resource
from podscale.kube.discovery import Mapper


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


BUILT_IN = (
    kinds.PODS, kinds.NODES, kinds.NAMESPACES, kinds.SERVICES, kinds.CONFIG_MAPS, kinds.SECRETS,
    Resource("", "v1", "persistentvolumes", "PersistentVolume", False),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    kinds.REPLICATION_CONTROLLERS, kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS,
    kinds.DAEMON_SETS, kinds.JOBS, kinds.CRON_JOBS, kinds.HPAS,
    Resource("networking.k8s.io", "v1", "ingresses", "Ingress"),
)  # fmt: skip


class PresumingMapper:
    """Answers with what is built in, else with the name as it is written."""

    def __init__(self) -> None:
        self._known = Mapper(BUILT_IN)

    def resource_for(self, resource: str, group: str = "", version: str = "") -> Resource:
        """Return what ``resource`` means; an unknown one only if its group is given."""
        try:
            return self._known.resource_for(resource, group, version)
        except NoMatch:
            if not resource or not group:
                raise
        plural = resource.lower() if resource.endswith("s") else f"{resource.lower()}s"
        return Resource(group, version or "v1", plural, resource.capitalize(), True, resource)
