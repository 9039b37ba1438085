"""What answers in Prometheus's name can make us do: nothing that is not asked of it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.apis import bodies, resource_api
from adapter.queries.readings import Origin, external, pods, single
from podscale.core.metrics import Stale
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.http.session import MOST_INTERIM
from podscale.feed.options import PrometheusOptions
from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.queries import answer_rows
from podscale.feed.queries.answer_rows import AnswerRows
from podscale.feed.range_reader import HistoryRequest, _Request
from tests.attacks.lists import longest_turn_s
from tests.unit.feed.prometheus import vector

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NOW_S = 1_700_000_000.0
SECRET = "s3cret-of-the-header"


@asynccontextmanager
async def listening(handle: Handler) -> AsyncIterator[str]:
    """Serve connections; the URL."""
    server = await asyncio.start_server(handle, "127.0.0.1")
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answers(*heads: bytes, heard: list[bytes] | None = None) -> Handler:
    """Answer every request with the next of ``heads``, and at last with a vector."""
    left = list(heads)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                if heard is not None:
                    heard.append(request)
                body = json.dumps(vector([({}, 1.0)], NOW_S)).encode()
                whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                said = left.pop(0) if left else whole
                writer.write(said)
                await writer.drain()
                if b"Connection: close" in said:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return handle


def client(url: str, **more: object) -> PrometheusClient:
    options = {"headers": (("X-Scope", SECRET),), "deadline_s": 5.0} | more
    return PrometheusClient(PrometheusOptions(url=url, **options))


@pytest.mark.parametrize("status", [b"100 Continue", b"103 Early Hints", b"102 Processing"])
async def test_endless_interim_answers_end_the_request(status):
    interim = b"HTTP/1.1 " + status + b"\r\n\r\n"
    sent = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            await reader.readuntil(b"\r\n\r\n")
            while True:
                writer.write(interim * 2_000)
                await writer.drain()
                sent += 2_000
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with listening(handle) as url, client(url) as asked:
        with pytest.raises(QueryError) as caught:
            await asked.query("up", NOW_S)
    assert caught.value.kind == "nonsense"
    assert "interim" in caught.value.detail
    assert sent < 200_000  # what lies in buffers


async def test_the_loop_is_not_held_by_interim_answers():
    async def asked_once(heads: bytes) -> None:
        async with listening(answers(heads)) as url, client(url) as asked:
            with contextlib.suppress(QueryError):
                await asked.query("up", NOW_S)

    interim = b"HTTP/1.1 100 Continue\r\n\r\n"
    refusal = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
    idle = min([(await longest_turn_s(asked_once(refusal)))[0] for _ in range(3)])
    held = min([(await longest_turn_s(asked_once(interim * 100_000)))[0] for _ in range(3)])
    print(f"{1000 * held:.2f} ms against {1000 * idle:.2f} ms")
    assert held < 10 * idle


async def test_a_few_interim_answers_are_passed_over():
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" * MOST_INTERIM
    body = json.dumps(vector([({}, 1.0)], NOW_S)).encode()
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with listening(answers(interim + whole, interim + whole)) as url, client(url) as asked:
        for _ in range(3):  # on one connection: they are counted for each request
            assert list((await asked.query("up", NOW_S)).values) == [1.0]


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", [
    "{other}/api", "//{other_host}/api", "https://{host}/api", "http://localhost:{port}/api",
    "http:\\\\{other_host}/api", "HTTP://{other_host}",
])  # fmt: skip
async def test_no_header_follows_a_redirect_to_another_origin(verb, status, target):
    heard: list[bytes] = []
    async with listening(answers(heard=heard)) as other:
        first: list[bytes] = []
        redirect: list[bytes] = []
        handle = answers_with(redirect, first)
        async with listening(handle) as url:
            host = url.removeprefix("http://")
            to = target.format(
                other=other, other_host=other.removeprefix("http://"), host=host,
                port=host.partition(":")[2],
            )  # fmt: skip
            redirect.append(
                b"HTTP/1.1 %d Elsewhere\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n"
                % (status, to.encode())
            )
            async with client(url, verb=verb) as asked:
                with pytest.raises(QueryError) as caught:
                    await asked.query("up", NOW_S)
    assert heard == []
    assert len(first) == 1
    assert SECRET not in caught.value.detail


def answers_with(heads: list[bytes], heard: list[bytes]) -> Handler:
    """Answer every request with the first of ``heads``, which may be filled later."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                heard.append(request)
                writer.write(heads[0])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return handle


