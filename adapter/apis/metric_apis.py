"""custom.metrics.k8s.io v1beta1 and v1beta2, metrics of objects, and external.metrics.k8s.io
v1beta1, metrics of nothing in the cluster.

A request becomes one question, its answer the bytes that are kept while they stay true.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from itertools import chain

import structlog
from msgspec import UNSET, Struct, structs
from prometheus_client import Histogram

from adapter.apis import bodies, failures
from adapter.apis import request_options as options
from adapter.apis.metric_providers import MetricSources
from adapter.apis.response_cache import Key, ResponseCache, always
from adapter.apis.schemas import Documented
from adapter.backends.backend import CATEGORY, USER_AGENT, PassedAnswer
from adapter.discovery import mapping
from adapter.discovery.objects import EVERY, Names, name_problem
from adapter.discovery.registry import MetricRegistry, is_namespaced
from adapter.provider import ObjectsMetric
from adapter.queries import readings
from adapter.stages import Stage
from podscale.core import metrics as core
from podscale.core.pace import LoopPace
from podscale.core.selectors.labels import is_label
from podscale.core.selectors.selector import Selector
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import NAMESPACES, PODS, Resource
from podscale.kube.metrics_apis.bodies import ANSWERED_BY, LEFT_OUT
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.auth.authorization import Permission, denial
from podscale.serving.status import Cause, Status, StatusError

log = structlog.get_logger(__name__)

_KEPT_BYTES = 256 * 1024  # larger external answers are rare, and many selectors fill memory
_JOINED_AT_ONCE = 1024 * 1024  # bytes, about 0.3 ms
_PAGE = 32  # series written in one turn of the loop, about an eighth of a millisecond


class _MetricApi(Documented):
    """What the two have in common: the list of metrics, and answers that are kept."""

    name: str
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
        self._age = freshness.labels(self.name)
        self._clock = clock
        self._others: tuple[tuple[str, str], ...] = ()  # of other providers, at the last revision

    def revision(self) -> Hashable:
        """Changes with the list of metrics."""
        self._others = tuple(sorted(self._sources.listed()))
        return (self._registry().revision, self._others)

    def _kept(self, request: ApiRequest, key: Key) -> ApiResponse | None:
        found = self._reuse.find(key)
        return None if options.has_checked(request) else found

    def _observe(self, oldest_s: float) -> None:
        self._age.observe(max(0.0, self._clock() - oldest_s))


class CustomApi(_MetricApi):
    """An ``ApiGroup``."""

    name = "custom.metrics.k8s.io"
    versions: Sequence[str] = ("v1beta1", "v1beta2")  # upstream prefers the first

    _listed: tuple[Hashable, list[ApiResource]] | None = None

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return one entry per resource and metric, as upstream spells them."""
        # In a thread; other packages' providers are not asked there.
        revision = (self._registry().revision, self._others)
        known = self._listed
        if known is None or known[0] != revision:
            sources = self._registry().sources
            others = {pair for pair in self._others if pair[0] and pair not in sources}
            # Both versions list the same, and 100,000 entries take a tenth of a second.
            self._listed = known = (revision, [
                ApiResource(
                    f"{resource}/{metric}", "", is_namespaced(resource), "MetricValueList", _GET
                )
                for resource, metric in chain(sources, others)
            ])  # fmt: skip
        if version == self.versions[-1]:
            self._listed = None  # encoded by now: not worth 20 MB
        return known[1]

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        if request.method != "GET":
            return status.method_not_allowed()
        if (kept := self._kept(request, ResponseCache.key(request))) is not None:
            return kept
        try:
            target = _target(request, self._sources.provider.mapper)
        except StatusError as error:
            return error.status
        if (absence := target.absence()) is not None:
            name = "" if target.name == EVERY else target.name
            return failures.metric_not_found(target.written, target.metric, name, absence)
        return self._beyond(request, target) if target.is_beyond else self._answer(target)

    async def _beyond(self, request: ApiRequest, target: "_Target") -> Answered:
        # RBAC has judged the namespace of the path, which what is asked for does not lie in.
        wider = structs.replace(request.info, namespace="")
        permission = request.review(wider)
        if not isinstance(permission, Permission):
            permission = await permission
        if not permission.is_allowed:
            return denial(request.user, wider, permission.reason)
        # Kept apart: ``handle`` gives away what it finds without another review.
        target = structs.replace(target, key=(wider.resource, *target.key))
        answer = self._reuse.find(target.key) or self._answer(target)
        return answer if isinstance(answer, ApiResponse | Status) else await answer

    def _answer(self, target: "_Target") -> Answered | Awaitable[Answered]:
        resource, objects = target.resource, self._sources.provider.objects
        if target.name != EVERY:
            metric = target.metric, str(target.metric_selector)
            one = core.ObjectMetric(target.namespace, target.kind, target.name, *metric)
            return self._read(target, one, always)
        if resource is None:
            return failures.internal("unable to list matching resources")
        # Only the pod store can tell cheaply that a selection is unchanged; for other kinds
        # the bytes are kept for at most as long as the snapshot lives.
        is_same = always
        if resource.group_resource == PODS.group_resource:
            is_same = objects.same_pods(target.scope, target.selector)
            if not objects.is_refused:
                question = target.of(objects.pod_names(target.scope, target.selector))
                answer = self._sources.provider.at_once(question)
                if answer is not None:
                    return self._response(target, resource, answer, is_same)
        return self._list(target, resource, is_same)

    async def _list(
        self, target: "_Target", resource: Resource, is_same: Callable[[], bool]
    ) -> Answered:
        scope = target.scope if resource.namespaced else ""
        try:
            found = await self._sources.provider.objects.names(resource, scope, target.selector)
        except KubeError as error:
            log.warning("objects not listed", resource=resource.group_resource, error=str(error))
            cause = Cause(reason=type(error).__name__, message=f"cannot watch {target.written}")
            return failures.internal("unable to list matching resources", cause)
        return await self._read(target, target.of(found), is_same)

    async def _read(
        self,
        target: "_Target",
        question: core.ObjectMetric | ObjectsMetric,
        is_same: Callable[[], bool],
    ) -> Answered:
        (answer,) = await self._sources.read([question])
        if isinstance(answer, core.Failure):
            if not failures.is_absence(answer):
                return failures.source_failed(answer)
            is_known = target.name != EVERY and not failures.is_unknown_metric(answer)
            name = target.name if is_known else ""
            return failures.metric_not_found(target.written, target.metric, name, answer)
        resource = target.resource
        if resource is None or not isinstance(answer, core.ObjectSample | core.PodSamples):
            # It is there since then, and nobody was asked about it.
            return failures.metric_not_found(target.written, target.metric)
        return self._response(target, resource, answer, is_same)

    def _response(
        self,
        target: "_Target",
        resource: Resource,
        answer: core.ObjectSample | core.PodSamples,
        is_same: Callable[[], bool],
    ) -> ApiResponse:
        samples = (
            answer.pods if isinstance(answer, core.PodSamples) else {target.name: answer.sample}
        )
        items = [bodies.item(name, each, answer.asked_s) for name, each in samples.items()]
        if items:
            self._observe(min(item[2] for item in items))
        shown = options.echo(target.metric_selector)
        version, scope, metric = target.version, target.scope, target.metric
        body = bodies.metric_values(version, resource, scope, metric, shown, items)
        return self._reuse.keep(target.key, ApiResponse(body), answer.asked_s, is_same)


