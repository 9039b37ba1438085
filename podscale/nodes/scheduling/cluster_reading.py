"""Nodes and pods as the scheduler's filters see them, read from the API server: for
``explain pod`` with the rights of whoever asks, for the room maker with its own."""

from dataclasses import replace
from typing import TypeVar

from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, ObjectNotFound
from podscale.kube.client.resource import NAMESPACES, NODES, PODS, Resource
from podscale.kube.client.wire import HasMetadata, PartialObjectMetadata, decode
from podscale.kube.informer.list_watch import WatchSource, list_pages
from podscale.kube.objects.cluster import Node
from podscale.nodes.scheduling import objects
from podscale.nodes.scheduling.cluster_view import ClusterView

T = TypeVar("T")
M = TypeVar("M", bound=HasMetadata)

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
_POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", False)
_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)


async def read(api: Api, namespace: str, name: str) -> tuple[objects.ScheduledPod, ClusterView]:
    """Return the pod and what decides about its node; raises ``KubeError``."""
    pod = await read_one(api, PODS.path(namespace, name), objects.ScheduledPod)
    cluster = await read_cluster(api, is_lenient=True)
    cluster = replace(cluster, pools=await _optional(api, _POOLS, objects.NodePool))
    if pod.spec.volumes:
        cluster = replace(
            cluster,
            claims=await read_all(api, CLAIMS, objects.VolumeClaim, namespace),
            volumes=await read_all(api, VOLUMES, objects.PersistentVolume),
            classes=await read_all(api, _CLASSES, objects.StorageClass),
        )
    return pod, cluster


async def read_cluster(api: Api, *, is_lenient: bool = False) -> ClusterView:
    """Return every node with every pod; raises ``KubeError``. ``is_lenient``: namespaces that may
    not be listed count as ones without labels."""
    return ClusterView(
        nodes=await read_all(api, NODES, Node),
        pods=await read_all(api, PODS, objects.ScheduledPod),
        namespaces=await (
            _optional(api, NAMESPACES, PartialObjectMetadata)
            if is_lenient
            else read_all(api, NAMESPACES, PartialObjectMetadata)
        ),
    )


async def read_one(api: Api, path: str, kind: type[T]) -> T:
    """Return one object; raises ``KubeError`` and ``msgspec.DecodeError``."""
    return decode((await api.request("GET", path)).body, kind)


async def read_all(
    api: Api, resource: Resource, kind: type[M], namespace: str = "", *, fields: str = ""
) -> tuple[M, ...]:
    """Return all objects of a list, or those that a field selector finds; raises ``KubeError``."""
    source = WatchSource(resource, kind, namespace, field_selector=fields)
    return tuple([each async for page in list_pages(api, source) for each in page.items])


async def _optional(api: Api, resource: Resource, kind: type[M]) -> tuple[M, ...]:
    # Only selectors of namespaces need their labels; only Karpenter has pools.
    try:
        return await read_all(api, resource, kind)
    except (Forbidden, ObjectNotFound):
        return ()
