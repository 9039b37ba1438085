"""The writes to ballast pods, and of the taint of nodes that are full by measured load: JSON
patches, a few at a time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec
import structlog

from podscale.core import quantity
from podscale.kube.client.api import JSON, JSON_PATCH, Api, Method
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import NODES, PODS
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodStore, PodView
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.pod import Pod
from podscale.nodes.cluster.pod_sums import RENEWED, REVISION_LABELS
from podscale.nodes.decide.ballast import CPU, LEAST, MEMORY
from podscale.nodes.scheduling.cluster_reading import read_all

_log = structlog.get_logger(__name__)

T = TypeVar("T")
R = TypeVar("R")

_TIMEOUT_S = 10.0
_TOGETHER = 8
CONTAINER = "pause"
# Cluster autoscaler leaves taints of this prefix out of the nodes that it would add.
TAINT_KEY = "status-taint.cluster-autoscaler.kubernetes.io/podscale-load"
_TAINT = {"key": TAINT_KEY, "effect": "NoSchedule"}
LEAST_REQUESTS = (float(LEAST[CPU, 0]), float(LEAST[MEMORY, 0]))


async def each_of(items: Iterable[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what ``act`` makes of the items, eight at a time; raises what the first raises."""
    left = iter(items)

    async def some() -> list[R]:
        return [await act(item) for item in left]

    # Not in a task group, whose errors come wrapped: whoever stops leading stops quietly.
    found = await asyncio.gather(*(some() for _ in range(_TOGETHER)))
    return list(chain.from_iterable(found))


async def write(
    api: Api, path: str, body: object, store: PodStore | None, method: Method = "PATCH"
) -> str:
    """Send a JSON patch, or with ``DELETE`` the options of that; returns ``done``, ``gone`` or
    ``failed``, and raises ``NotLeading``.

    ``store`` takes the pod as it is then: the next decision sees what was written, whenever a
    watch brings it.
    """
    content_type = JSON_PATCH if method == "PATCH" else JSON
    try:
        answer = await api.request(
            method, path, body=encode(body), content_type=content_type, timeout_s=_TIMEOUT_S
        )
        if store is not None:
            store.accept(decode(answer.body, Pod))
    except (KubeError, msgspec.DecodeError) as error:
        # A server that knows no such path, as pods/resize before 1.33, says so without a reason.
        if isinstance(error, ObjectNotFound) and error.reason:
            return "gone"
        _log.warning("not written", path=path, error=str(error))
        return "failed"
    return "done"


async def resize(
    api: Api, pods: PodStore | None, namespace: str, name: str, uid: str, requests: Sequence[float]
) -> str:
    """Give a ballast pod these requests (thousandths of a core, bytes), if it is still the same;
    see ``write``."""
    wanted = {
        "cpu": quantity.format_milli(round(requests[CPU])),
        "memory": str(round(requests[MEMORY])),
    }
    patch: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": "/spec/containers/0/name", "value": CONTAINER},
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": wanted},
    ]
    return await write(api, PODS.path(namespace, name, "resize"), patch, pods)


async def hand_over(
    api: Api, store: PodStore, pods: Sequence[PodView], requests: Sequence[float]
) -> str:
    """Give the first of a node's ballast ``pods`` these requests, and then, so that there is no
    gap, delete the others; see ``write``.

    A DaemonSet that surges deletes them once the first has been ready for ``minReadySeconds``, but
    in Kubernetes 1.37 its controller forgets to look then where one of its syncs failed meanwhile.
    """
    youngest, *older = pods
    result = await resize(api, store, youngest.namespace, youngest.name, youngest.uid, requests)
    for pod in older:
        if result == "done":
            path, options = PODS.path(pod.namespace, pod.name), {"preconditions": {"uid": pod.uid}}
            result = await write(api, path, options, None, "DELETE")
    return result


async def renew(api: Api, store: PodStore, pod: PodView) -> str:
    """Have the DaemonSet make a second pod beside a ballast pod; see ``write``.

    A DaemonSet that surges does so for a pod of an older revision.
    """
    patch = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}, *(
        {"op": "add", "path": f"/metadata/labels/{label}", "value": RENEWED}
        for label in REVISION_LABELS
    )]  # fmt: skip
    return await write(api, PODS.path(pod.namespace, pod.name), patch, store)


def is_tainted(node: Node) -> bool:
    return any(taint.key == TAINT_KEY for taint in node.spec.taints)


async def write_taint(api: Api, node: Node, *, is_wanted: bool) -> str:
    """Give a node the taint, or take it away, and leave the others' taints; see ``write``."""
    # Of the list as it was read: anybody else's change makes the patch fail, and the next round
    # tries again.
    meta, keys = node.metadata, [taint.key for taint in node.spec.taints]
    if is_wanted == (TAINT_KEY in keys):
        return "done"
    if not is_wanted:
        place = keys.index(TAINT_KEY)
        change: Mapping[str, Any] = {"op": "remove", "path": f"/spec/taints/{place}"}
    elif keys:
        change = {"op": "add", "path": "/spec/taints/-", "value": _TAINT}
    else:
        change = {"op": "add", "path": "/spec/taints", "value": [_TAINT]}
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version}
    return await write(api, NODES.path("", meta.name), [test, change], None)


async def remove_taints(api: Api) -> Counter[str]:
    """Take the taint from every node; returns how many it became what of, see ``write``.
    Raises ``KubeError``."""
    nodes = filter(is_tainted, await read_all(api, NODES, Node))
    return Counter(await each_of(nodes, lambda node: write_taint(api, node, is_wanted=False)))
