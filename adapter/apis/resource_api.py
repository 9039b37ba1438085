"""metrics.k8s.io v1beta1: CPU and memory of pods and nodes.

What Prometheus fails to answer is an error and never an empty list: an empty list reads
as "nothing runs".
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from prometheus_client import Histogram

from adapter.apis import failures
from adapter.apis import request_options as options
from adapter.apis.request_options import ListOptions
from adapter.apis.schemas import Documented
from adapter.discovery.objects import WatchedObjects
from adapter.queries.inquiry import ask
from adapter.queries.usage import Amounts, UsageByRules
from podscale.core.metrics import Failure
from podscale.core.quantity import format_milli
from podscale.core.times import duration
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.source_routing import DemandReader
from podscale.kube.client.errors import KubeError
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause, StatusError

_encode = msgspec.json.encode

GROUP = "metrics.k8s.io"
_VERSION = "metrics.k8s.io/v1beta1"
_COLUMNS = [
    {"name": "Name", "type": "string", "format": "name", "description": "Name of the resource",
     "priority": 0},
    {"name": "cpu", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "memory", "type": "string", "format": "quantity", "description": "", "priority": 0},
    {"name": "Window", "type": "string", "format": "duration", "description": "", "priority": 0},
]  # fmt: skip
_VERBS = ("get", "list")
_PAGE = 100  # pods written in one turn of the loop, about 2 ms


class MeasuredUsage(Struct, frozen=True):
    """A pod or a node with its usage; a node's only part is called ""."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    parts: Mapping[str, Amounts]
    time_s: float  # the earliest of the samples
    is_node: bool = False


