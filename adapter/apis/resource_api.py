"""metrics.k8s.io v1beta1: CPU and memory of pods and nodes (adapter.md 4).

What Prometheus fails to answer is an error and never an empty list: an empty list reads
as "nothing runs" (adapter.md 12).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import Histogram

from adapter.apis import failures, schemas, usage_bodies
from adapter.apis import request_options as options
from adapter.apis.request_options import ListOptions
from adapter.apis.usage_bodies import MeasuredUsage
from adapter.discovery.objects import WatchedObjects
from adapter.queries.inquiry import ask
from adapter.queries.usage import UsageByRules
from podscale.core.metrics import Failure
from podscale.core.times import duration
from podscale.feed.source_routing import DemandReader
from podscale.kube.client.errors import KubeError
from podscale.kube.columns.metadata import MetadataStore
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause, StatusError

GROUP = "metrics.k8s.io"
_VERBS = ("get", "list")
_PAGE = 100  # pods written in one turn of the loop, about 2 ms


class ResourceApi:
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

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI definitions."""
        return schemas.resource()

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI paths."""
        return schemas.resource_paths()

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer one request."""
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
                self._objects.require_pods()
                if wanted is None:
                    return await self._pod(request, namespace, name)
                return await self._pods(request, namespace, wanted)
            nodes = await self._objects.nodes()
            if wanted is None:
                return await self._node(request, nodes, name)
            return await self._nodes(request, nodes, wanted)
        except StatusError as error:
            return error.status
        except KubeError as error:
            cause = Cause(reason=type(error).__name__, message=f"{kind} cannot be watched")
            return failures.internal("unable to list matching resources", cause)

    async def _pods(self, request: ApiRequest, namespace: str, wanted: ListOptions) -> Answered:
        namespaces = [namespace] if namespace else self._objects.namespaces()
        found, failure = await self._measured(namespaces, wanted)
        # A namespace that fails affects itself only, unless nothing is left.
        if failure is not None and not found:
            return failures.source_failed(failure)
        return await self._list(request, "PodMetrics", found)

    async def _pod(self, request: ApiRequest, namespace: str, name: str) -> Answered:
        labels = self._objects.pod_labels(namespace, name)
        if labels is None:
            return status.object_not_found("pods", name)
        found, failure = await self._measure(namespace, (name,), None)
        if failure is not None:
            return failures.source_failed(failure)
        if not found:
            return status.object_not_found("podmetrics", f"{namespace}/{name}", group=GROUP)
        return self._one(request, found[0])

    async def _nodes(
        self, request: ApiRequest, nodes: MetadataStore, wanted: ListOptions
    ) -> Answered:
        names = [
            name for name in nodes.names("", wanted.labels) if options.selects(wanted, name, "")
        ]
        found, failure = await self._measure_nodes(nodes, names)
        if failure is not None:
            return failures.source_failed(failure)
        return await self._list(request, "NodeMetrics", found)

    async def _node(self, request: ApiRequest, nodes: MetadataStore, name: str) -> Answered:
        if not nodes.exists("", name):
            return status.object_not_found("node", name)
        found, failure = await self._measure_nodes(nodes, [name])
        if failure is not None:
            return failures.source_failed(failure)
        if not found:
            return status.object_not_found("nodemetrics", name, group=GROUP)
        return self._one(request, found[0])

    async def _measured(
        self, namespaces: Sequence[str], wanted: ListOptions
    ) -> tuple[list[MeasuredUsage], Failure | None]:
        inquiries = []
        asked: list[str] = []
        for namespace in namespaces:
            running = self._objects.running(namespace, wanted.labels)
            names = [name for name in running.names if options.selects(wanted, name, namespace)]
            if names:
                asked.append(namespace)
                inquiries.append(self._usage.pods(namespace, names, running.known))
        found: list[MeasuredUsage] = []
        failure: Failure | None = None
        for namespace, answer in zip(asked, await ask(self._feed, inquiries), strict=True):
            if isinstance(answer, Failure):
                failure = failure or answer
                continue
            found += self._of_namespace(namespace, answer)
            await asyncio.sleep(0)
        return found, failure

    async def _measure(
        self, namespace: str, names: Sequence[str], known: int | None
    ) -> tuple[list[MeasuredUsage], Failure | None]:
        (answer,) = await ask(self._feed, [self._usage.pods(namespace, names, known)])
        if isinstance(answer, Failure):
            return [], answer
        return self._of_namespace(namespace, answer), None

    def _of_namespace(self, namespace: str, answer: Mapping[str, Any]) -> list[MeasuredUsage]:
        now = self._clock()
        found = []
        for name, parts in sorted(answer.items()):
            labels = self._objects.pod_labels(namespace, name)
            if labels is not None:
                time_s = usage_bodies.earliest(parts.values(), now)
                found.append(MeasuredUsage(name, namespace, labels, parts, time_s))
        return found

    async def _measure_nodes(
        self, nodes: MetadataStore, names: Sequence[str]
    ) -> tuple[list[MeasuredUsage], Failure | None]:
        if not names:
            return [], None
        (answer,) = await ask(self._feed, [self._usage.nodes(names)])
        if isinstance(answer, Failure):
            return [], answer
        now = self._clock()
        return [
            MeasuredUsage(
                name, "", nodes.labels("", name) or {}, {"": amounts},
                usage_bodies.earliest([amounts], now), is_node=True,
            )
            for name, amounts in sorted(answer.items())
        ], None  # fmt: skip

    async def _list(
        self, request: ApiRequest, kind: str, found: Sequence[MeasuredUsage]
    ) -> Answered:
        now = self._clock()
        if found:
            self._age.observe(max(0.0, now - min(one.time_s for one in found)))
        as_table = request.media.as_table
        rows = partial(usage_bodies.rows, is_whole=_is_whole(request))
        write = rows if as_table else usage_bodies.items
        pages = []
        for start in range(0, len(found), _PAGE):
            pages.append(write(found[start : start + _PAGE], self._window, now))
            await asyncio.sleep(0)
        return ApiResponse(
            usage_bodies.table(pages) if as_table else usage_bodies.listing(kind, pages)
        )

    def _one(self, request: ApiRequest, one: MeasuredUsage) -> Answered:
        now = self._clock()
        if request.media.as_table:
            row = usage_bodies.rows([one], self._window, now, is_whole=_is_whole(request))
            return ApiResponse(usage_bodies.table([row]))
        return ApiResponse(value=usage_bodies.single(one, self._window, now))

    @property
    def _window(self) -> str:
        rules = self._usage.rules
        return duration.format_go(rules.window_s if rules is not None else 0.0)


def _is_whole(request: ApiRequest) -> bool:
    return request.parameter("includeObject") == "Object"
