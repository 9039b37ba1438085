"""custom.metrics.k8s.io v1beta1 and v1beta2: metrics of objects (adapter.md 3.2 to 3.5)."""

import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from itertools import chain
from typing import Any

import structlog
from msgspec import Struct, structs
from prometheus_client import Histogram

from adapter.apis import bodies, failures, schemas
from adapter.apis import request_options as options
from adapter.apis.metric_providers import MetricSources
from adapter.apis.response_cache import Key, ResponseCache, always
from adapter.discovery import mapping, object_names
from adapter.discovery.object_names import EVERY
from adapter.discovery.registry import MetricRegistry, is_namespaced
from adapter.stages import Stage
from podscale.core.metrics import NoData, ObjectSample, PodSamples, Sample
from podscale.core.selectors.selector import Selector
from podscale.kube.client.errors import KubeError
from podscale.kube.client.resource import NAMESPACES, PODS, Resource
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.auth.authorization import Permission, denial
from podscale.serving.status import Cause, Status, StatusError

log = structlog.get_logger(__name__)

GROUP = "custom.metrics.k8s.io"


class _Asked(Struct, frozen=True):
    """A request, read."""

    written: str  # resource[.group] as in the path
    namespace: str
    name: str
    metric: str
    selector: Selector
    metric_selector: Selector