class ResourceApi(Documented):
    """An ``ApiGroup``."""

    name = GROUP
    versions: Sequence[str] = ("v1beta1",)
    offers_table = True

    def __init__(
        self,
        feed: DemandReader,
        usage: UsageByRules,
        objects: WatchedObjects,
        freshness: Histogram,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._feed = feed
        self._usage = usage
        self._objects = objects
        self._age = freshness.labels(GROUP)
        self._clock = clock

    def revision(self) -> Hashable:
        """Changes when resourceRules come or go."""
        return self._usage.rules is not None

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return nodes and pods; nothing without resourceRules."""
        if self._usage.rules is None:
            return ()
        return (
            ApiResource("nodes", "", False, "NodeMetrics", _VERBS),
            ApiResource("pods", "", True, "PodMetrics", _VERBS),
        )

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        if self._usage.rules is None:
            return status.path_not_found()
        parts, namespace = request.info.parts, request.info.namespace
        kind, name = parts[0] if parts else "", parts[1] if len(parts) > 1 else ""
        # Pods are got by name only below their namespace; nodes have none.
        is_scoped = not name or namespace if kind == "pods" else kind == "nodes" and not namespace
        if not is_scoped or len(parts) > 2 or (len(parts) == 2 and not name):
            return status.path_not_found()
        if request.method != "GET":
            return status.method_not_allowed()
        if request.info.verb == "watch":
            return options.watch_refused(request, kind, GROUP)
        return self._answer(request, kind, namespace, name)

    async def _answer(self, request: ApiRequest, kind: str, namespace: str, name: str) -> Answered:
        try:
            wanted = None if name else options.list_options(request)
            if kind == "pods":
                found, failure = await self._pods(namespace, name, wanted)
            else:
                found, failure = await self._nodes(name, wanted)
        except StatusError as error:
            return error.status
        except KubeError as error:
            cause = Cause(reason=type(error).__name__, message=f"{kind} cannot be watched")
            return failures.internal("unable to list matching resources", cause)
        # A namespace that fails affects itself only, unless nothing is left.
        if failure is not None and not found:
            return failures.source_failed(failure)
        if wanted is None:
            return self._one(request, found, kind, namespace, name)
        return await self._list(request, "PodMetrics" if kind == "pods" else "NodeMetrics", found)

    async def _pods(
        self, namespace: str, name: str, wanted: ListOptions | None
    ) -> tuple[list[MeasuredUsage], Failure | None]:
        """Return the usage of the pod, or of those that match, and the first failure; raises
        ``StatusError`` where there is no such pod."""
        self._objects.require_pods()
        asked: list[tuple[str, Sequence[str], int | None]] = []
        if wanted is None:
            if self._objects.pod_labels(namespace, name) is None:
                raise StatusError(status.object_not_found("pods", name))
            asked.append((namespace, (name,), None))
        else:
            for each in [namespace] if namespace else self._objects.namespaces():
                running = self._objects.running(each, wanted.labels)
                names = [pod for pod in running.names if options.selects(wanted, pod, each)]
                if names:
                    asked.append((each, names, running.known))
        answers = await ask(self._feed, [self._usage.pods(*each) for each in asked])
        found: list[MeasuredUsage] = []
        failure: Failure | None = None
        for (scope, _, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Failure):
                failure = failure or answer
                continue
            now = self._clock()
            for pod, parts in sorted(answer.items()):
                labels = self._objects.pod_labels(scope, pod)
                if labels is not None:
                    time_s = _earliest(parts.values(), now)
                    found.append(MeasuredUsage(pod, scope, labels, parts, time_s))
            await asyncio.sleep(0)
        return found, failure

    async def _nodes(
        self, name: str, wanted: ListOptions | None
    ) -> tuple[list[MeasuredUsage], Failure | None]:
        nodes = await self._objects.nodes()
        names = [name]
        if wanted is not None:
            matching = nodes.names("", wanted.labels)
            names = [node for node in matching if options.selects(wanted, node, "")]
        elif not nodes.exists("", name):
            raise StatusError(status.object_not_found("node", name))
        if not names:
            return [], None
        (answer,) = await ask(self._feed, [self._usage.nodes(names)])
        if isinstance(answer, Failure):
            return [], answer
        now = self._clock()
        return [
            MeasuredUsage(
                node, "", nodes.labels("", node) or {}, {"": amounts},
                _earliest([amounts], now), is_node=True,
            )
            for node, amounts in sorted(answer.items())
        ], None  # fmt: skip

    async def _list(
        self, request: ApiRequest, kind: str, found: Sequence[MeasuredUsage]
    ) -> Answered:
        now = self._clock()
        if found:
            self._age.observe(max(0.0, now - min(one.time_s for one in found)))
        as_table = request.media.as_table
        rows = partial(_rows, is_whole=_is_whole(request))
        write = rows if as_table else _items
        pages = []
        for start in range(0, len(found), _PAGE):
            pages.append(write(found[start : start + _PAGE], self._window, now))
            await asyncio.sleep(0)
        return ApiResponse(_table(pages) if as_table else _listing(kind, pages))

    def _one(
        self, request: ApiRequest, found: Sequence[MeasuredUsage], kind: str, namespace: str,
        name: str,
    ) -> Answered:  # fmt: skip
        if not found:
            known = f"{namespace}/{name}" if namespace else name
            return status.object_not_found(f"{kind[:-1]}metrics", known, group=GROUP)
        now = self._clock()
        if request.media.as_table:
            row = _rows(found, self._window, now, is_whole=_is_whole(request))
            return ApiResponse(_table([row]))
        return ApiResponse(value=body(found[0], self._window, now))

    @property
    def _window(self) -> str:
        rules = self._usage.rules
        return duration.format_go(rules.window_s if rules is not None else 0.0)


def _is_whole(request: ApiRequest) -> bool:
    return request.parameter("includeObject") == "Object"


def _earliest(parts: Iterable[Amounts], asked_s: float) -> float:
    """Return the earliest sample time; a sample of unknown age counts as just asked."""
    return min((asked_s if a.time_s is None else a.time_s for a in parts), default=asked_s)


def body(one: MeasuredUsage, window: str, now: float) -> dict[str, Any]:
    """Return a PodMetrics or NodeMetrics with kind and version."""
    kind = "NodeMetrics" if one.is_node else "PodMetrics"
    return {"kind": kind, "apiVersion": _VERSION, **_item(one, window, now)}


def _items(found: Sequence[MeasuredUsage], window: str, now: float) -> bytes:
    """Return some items of a list as JSON, with commas between them."""
    return _encode([_item(one, window, now) for one in found])[1:-1]


def _listing(kind: str, pages: Sequence[bytes]) -> bytes:
    """Return a PodMetricsList or NodeMetricsList of what ``_items`` returned; ``kind`` is
    that of the items.
    """
    head = _encode({"kind": f"{kind}List", "apiVersion": _VERSION, "metadata": {}})
    return b'%b,"items":[%b]}\n' % (head[:-1], b",".join(pages))


def _rows(
    found: Sequence[MeasuredUsage], window: str, now: float, *, is_whole: bool = False
) -> bytes:
    """Return some rows of a table as JSON; a pod's cells sum its containers.

    ``is_whole``: each row holds its object, not only the metadata.
    """
    kind = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    made = [
        {
            "cells": [one.name, *_cells(one), window],
            "object": body(one, window, now)
            if is_whole
            else {**kind, "metadata": _metadata(one, now)},
        }
        for one in found
    ]
    return _encode(made)[1:-1]


def _table(pages: Sequence[bytes]) -> bytes:
    """Return a meta.k8s.io/v1 Table of what ``_rows`` returned."""
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
    start = _encode({**head, "columnDefinitions": _COLUMNS})
    return b'%b,"rows":[%b]}\n' % (start[:-1], b",".join(pages))


def _item(one: MeasuredUsage, window: str, now: float) -> dict[str, Any]:
    common = {"metadata": _metadata(one, now), "timestamp": rfc3339(one.time_s), "window": window}
    if one.is_node:
        return {**common, "usage": _usage(one.parts[""])}
    containers = [
        {"name": name, "usage": _usage(amounts)} for name, amounts in sorted(one.parts.items())
    ]
    return {**common, "containers": containers}


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
