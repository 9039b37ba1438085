"""The taint of nodes that are full by measured load, and its writes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog

from podscale.kube.client.api import JSON_PATCH, Api
from podscale.kube.client.errors import KubeError, ObjectNotFound
from podscale.kube.client.resource import NODES
from podscale.kube.client.wire import encode
from podscale.kube.objects.cluster import Node
from podscale.nodes.explain.reading import read_all

_log = structlog.get_logger(__name__)

_TIMEOUT_S = 10.0
_TOGETHER = 8
# Cluster autoscaler leaves taints of this prefix out of the nodes that it would add.
KEY = "status-taint.cluster-autoscaler.kubernetes.io/podscale-load"
_TAINT = {"key": KEY, "effect": "NoSchedule"}


def is_tainted(node: Node) -> bool:
    """Return whether the node has the taint."""
    return any(taint.key == KEY for taint in node.spec.taints)


async def write(api: Api, node: Node, *, is_wanted: bool) -> str:
    """Give a node the taint, or take it away; returns ``done``, ``gone`` or ``failed``, and
    raises ``NotLeading``. The others' taints are left as they are."""
    patch = _patch(node, is_wanted=is_wanted)
    if not patch:
        return "done"
    try:
        await api.request(
            "PATCH",
            NODES.path("", node.metadata.name),
            body=encode(patch),
            content_type=JSON_PATCH,
            timeout_s=_TIMEOUT_S,
        )
    except ObjectNotFound:
        return "gone"
    except KubeError as error:
        _log.warning("taint not written", node=node.metadata.name, error=str(error))
        return "failed"
    return "done"


async def remove_all(api: Api) -> int:
    """Take the taint from every node; returns from how many. Raises ``KubeError``."""
    found = await read_all(api, NODES.path(), Node)
    nodes = iter([node for node in found if is_tainted(node)])
    done = 0

    async def some() -> None:
        nonlocal done
        for node in nodes:
            done += await write(api, node, is_wanted=False) == "done"

    await asyncio.gather(*(some() for _ in range(_TOGETHER)))
    return done


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