class CustomApi:
    """An ``ApiGroup``."""

    name = GROUP
    versions: Sequence[str] = ("v1beta1", "v1beta2")  # upstream prefers the first
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
        self._clock = clock
        self._listed: tuple[Hashable, list[ApiResource]] | None = None
        self._others: tuple[tuple[str, str], ...] = ()  # of other providers, at the last revision

    def revision(self) -> Hashable:
        """Changes with the list of metrics."""
        self._others = tuple(sorted(self._sources.listed()))
        return (self._registry().revision, self._others)

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
                ApiResource(f"{resource}/{metric}", "", is_namespaced(resource), _KIND, _GET)
                for resource, metric in chain(sources, others)
            ])  # fmt: skip
        if version == self.versions[-1]:
            self._listed = None  # encoded by now: not worth 20 MB
        return known[1]

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
        key = ResponseCache.key(request)
        found = self._reuse.find(key)
        if found is not None and not options.has_checked(request):
            return found
        try:
            asked = _asked(request)
        except StatusError as error:
            return error.status
        described = mapping.resolve(self._sources.provider.mapper, *mapping.split(asked.written))
        if (absence := _absence(asked, described)) is not None:
            name = "" if asked.name == EVERY else asked.name
            return failures.metric_not_found(asked.written, asked.metric, name, absence)
        if _is_beyond(asked, described):
            return self._beyond(request, asked, described)
        return self._answer(request, key, asked, described)

    async def _beyond(
        self, request: ApiRequest, asked: _Asked, described: Resource | None
    ) -> Answered:
        # RBAC has judged the namespace of the path, which what is asked for does not lie in.
        wider = structs.replace(request.info, namespace="")
        permission = request.review(wider)
        if not isinstance(permission, Permission):
            permission = await permission
        if not permission.is_allowed:
            return denial(request.user, wider, permission.reason)
        # Kept apart: ``handle`` gives away what it finds without another review.
        key = (wider.resource, *ResponseCache.key(request))
        answer = self._reuse.find(key) or self._answer(request, key, asked, described)
        return answer if isinstance(answer, ApiResponse | Status) else await answer

    def _answer(
        self, request: ApiRequest, key: Key, asked: _Asked, described: Resource | None
    ) -> Answered | Awaitable[Answered]:
        if asked.name == EVERY:
            return self._several(request, key, asked, described)
        return self._single(request, key, asked, described)

    def _several(
        self, request: ApiRequest, key: Key, asked: _Asked, described: Resource | None
    ) -> Answered | Awaitable[Answered]:
        if described is None:
            return failures.internal("unable to list matching resources")
        scope = "" if described.group_resource == NAMESPACES.group_resource else asked.namespace
        answer = self._sources.several_at_once(
            described, scope, asked.selector, asked.metric, str(asked.metric_selector)
        )
        if answer is None:
            return self._several_later(request, key, asked, described, scope)
        response = self._body(request, described, scope, asked, answer.pods, answer.asked_s)
        is_same = self._same(described, scope, asked.selector)
        return self._reuse.keep(key, response, answer.asked_s, is_same)

    async def _several_later(
        self, request: ApiRequest, key: Key, asked: _Asked, described: Resource, scope: str
    ) -> Answered:
        written, metric = asked.written, asked.metric
        is_same = self._same(described, scope, asked.selector)
        try:
            answer = await self._sources.several(
                described, scope, asked.selector, metric, str(asked.metric_selector)
            )
        except KubeError as error:
            log.warning("objects not listed", resource=described.group_resource, error=str(error))
            cause = Cause(reason=type(error).__name__, message=f"cannot watch {written}")
            return failures.internal("unable to list matching resources", cause)
        if not isinstance(answer, PodSamples):
            if failures.is_absence(answer):
                return failures.metric_not_found(written, metric, failure=answer)
            return failures.source_failed(answer)
        response = self._body(request, described, scope, asked, answer.pods, answer.asked_s)
        return self._reuse.keep(key, response, answer.asked_s, is_same)

    async def _single(
        self, request: ApiRequest, key: Key, asked: _Asked, described: Resource | None
    ) -> Answered:
        written, namespace, name, metric = (
            asked.written, asked.namespace, asked.name, asked.metric,
        )  # fmt: skip
        metric_selector = str(asked.metric_selector)
        answer = await self._sources.single(written, namespace, name, metric, metric_selector)
        if not isinstance(answer, ObjectSample):
            if not failures.is_absence(answer):
                return failures.source_failed(answer)
            is_known = not failures.is_unknown_metric(answer)
            return failures.metric_not_found(written, metric, name if is_known else "", answer)
        if described is None:  # it is there since then, and nobody was asked about it
            return failures.metric_not_found(written, metric)
        scope = "" if described.group_resource == NAMESPACES.group_resource else namespace
        response = self._body(
            request, described, scope, asked, {name: answer.sample}, answer.asked_s
        )
        return self._reuse.keep(key, response, answer.asked_s)

    def _same(self, resource: Resource, namespace: str, selector: Selector) -> Callable[[], bool]:
        # Only the pod store can tell cheaply that a selection is unchanged; for other kinds
        # the bytes are kept for at most as long as the snapshot lives.
        if resource.group_resource != PODS.group_resource:
            return always
        return self._sources.provider.objects.same_pods(namespace, selector)

    def _body(
        self,
        request: ApiRequest,
        resource: Resource,
        namespace: str,
        asked: _Asked,
        samples: Mapping[str, Sample],
        asked_s: float,
    ) -> ApiResponse:
        items = [
            (name, s.value_milli, asked_s if s.time_s is None else s.time_s, s.window_s)
            for name, s in samples.items()
        ]
        if items:
            self._age.observe(max(0.0, self._clock() - min(item[2] for item in items)))
        body = bodies.metric_values(
            request.info.version, resource, namespace, asked.metric,
            options.echo(asked.metric_selector), items,
        )  # fmt: skip
        return ApiResponse(body)


def _absence(asked: _Asked, described: Resource | None) -> NoData | None:
    """Return why there cannot be what is asked for, ``None`` if there can."""
    kind = asked.written if described is None else described.group_resource
    if kind != NAMESPACES.group_resource:
        text = object_names.problem(kind, asked.namespace, asked.name)
    elif asked.namespace in ("", EVERY) or asked.name == asked.namespace:
        text = object_names.problem(kind, "", asked.name)
    else:
        text = f"of Namespaces only {asked.namespace} itself is asked for below it"
    return NoData(Stage.OBJECT_MISMATCH, text) if text else None


def _is_beyond(asked: _Asked, described: Resource | None) -> bool:
    """Return whether an answer may be of more than the namespace in the path."""
    if described is None or described.namespaced or not asked.namespace:
        return False
    return asked.namespace == EVERY or described.group_resource != NAMESPACES.group_resource


_KIND = "MetricValueList"
_GET = ("get",)


def _asked(request: ApiRequest) -> _Asked:
    """Return what the request asks for; raises ``StatusError``."""
    written, namespace, name, metric = _target(request)
    wanted = options.list_options(request, is_validated=False)
    options.require_name(wanted, name)
    return _Asked(written, namespace, name, metric, wanted.labels, options.metric_selector(request))


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
