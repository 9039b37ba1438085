"""The HTTP surface under random requests: always HTTP, always a Status, never a traceback."""

import asyncio
import io
import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscale.serving.apis import builtin
from podscale.serving.apis.api import ApiRequest, ApiResponse
from podscale.serving.auth.authentication import Authenticator, TokenReviews
from podscale.serving.auth.authorization import Authorizer
from podscale.serving.auth.trust import Trust
from podscale.serving.handler_chain import HandlerChain
from podscale.serving.http.connection import HttpConnection
from podscale.serving.http.server import HttpServer
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity, configure
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.status import StatusError, not_found
from tests.unit.serving.kit import GROUP, ScriptedApi, Shop

SEGMENTS = st.one_of(
    st.sampled_from(
        ["apis", "namespaces", "pods", "*", "%2A", "default", "metrics", "nodes", "v1beta1",
         "v1beta2", "", "..", "%00", "%ff", "%2F", "healthz", "readyz", "openapi", "v2", "v3",
         GROUP, "debug", "flags", "v", "version", "api", "watch", "proxy", "status"]
    ),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x2FF), max_size=6),
)  # fmt: skip
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["Accept", "Authorization", "X-Remote-User", "X-Remote-Group", "If-None-Match",
             "Accept-Encoding", "Audit-Id", "User-Agent", "X-Remote-Extra-%zz", "Expect", "Range"]
        ),
        st.one_of(
            st.sampled_from(
                ["Bearer admin", "Bearer bob", "application/yaml", "text/html", "*/*", "gzip",
                 "application/json;as=Table;g=meta.k8s.io;v=v1", "curl/8", "100-continue"]
            ),
            st.text(st.characters(min_codepoint=0x20, max_codepoint=0x2FF), max_size=30),
        ),
    ),
    max_size=5,
)  # fmt: skip
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(["labelSelector", "timeout", "pretty", "watch", "verbose", "exclude", ""]),
        st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=8),
    ),
    max_size=3,
)


class Recorder(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


def answer(request: ApiRequest) -> ApiResponse:
    if request.info.name == "boom":
        raise RuntimeError("swordfish")
    if request.info.name == "gone":
        raise StatusError(not_found("gone"))
    return ApiResponse(body=b'{"kind":"MetricValueList"}')


@pytest.fixture(scope="module")
def surface() -> Iterator[tuple[asyncio.Runner, HttpServer]]:
    configure("json", Verbosity(), io.StringIO())
    with asyncio.Runner() as runner:
        api, metrics, shop = ScriptedApi(), SelfMetrics(), Shop()
        shop.answer = answer
        routes = builtin.routes(
            [shop],
            [],
            health=Health(),
            metrics=metrics,
            verbosity=Verbosity(),
            port=lambda: 6443,
            release="0",
        )
        front = HandlerChain(
            [shop],
            routes,
            Authenticator(Trust(), TokenReviews(api, metrics), metrics),
            Authorizer(api, metrics),
            metrics,
        )
        yield runner, HttpServer(front.respond)


async def exchange(server: HttpServer, sent: bytes) -> bytes:
    transport = Recorder()
    async with asyncio.TaskGroup() as tasks:
        server._tasks = tasks
        connection = HttpConnection(server)
        connection.connection_made(transport)
        connection.data_received(sent)
    server.closed(connection)
    return bytes(transport.written)


@settings(max_examples=400, deadline=None)
@given(
    method=st.sampled_from(["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "BREW"]),
    segments=st.lists(SEGMENTS, max_size=9),
    query=QUERIES,
    headers=HEADERS,
    body=st.binary(max_size=20),
)
def test_every_answer_is_http_and_every_failure_a_status(
    surface: tuple[asyncio.Runner, HttpServer],
    method: str,
    segments: list[str],
    query: list[tuple[str, str]],
    headers: list[tuple[str, str]],
    body: bytes,
) -> None:
    target = "/" + "/".join(segments)
    if query:
        target += "?" + "&".join(f"{key}={value}" for key, value in query)
    lines = [f"{method} {target} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    runner, server = surface
    sent = "\r\n".join([*lines, "", ""]).encode() + body
    got = runner.run(exchange(server, sent))
    while got.startswith(b"HTTP/1.1 100 "):
        got = got.partition(b"\r\n\r\n")[2]
    head, separator, answered = got.partition(b"\r\n\r\n")
    assert separator, got
    first, *fields = head.decode("latin-1").split("\r\n")
    code = int(first.split(" ")[1])
    named = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
    assert b"swordfish" not in got
    assert b"Traceback" not in got
    if code == 304:
        assert not answered
        return
    if method == "HEAD" and named.get("connection") != "close":
        assert not answered  # a request that cannot be read is refused with a body
        return
    assert len(answered) == int(named["content-length"])
    if code >= 400 and named["content-type"] == "application/json" and target != "/api":
        status = json.loads(answered)
        assert status["kind"] == "Status" or "paths" in status
        assert status.get("code", code) == code
