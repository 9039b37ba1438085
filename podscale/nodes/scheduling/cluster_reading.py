"""Nodes and pods as the scheduler's filters see them, read from the API server: for
``explain pod`` with the rights of whoever asks, for the room maker with its own."""

from dataclasses import replace
from typing import TypeVar

from podscale.kube.client.api import Api
from podscale.kube.client.errors import Forbidden, ObjectNotFound
from podscale.kube.client.resource import NAMESPACES, NODES, PODS, Resource
from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode
from podscale.kube.objects.cluster import Node
from podscale.nodes.scheduling import objects
from podscale.nodes.scheduling.cluster_view import ClusterView

T = TypeVar("T")

_PAGE = "500"
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", False)
_POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", False)
_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)


async def read(api: Api, namespace: str, name: str) -> tuple[objects.ScheduledPod, ClusterView]:
    """Return the pod and what decides about its node; raises ``KubeError``."""
    pod = await read_one(api, PODS.path(namespace, name), objects.ScheduledPod)
    cluster = await read_cluster(api, is_lenient=True)
    cluster = replace(cluster, pools=await _optional(api, _POOLS.path(), objects.NodePool))
    if pod.spec.volumes:
        cluster = replace(
            cluster,
            claims=await read_all(api, CLAIMS.path(namespace), objects.VolumeClaim),
            volumes=await read_all(api, VOLUMES.path(), objects.PersistentVolume),
            classes=await read_all(api, _CLASSES.path(), objects.StorageClass),
        )
    return pod, cluster


async def read_cluster(api: Api, *, is_lenient: bool = False) -> ClusterView:
    """Return every node with every pod; raises ``KubeError``. ``is_lenient``: namespaces that may
    not be listed count as ones without labels."""
    return ClusterView(
        nodes=await read_all(api, NODES.path(), Node),
        pods=await read_all(api, PODS.path(), objects.ScheduledPod),
        namespaces=await (
            _optional(api, NAMESPACES.path(), PartialObjectMetadata)
            if is_lenient
            else read_all(api, NAMESPACES.path(), PartialObjectMetadata)
        ),
    )


async def read_one(api: Api, path: str, kind: type[T]) -> T:
    """Return one object; raises ``KubeError`` and ``msgspec.DecodeError``."""
    return decode((await api.request("GET", path)).body, kind)


async def read_all(api: Api, path: str, kind: type[T], *, fields: str = "") -> tuple[T, ...]:
    """Return all objects of a list, or those that a field selector finds; raises ``KubeError``."""
    found: list[T] = []
    token = ""
    while True:
        query = {"limit": _PAGE, **({"continue": token} if token else {})}
        if fields:
            query["fieldSelector"] = fields
        page = decode((await api.request("GET", path, query=query)).body, ListOf[kind])  # type: ignore[valid-type]
        found += page.items or []
        token = page.metadata.continue_
        if not token:
            return tuple(found)


async def _optional(api: Api, path: str, kind: type[T]) -> tuple[T, ...]:
    # Only selectors of namespaces need their labels; only Karpenter has pools.
    try:
        return await read_all(api, path, kind)
    except (Forbidden, ObjectNotFound):
        return ()
