"""The taint of nodes that are full by measured load, and its writes."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from podscale.kube.client.api import Api
from podscale.kube.client.resource import NODES
from podscale.kube.objects.cluster import Node
from podscale.nodes.cluster.resizer import each_of, patched
from podscale.nodes.scheduling.cluster_reading import read_all

# Cluster autoscaler leaves taints of this prefix out of the nodes that it would add.
KEY = "status-taint.cluster-autoscaler.kubernetes.io/podscale-load"
_TAINT = {"key": KEY, "effect": "NoSchedule"}


def is_tainted(node: Node) -> bool:
    return any(taint.key == KEY for taint in node.spec.taints)


async def write(api: Api, node: Node, *, is_wanted: bool) -> str:
    """Give a node the taint, or take it away, and leave the others' taints; see ``patched``."""
    patch = _patch(node, is_wanted=is_wanted)
    return await patched(api, NODES.path("", node.metadata.name), patch) if patch else "done"


async def remove_all(api: Api) -> Counter[str]:
    """Take the taint from every node; returns how many it became what of, see ``patched``.
    Raises ``KubeError``."""
    nodes = filter(is_tainted, await read_all(api, NODES.path(), Node))
    return Counter(await each_of(nodes, lambda node: write(api, node, is_wanted=False)))


def _patch(node: Node, *, is_wanted: bool) -> list[Mapping[str, Any]]:
    # Of the list as it was read: anybody else's change makes the patch fail, and the next round
    # tries again.
    keys = [taint.key for taint in node.spec.taints]
    test = {"op": "test", "path": "/metadata/resourceVersion",
            "value": node.metadata.resource_version}  # fmt: skip
    if is_wanted == (KEY in keys):
        return []
    if not is_wanted:
        return [test, {"op": "remove", "path": f"/spec/taints/{keys.index(KEY)}"}]
    if keys:
        return [test, {"op": "add", "path": "/spec/taints/-", "value": _TAINT}]
    return [test, {"op": "add", "path": "/spec/taints", "value": [_TAINT]}]
