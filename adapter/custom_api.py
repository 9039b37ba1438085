"""custom.metrics.k8s.io v1beta1 and v1beta2: metrics of objects (adapter.md 3.2 to 3.5)."""

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any

import structlog
from prometheus_client import Histogram

from adapter import bodies, failures, mapping, schemas
from adapter import request_options as options
from adapter.registry import Registry, is_namespaced
from adapter.reuse import Key, Reuse
from adapter.sources import Sources
from podscale.core.metrics import ObjectSample, PodSamples, Sample
from podscale.core.selector import Selector
from podscale.kube.errors import KubeError
from podscale.kube.resource import NAMESPACES, PODS, Resource
from podscale.serving import status
from podscale.serving.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.status import Cause, StatusError

log = structlog.get_logger(__name__)

GROUP = "custom.metrics.k8s.io"


class CustomApi:
    """An ``ApiGroup``."""

    name = GROUP
    versions: Sequence[str] = ("v1beta1", "v1beta2")  # upstream prefers the first
    offers_table = False

    def __init__(
        self,
        sources: Sources,
        registry: Callable[[], Registry],
        reuse: Reuse,
        freshness: Histogram,
    ) -> None:
        self._sources = sources
        self._registry = registry
        self._reuse = reuse
        self._age = freshness.labels(GROUP)

    def revision(self) -> Hashable:
        """Changes with the list of metrics."""
        others = tuple(sorted(self._sources.listed()))
        return (self._registry().revision, others)

    def resources(self, version: str) -> Sequence[ApiResource]:
        """Return one entry per resource and metric, as upstream spells them."""
        pairs = set(self._registry().sources)
        pairs.update((resource, name) for resource, name in self._sources.listed() if resource)
        return [
            ApiResource(f"{resource}/{metric}", "", is_namespaced(resource), _KIND, _GET)
            for resource, metric in sorted(pairs)
        ]

    def schemas(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI definitions."""
        return schemas.custom(version)

    def paths(self, version: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the OpenAPI paths."""
        return schemas.custom_paths(version)

    def handle(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        """Answer one request."""
        if request.method != "GET":
            return status.method_not_allowed()
        key = Reuse.key(request)
        return self._reuse.find(key) or self._answer(request, key)

    async def _answer(self, request: ApiRequest, key: Key) -> Answered:
        try:
            where = _target(request)
            terms = options.field_terms(request)
            selector = options.label_selector(request)
            resource, namespace, name, metric = where
            options.refuse_other_name(terms, name)
            metric_selector = options.metric_selector(request)
            if name == "*":
                return await self._several(
                    request, key, resource, namespace, selector, metric, metric_selector
                )
            return await self._single(
                request, key, resource, namespace, name, metric, metric_selector
            )
        except StatusError as error:
            return error.status

    async def _several(
        self,
        request: ApiRequest,
        key: Key,
        written: str,
        namespace: str,
        selector: Selector,
        metric: str,
        metric_selector: Selector,
    ) -> Answered:
        described = mapping.resolve(self._sources.provider.mapper, *mapping.split(written))
        if described is None:
            return failures.internal("unable to list matching resources")
        scope = "" if described.group_resource == NAMESPACES.group_resource else namespace
        version, current = self._version_of(described, scope, selector)
        try:
            answer = await self._sources.several(
                described, scope, selector, metric, str(metric_selector)
            )
        except KubeError as error:
            log.warning("objects not listed", resource=described.group_resource, error=str(error))
            cause = Cause(reason=type(error).__name__, message=f"cannot watch {written}")
            return failures.internal("unable to list matching resources", cause)
        if not isinstance(answer, PodSamples):
            if failures.is_absence(answer):
                return failures.metric_not_found(written, metric, failure=answer)
            return failures.source_failed(answer)
        response = self._body(
            request, described, scope, metric, metric_selector, answer.pods, answer.asked_s
        )
        return self._reuse.keep(key, response, answer.asked_s, version, current)

    async def _single(
        self,
        request: ApiRequest,
        key: Key,
        written: str,
        namespace: str,
        name: str,
        metric: str,
        metric_selector: Selector,
    ) -> Answered:
        answer = await self._sources.single(written, namespace, name, metric, str(metric_selector))
        if not isinstance(answer, ObjectSample):
            if not failures.is_absence(answer):
                return failures.source_failed(answer)
            is_known = not failures.is_unknown_metric(answer)
            return failures.metric_not_found(written, metric, name if is_known else "", answer)
        described = mapping.resolve(self._sources.provider.mapper, *mapping.split(written))
        if described is None:  # gone since the answer was on its way
            return failures.metric_not_found(written, metric)
        scope = "" if described.group_resource == NAMESPACES.group_resource else namespace
        response = self._body(
            request, described, scope, metric, metric_selector, {name: answer.sample},
            answer.asked_s,
        )  # fmt: skip
        return self._reuse.keep(key, response, answer.asked_s)

    def _version_of(
        self, resource: Resource, namespace: str, selector: Selector
    ) -> tuple[Hashable, Callable[[], Hashable]]:
        # Only the pod store can tell cheaply that a selection is unchanged; for other kinds
        # the bytes are kept for at most as long as the snapshot lives.
        if resource.group_resource != PODS.group_resource:
            return None, _nothing
        pods = self._sources.provider.objects.pods

        def current() -> Hashable:
            return pods.select(namespace, selector).version

        return current(), current

    def _body(
        self,
        request: ApiRequest,
        resource: Resource,
        namespace: str,
        metric: str,
        metric_selector: Selector,
        samples: Mapping[str, Sample],
        asked_s: float,
    ) -> ApiResponse:
        items = [
            (name, s.value_milli, asked_s if s.time_s is None else s.time_s, s.window_s)
            for name, s in samples.items()
        ]
        if items:
            self._age.observe(max(0.0, time.time() - min(item[2] for item in items)))
        echo = options.echo(metric_selector)
        version = request.info.version
        return ApiResponse(bodies.metric_values(version, resource, namespace, metric, echo, items))


_KIND = "MetricValueList"
_GET = ("get",)


def _nothing() -> None:
    return None


def _target(request: ApiRequest) -> tuple[str, str, str, str]:
    """Return resource as written, namespace, name and metric; raises ``StatusError``."""
    parts, namespace = request.info.parts, request.info.namespace
    if namespace and parts[:1] == ("namespaces",):  # /namespaces/<ns> and nothing after it
        raise StatusError(status.path_not_found())
    if namespace and len(parts) == 2 and parts[0] == "metrics":
        return "namespaces", namespace, namespace, parts[1]
    if namespace and len(parts) == 1:
        raise StatusError(status.bad_request("invalid request path"))
    if len(parts) != 3 or not all(parts):
        raise StatusError(status.path_not_found())
    resource, name, metric = parts
    return resource, namespace, name, metric