class ExternalApi(_MetricApi):
    """An ``ApiGroup``."""

    name = "external.metrics.k8s.io"
    versions: Sequence[str] = ("v1beta1",)

    _passed: frozenset[str] = frozenset()  # of backends, at the last revision

    def revision(self) -> Hashable:
        """Changes with the list of metrics."""
        self._passed = self._sources.passed_names
        return (super().revision(), self._passed)

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return one entry per metric, as upstream spells them; those of backends are marked."""
        # In a thread; other packages' providers are not asked there.
        names = {name for _, name in self._registry().sources}
        names.update(name for resource, name in self._others if not resource)
        marks = ((names, UNSET), (self._passed - names, (CATEGORY,)))
        return [
            ApiResource(name, "", True, "ExternalMetricValueList", _GET, UNSET, categories)
            for several, categories in marks
            for name in several
        ]

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        parts, namespace = request.info.parts, request.info.namespace
        if not namespace or len(parts) != 1 or not parts[0]:
            return status.path_not_found()
        if request.method != "GET":
            return status.method_not_allowed()
        if request.info.verb == "watch":
            return options.watch_refused(request, "*", self.name)  # one route for all metrics
        if namespace != EVERY and not is_label(namespace):
            problem = f"no namespace can be called {namespace!r}"
            absence = core.NoData(Stage.OBJECT_MISMATCH, problem)
            return failures.metric_not_found("namespaces", parts[0], failure=absence)
        key = ResponseCache.key(request)
        return self._kept(request, key) or self._answer(request, key, namespace, parts[0])

    async def _answer(self, request: ApiRequest, key: Key, namespace: str, metric: str) -> Answered:
        try:
            selector = options.list_options(request).labels
        except StatusError as error:
            return error.status
        # What a backend of ours passes on must not come round to it again.
        is_passed_on = request.headers.get("user-agent", "").startswith(USER_AGENT)
        provider = self._sources.provider if is_passed_on else self._sources
        (answer,) = await provider.read([core.ExternalMetric(namespace, metric, str(selector))])
        if isinstance(answer, PassedAnswer):  # unchanged, and never from memory
            return ApiResponse(answer.body, headers=((ANSWERED_BY, answer.samples.answered_by),))
        if isinstance(answer, core.NoData | core.Stale):
            # Known, asked, and nothing to show: upstream's empty list.
            return ApiResponse(bodies.external_list(()))
        if isinstance(answer, core.Failure):
            if failures.is_absence(answer):
                return failures.metric_not_found("namespaces", metric, failure=answer)
            if answer.reason == "ResultIsMatrix":  # metricsQuery is a range query
                return status.bare_error("encountered an unexpected query result type")
            return failures.source_failed(answer)
        if not isinstance(answer, core.ExternalSamples):
            raise TypeError(f"{type(answer).__name__} is no answer about an external metric")
        response = await self._response(metric, answer)
        if len(response.body) > _KEPT_BYTES:
            return response
        return self._reuse.keep(key, response, answer.asked_s)

    async def _response(self, metric: str, answer: core.ExternalSamples) -> ApiResponse:
        pages: list[bytes] = []
        pace = LoopPace()
        oldest_s, asked_s, no_labels = math.inf, answer.asked_s, readings.NO_LABELS
        for start in range(0, len(answer.series), _PAGE):
            if pages:
                await pace.rest()
            items = [
                bodies.item(None if one.labels is no_labels else one.labels, one.sample, asked_s)
                for one in answer.series[start : start + _PAGE]
            ]
            oldest_s = min(oldest_s, *(item[2] for item in items))
            pages.append(bodies.external_items(metric, items))
        if pages:
            self._observe(oldest_s)
        headers: tuple[tuple[str, str], ...] = ()
        if answer.left_out:
            headers = (("Warning", f'{LEFT_OUT}{readings.left_out(answer)}"'),)
        # Joining 16 MB takes the loop 10 ms; a thread does it beside it, since a join of bytes
        # needs no interpreter lock.
        is_large = sum(map(len, pages)) > _JOINED_AT_ONCE
        join = bodies.external_list
        body = await asyncio.to_thread(join, pages) if is_large else join(pages)
        return ApiResponse(body, headers=headers)


_GET = ("get",)


class _Target(Struct, frozen=True):
    key: Key
    version: str  # of the API
    written: str  # resource[.group] as in the path
    resource: Resource | None  # that this means; None: the cluster has no such thing
    kind: str  # plural[.group], as far as it is known
    namespace: str
    scope: str  # the namespace in which the objects lie; "" for Namespaces
    name: str
    metric: str
    selector: Selector
    metric_selector: Selector

    def of(self, objects: Names) -> ObjectsMetric:
        """Return what is asked of all ``objects`` that match."""
        metric = self.metric, str(self.metric_selector)
        return ObjectsMetric(self.scope, self.kind, objects, str(self.selector), *metric)

    def absence(self) -> core.NoData | None:
        """Return why there cannot be what is asked for, ``None`` if there can."""
        if self.kind != NAMESPACES.group_resource:
            text = name_problem(self.kind, self.namespace, self.name)
        elif self.namespace in ("", EVERY) or self.name == self.namespace:
            text = name_problem(self.kind, "", self.name)
        else:
            text = f"of Namespaces only {self.namespace} itself is asked for below it"
        return core.NoData(Stage.OBJECT_MISMATCH, text) if text else None

    @property
    def is_beyond(self) -> bool:
        """Whether an answer may be of more than the namespace in the path."""
        if self.resource is None or self.resource.namespaced or not self.namespace:
            return False
        return self.namespace == EVERY or self.kind != NAMESPACES.group_resource


def _target(request: ApiRequest, mapper: mapping.ResourceMapper) -> _Target:
    """Return what the request asks for; raises ``StatusError``."""
    parts, namespace = request.info.parts, request.info.namespace
    if namespace and parts[:1] == ("namespaces",):  # /namespaces/<ns> and nothing after it
        raise StatusError(status.path_not_found())
    if namespace and len(parts) == 2 and parts[0] == "metrics":
        parts = ("namespaces", namespace, parts[1])
    elif namespace and len(parts) == 1:
        raise StatusError(status.bad_request("invalid request path"))
    elif len(parts) != 3 or not all(parts):
        raise StatusError(status.path_not_found())
    written, name, metric = parts
    listed = options.list_options(request, is_validated=False)
    options.require_name(listed, name)
    metric_selector = options.metric_selector(request)
    resource = mapping.resolve(mapper, *mapping.split(written))
    kind = written if resource is None else resource.group_resource
    scope = "" if kind == NAMESPACES.group_resource else namespace
    return _Target(
        ResponseCache.key(request), request.info.version, written, resource, kind,
        namespace, scope, name, metric, listed.labels, metric_selector,
    )  # fmt: skip
