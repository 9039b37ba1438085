"""external.metrics.k8s.io v1beta1: metrics of nothing in the cluster (adapter.md 3)."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

from msgspec import UNSET
from prometheus_client import Histogram

from adapter.apis import bodies, failures, schemas
from adapter.apis import request_options as options
from adapter.apis.metric_providers import MetricSources
from adapter.apis.response_cache import Key, ResponseCache
from adapter.backends.backend import CATEGORY, USER_AGENT, PassedAnswer
from adapter.discovery.object_names import EVERY
from adapter.discovery.registry import MetricRegistry
from adapter.queries import readings
from adapter.stages import Stage
from podscale.core.metrics import ExternalSamples, NoData, Stale
from podscale.core.pace import LoopPace
from podscale.core.selectors.labels import is_label
from podscale.kube.metrics_apis.bodies import ANSWERED_BY, LEFT_OUT
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import StatusError

GROUP = "external.metrics.k8s.io"
_KEPT_BYTES = 256 * 1024  # larger answers are rare, and many selectors of one fill memory
_JOINED_AT_ONCE = 1024 * 1024  # bytes, about 0.3 ms
_PAGE = 32  # series written in one turn of the loop, about an eighth of a millisecond


class ExternalApi:
    """An ``ApiGroup``."""

    name = GROUP
    versions: Sequence[str] = ("v1beta1",)
    offers_table = False

    def __init__(
        self,
        sources: MetricSources,
        registry: Callable[[], MetricRegistry],
        reuse: ResponseCache,
        freshness: Histogram,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` is that of the feed, in whose times samples are."""
        self._sources = sources
        self._registry = registry
        self._reuse = reuse
        self._age = freshness.labels(GROUP)
        self._others: tuple[tuple[str, str], ...] = ()  # of other providers, at the last revision
        self._passed: frozenset[str] = frozenset()  # of backends, then
        self._clock = clock

    def revision(self) -> Hashable:
        """Changes with the list of metrics."""
        self._others = tuple(sorted(self._sources.listed()))
        self._passed = self._sources.passed_names
        return (self._registry().revision, self._others, self._passed)

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return one entry per metric, as upstream spells them; those of backends are marked."""
        # In a thread; other packages' providers are not asked there.
        names = {name for _, name in self._registry().sources}
        names.update(name for resource, name in self._others if not resource)
        marks = ((names, UNSET), (self._passed - names, (CATEGORY,)))
        return [
            ApiResource(name, "", True, "ExternalMetricValueList", ("get",), UNSET, categories)
            for several, categories in marks
            for name in several
        ]

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI definitions."""
        return schemas.external()

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI paths."""
        return schemas.external_paths()

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer one request."""
        parts, namespace = request.info.parts, request.info.namespace
        if not namespace or len(parts) != 1 or not parts[0]:
            return status.path_not_found()
        if request.method != "GET":
            return status.method_not_allowed()
        if request.info.verb == "watch":
            return options.watch_refused(request, "*", GROUP)  # one route for all metrics
        if namespace != EVERY and not is_label(namespace):
            problem = f"no namespace can be called {namespace!r}"
            absence = NoData(Stage.OBJECT_MISMATCH, problem)
            return failures.metric_not_found("namespaces", parts[0], failure=absence)
        key = ResponseCache.key(request)
        found = self._reuse.find(key)
        if found is not None and not options.has_checked(request):
            return found
        return self._answer(request, key, namespace, parts[0])

    async def _answer(self, request: ApiRequest, key: Key, namespace: str, metric: str) -> Answered:
        try:
            selector = options.list_options(request).labels
        except StatusError as error:
            return error.status
        # What a backend of ours passes on must not come round to it again.
        is_passed_on = request.headers.get("user-agent", "").startswith(USER_AGENT)
        answer = await self._sources.external(
            namespace, metric, str(selector), by_rules_only=is_passed_on
        )
        if isinstance(answer, PassedAnswer):  # unchanged, and never from memory
            return ApiResponse(answer.body, headers=((ANSWERED_BY, answer.samples.answered_by),))
        if not isinstance(answer, ExternalSamples):
            if isinstance(answer, NoData | Stale):
                # Known, asked, and nothing to show: upstream's empty list.
                return ApiResponse(bodies.external_list(()))
            if failures.is_absence(answer):
                return failures.metric_not_found("namespaces", metric, failure=answer)
            if answer.reason == "ResultIsMatrix":  # metricsQuery is a range query
                return status.bare_error("encountered an unexpected query result type")
            return failures.source_failed(answer)
        pages: list[bytes] = []
        pace = LoopPace()
        oldest_s = math.inf
        for start in range(0, len(answer.series), _PAGE):
            if pages:
                await pace.rest()
            items = _items(answer, start)
            oldest_s = min(oldest_s, *(item[2] for item in items))
            pages.append(bodies.external_items(metric, items))
        if pages:
            self._age.observe(max(0.0, self._clock() - oldest_s))
        headers: tuple[tuple[str, str], ...] = ()
        if answer.left_out:
            headers = (("Warning", f'{LEFT_OUT}{readings.left_out(answer)}"'),)
        # Joining 16 MB takes the loop 10 ms; a thread does it beside it, since a join of bytes
        # needs no interpreter lock.
        is_large = sum(map(len, pages)) > _JOINED_AT_ONCE
        body = (
            await asyncio.to_thread(bodies.external_list, pages)
            if is_large
            else bodies.external_list(pages)
        )
        response = ApiResponse(body, headers=headers)
        if len(response.body) > _KEPT_BYTES:
            return response
        return self._reuse.keep(key, response, answer.asked_s)


def _items(answer: ExternalSamples, start: int) -> list[bodies.ExternalItem]:
    return [
        (
            None if one.labels is readings.NO_LABELS else one.labels,
            one.sample.value_milli,
            answer.asked_s if one.sample.time_s is None else one.sample.time_s,
            one.sample.window_s,
        )
        for one in answer.series[start : start + _PAGE]
    ]
