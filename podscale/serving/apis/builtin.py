"""The paths every one of our servers has: index, discovery, OpenAPI, health, metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog
from msgspec import UNSET
from prometheus_client import generate_latest

from podscale.core.ascii_text import whole_number
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiGroup, ApiRequest, ApiResponse, Handler, Route
from podscale.serving.apis.discovery import Document, ServedDiscovery, openapi_documents
from podscale.serving.apis.negotiate import JSON, discovery_version, takes_gzip
from podscale.serving.monitoring.health import ENDPOINTS, Endpoint, Health, HealthReport
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.monitoring.selfmetrics import SelfMetrics

_TEXT = "text/plain; charset=utf-8"
_EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"
# What the metrics APIs' original answers, empty fields included; clients read the numbers.
_VERSION = {
    "major": "1", "minor": "0", "gitVersion": "", "gitCommit": "", "gitTreeState": "",
    "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
}  # fmt: skip


def routes(
    groups: Sequence[ApiGroup],
    others: Sequence[Route],
    *,
    health: Health,
    metrics: SelfMetrics,
    verbosity: Verbosity,
    port: Callable[[], int],
    release: str,
) -> list[Route]:
    """Return the built-in routes; ``others`` only appear in the index."""
    found: list[Route] = [
        *_discovery_routes(groups, port),
        *_openapi_routes(groups, release),
        *_health_routes(health),
        Route("/version", _constant(ApiResponse(value=_VERSION))),
        Route("/version/", _constant(ApiResponse(value=_VERSION)), is_listed=False),
        Route("/metrics", _metrics(metrics)),
        Route("/debug/flags/v", _flags_v(verbosity), ("GET", "PUT")),
    ]
    taken = {route.path for route in others}
    found = [route for route in found if route.path not in taken]

    def index(code: int) -> Handler:
        def handle(_request: ApiRequest) -> ApiResponse:
            listed = [route.path for route in (*found, *others) if route.is_listed]
            return ApiResponse(value={"paths": sorted({*listed, *health.paths()})}, status=code)

        return handle

    if "/" not in taken:
        found.append(Route("/", index(200), is_listed=False))
    # Legacy discovery asks here; only the 404 matters, the body is upstream's.
    found.append(Route("/api", index(404), is_listed=False))
    return found


def _constant(response: ApiResponse) -> Handler:
    return lambda _request: response


def _discovery_routes(groups: Sequence[ApiGroup], port: Callable[[], int]) -> Iterable[Route]:
    discovery = ServedDiscovery(groups)

    def document(key: str, content_type: str) -> Handler:
        async def handle(request: ApiRequest) -> Answered:
            return _document(request, await discovery.document(key), content_type)

        return handle

    aggregated = {
        form: document(
            form, f"application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
        )
        for form in ("v2", "v2beta1")
    }

    def all_groups(request: ApiRequest) -> Answered | Awaitable[Answered]:
        form = discovery_version(request.headers.get("accept", ""))
        if form:
            return aggregated[form](request)
        return ApiResponse(body=discovery.group_list(port()), headers=(("Vary", "Accept"),))

    def one_group(name: str) -> Handler:
        return lambda _request: ApiResponse(body=discovery.group(name) or b"")

    yield Route("/apis", all_groups)
    for group in groups:
        path = f"/apis/{group.name}"
        yield Route(path, one_group(group.name))
        yield Route(f"{path}/", one_group(group.name), is_listed=False)
        for version in group.versions:
            handler = document(f"{group.name}/{version}", JSON)
            yield Route(f"{path}/{version}", handler)
            yield Route(f"{path}/{version}/", handler, is_listed=False)


def _document(request: ApiRequest, document: Document, content_type: str) -> ApiResponse:
    headers = (("ETag", document.etag), ("Vary", "Accept"))
    if request.headers.get("if-none-match") == document.etag:
        return ApiResponse(status=304, content_type=content_type, headers=headers)
    is_plain = content_type == JSON
    if is_plain and (request.media.is_pretty or request.media.content_type != JSON):
        return ApiResponse(body=document.body, headers=headers)
    if document.gzipped and takes_gzip(request.headers):
        zipped = (*headers, ("Content-Encoding", "gzip"))
        return ApiResponse(document.gzipped, 200, UNSET, content_type, zipped)
    return ApiResponse(document.body, 200, UNSET, "" if is_plain else content_type, headers)


def _openapi_routes(groups: Sequence[ApiGroup], release: str) -> Iterable[Route]:
    documents = openapi_documents(groups, release)

    def v2(request: ApiRequest) -> ApiResponse:
        headers = (("ETag", documents.v2_etag),)
        if request.headers.get("if-none-match") == documents.v2_etag:
            return ApiResponse(status=304, content_type=JSON, headers=headers)
        return ApiResponse(body=documents.v2, content_type=JSON, headers=headers)

    def v3(body: bytes) -> Handler:
        return _constant(ApiResponse(body=body, content_type=JSON))

    yield Route("/openapi/v2", v2)
    yield Route("/openapi/v3", v3(documents.index))
    yield Route("/openapi/v3/", v3(documents.index))
    for path, body in documents.v3.items():
        yield Route(f"/openapi/v3/{path}", v3(body), is_listed=False)


def _health_routes(health: Health) -> Iterable[Route]:
    for endpoint in ENDPOINTS:
        yield Route(f"/{endpoint}", _whole(health, endpoint), ("GET", "HEAD"), is_listed=False)
        yield Route(f"/{endpoint}/*", _single(health, endpoint), is_listed=False)


def _whole(health: Health, endpoint: Endpoint) -> Handler:
    def handle(request: ApiRequest) -> ApiResponse:
        excluded = request.query.get("exclude", ())
        is_verbose = "verbose" in request.query
        return _text(health.report(endpoint, is_verbose=is_verbose, excluded=excluded))

    return handle


def _single(health: Health, endpoint: Endpoint) -> Handler:
    def handle(request: ApiRequest) -> Answered:
        name = request.path.removeprefix(f"/{endpoint}/")
        report = health.single(endpoint, name)
        return status.path_not_found() if report is None else _text(report)

    return handle


def _text(report: HealthReport) -> ApiResponse:
    headers = (("X-Content-Type-Options", "nosniff"),)
    return ApiResponse(report.text.encode(), report.status, UNSET, _TEXT, headers)


def _metrics(metrics: SelfMetrics) -> Handler:
    async def handle(_request: ApiRequest) -> Answered:
        # In a thread: thousands of lines take milliseconds, and process metrics read files.
        body = await asyncio.to_thread(generate_latest, metrics.registry)
        return ApiResponse(body=body, content_type=_EXPOSITION)

    return handle


def _flags_v(verbosity: Verbosity) -> Handler:
    """``/debug/flags/v``, upstream's way to change klog's verbosity: PUT a number."""

    def handle(request: ApiRequest) -> Answered:
        if request.method == "GET":
            return ApiResponse(body=f"{verbosity.v}\n".encode(), content_type=_TEXT)
        text = request.body.decode("utf-8", "replace").strip()
        level = whole_number(text)
        if level is None or level > 999:
            return status.bad_request(f'"{text[:40]}" is not a verbosity; send a number such as 4')
        old, verbosity.v = verbosity.v, level
        structlog.get_logger().info(
            "VerbosityChanged", old=old, new=verbosity.v, user=request.user.name
        )
        done = f"successfully set klog.logging.verbosity to {text}"
        return ApiResponse(body=done.encode(), content_type=_TEXT)

    return handle