async def test_the_history_follows_no_redirect_to_another_origin():
    heard: list[bytes] = []
    async with listening(answers(heard=heard)) as other:
        elsewhere = (
            b"HTTP/1.1 302 Elsewhere\r\nLocation: %b/\r\nConnection: close\r\n"
            b"Content-Length: 0\r\n\r\n" % other.encode()
        )
        async with listening(answers(elsewhere, elsewhere, elsewhere)) as url:
            options = PrometheusOptions(url=url, headers=(("X-Scope", SECRET),))

            def ask() -> None:
                HistoryRequest(options)(_Request("up", 0, 60, 30, 100, 1), 0, 60)

            with pytest.raises(QueryError):
                await asyncio.to_thread(ask)
    assert heard == []


# As JSON writes them, and as ``timestamp()`` may.
ABSURD = (
    "1e15", "1e300", "-1", "-62135596801", "253402300800", "31690708000000000000", "1e400", "-1e400"
)  # fmt: skip
PLAN = QueryPlan("custom", "r", "m", KeyLabels("namespace", "pod"), lambda *_: "m")
EXTERNAL = QueryPlan("external", "r", "m", KeyLabels("namespace"), lambda *_: "m")
ORIGIN = Origin("m", "rules[0]")


@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("written", ABSURD)
async def test_an_answer_of_an_absurd_time_is_none(written, is_raw):
    rows = [{"metric": {"pod": "a"}, "value": ["@", "1"]}] * 3
    text = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})
    body = text.replace('"@"', written).replace(" ", "").encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with listening(answers(head)) as url, client(url) as asked:
        with pytest.raises(QueryError) as caught:
            await asked.query("up", NOW_S, is_raw=is_raw)
    assert caught.value.failure.reason == "PrometheusAnswerInvalid"


@pytest.mark.parametrize("limit_s", [300.0, float("inf")])
@pytest.mark.parametrize("time_s", [
    1e15, 1e300, -1e300, float("inf"), float("-inf"), float("nan"), NOW_S + 7_200.0, 253402300800.0,
])  # fmt: skip
def test_a_sample_of_an_absurd_time_is_stale_and_its_neighbour_is_not(time_s, limit_s):
    rows = AnswerRows(NOW_S)
    for name in ("liar", "honest"):
        rows.names.append(name)
        rows.objects[name] = len(rows.values)
        rows.append(1.0, NOW_S)
    rows.stamps = {"liar": time_s, "honest": NOW_S - 5.0}
    made = answer_rows.reading(rows, PLAN, limit_s)
    listed = pods(made, ("liar", "honest"), ORIGIN)
    assert (listed.pods.keys(), listed.stale) == ({"honest"}, {"liar"})
    answer = single(made, "liar", ORIGIN)
    assert isinstance(answer, Stale)
    for sample in listed.pods.values():
        bodies.timestamp(int(sample.time_s))
    outer = AnswerRows(NOW_S, stamps={"": time_s})
    outer.names.append("")
    outer.labels.append({})
    outer.append(1.0, NOW_S)
    found = external(answer_rows.reading(outer, EXTERNAL, limit_s), ORIGIN)
    assert isinstance(found, Stale)


@pytest.mark.parametrize("time_s", [
    1e15, -1e15, 1e300, -1e300, float("inf"), float("-inf"), 0.0, -1.0, NOW_S,
])  # fmt: skip
def test_every_time_can_be_written(time_s):
    written = rfc3339(time_s)
    assert len(written) == len("2026-11-21T10:00:00Z") or time_s < -1e14
    measured = resource_api.MeasuredUsage("a", "b", {}, {}, time_s)
    assert resource_api.body(measured, "1m", NOW_S)["timestamp"] == written
