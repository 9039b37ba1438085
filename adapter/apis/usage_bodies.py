"""Bodies of metrics.k8s.io: PodMetrics, NodeMetrics, their lists, and the tables of kubectl."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from adapter.queries.usage import Amounts
from podscale.core.quantity import format_milli
from podscale.core.times.rfc3339 import rfc3339

encode = msgspec.json.encode

VERSION = "metrics.k8s.io/v1beta1"
_COLUMNS = [
    {"name": "Name", "type": "string", "format": "name", "description": "Name of the resource",
     "priority": 0},
    {"name": "cpu", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "memory", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "Window", "type": "string", "format": "duration", "description": "", "priority": 0},
]  # fmt: skip


class MeasuredUsage(Struct, frozen=True):
    """A pod or a node with its usage; a node's only part is called ""."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    parts: Mapping[str, Amounts]
    time_s: float  # the earliest of the samples
    is_node: bool = False


def earliest(parts: Iterable[Amounts], asked_s: float) -> float:
    """Return the earliest sample time; a sample of unknown age counts as just asked."""
    return min((asked_s if a.time_s is None else a.time_s for a in parts), default=asked_s)


def single(one: MeasuredUsage, window: str, now: float) -> dict[str, Any]:
    """Return a PodMetrics or NodeMetrics with kind and version."""
    kind = "NodeMetrics" if one.is_node else "PodMetrics"
    return {"kind": kind, "apiVersion": VERSION, **_item(one, window, now)}


def items(found: Sequence[MeasuredUsage], window: str, now: float) -> bytes:
    """Return some items of a list as JSON, with commas between them."""
    return encode([_item(one, window, now) for one in found])[1:-1]


def listing(kind: str, pages: Sequence[bytes]) -> bytes:
    """Return a PodMetricsList or NodeMetricsList of what ``items`` returned; ``kind`` is
    that of the items.
    """
    head = encode({"kind": f"{kind}List", "apiVersion": VERSION, "metadata": {}})
    return b'%b,"items":[%b]}\n' % (head[:-1], b",".join(pages))


def rows(
    found: Sequence[MeasuredUsage], window: str, now: float, *, is_whole: bool = False
) -> bytes:
    """Return some rows of a table as JSON; a pod's cells sum its containers.

    ``is_whole``: each row holds its object, not only the metadata.
    """
    made = [
        {
            "cells": [one.name, *_cells(one), window],
            "object": single(one, window, now) if is_whole else _partial(one, now),
        }
        for one in found
    ]
    return encode(made)[1:-1]


def table(pages: Sequence[bytes]) -> bytes:
    """Return a meta.k8s.io/v1 Table of what ``rows`` returned."""
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
    start = encode({**head, "columnDefinitions": _COLUMNS})
    return b'%b,"rows":[%b]}\n' % (start[:-1], b",".join(pages))


def _item(one: MeasuredUsage, window: str, now: float) -> dict[str, Any]:
    common = {
        "metadata": _metadata(one, now),
        "timestamp": rfc3339(one.time_s),
        "window": window,
    }
    if one.is_node:
        return {**common, "usage": _usage(one.parts[""])}
    containers = [
        {"name": name, "usage": _usage(amounts)} for name, amounts in sorted(one.parts.items())
    ]
    return {**common, "containers": containers}


def _partial(one: MeasuredUsage, now: float) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": _metadata(one, now),
    }


def _metadata(one: MeasuredUsage, now: float) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": one.name}
    if one.namespace:
        metadata["namespace"] = one.namespace
    metadata["creationTimestamp"] = rfc3339(now)
    if one.labels:
        metadata["labels"] = dict(one.labels)
    return metadata


def _usage(amounts: Amounts) -> dict[str, str]:
    usage = {}
    if amounts.cpu_milli is not None:
        usage["cpu"] = format_milli(amounts.cpu_milli)
    if amounts.memory_milli is not None:
        usage["memory"] = format_milli(amounts.memory_milli, "BinarySI")
    return usage


def _cells(one: MeasuredUsage) -> tuple[str, str]:
    cpu = [a.cpu_milli for a in one.parts.values() if a.cpu_milli is not None]
    memory = [a.memory_milli for a in one.parts.values() if a.memory_milli is not None]
    return (
        format_milli(sum(cpu)) if cpu else "<unknown>",
        format_milli(sum(memory), "BinarySI") if memory else "<unknown>",
    )
