"""The client against a fake Prometheus: answers as read, failures by class."""

import asyncio
import gzip
import json
import re
import time
from pathlib import Path

import pytest
import structlog
from aiohttp import web

from podscale.core.metrics import Refused, Unavailable
from podscale.feed.errors import QueryError
from podscale.feed.http import refusals
from podscale.feed.http.client import PrometheusClient, format_time
from podscale.feed.options import PrometheusOptions
from tests.unit.feed.prometheus import FakePrometheus, connected, refused, serving, vector

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"


@pytest.fixture
async def fake():
    async with serving(FakePrometheus({("n1", "p0"): 1.0})) as server:
        yield server


def body(text, status=200, **headers):
    return web.Response(status=status, text=text, content_type="application/json", headers=headers)


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(1.0, "1"), (1.5, "1.5"), (1700000000.1239, "1700000000.124"), (1700000000.0, "1700000000")],
)
def test_time_has_at_most_three_decimals(time_s, text):
    assert format_time(time_s) == text


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://x", "http://", ""])
def test_a_url_without_scheme_or_host_is_refused(url):
    with pytest.raises(ValueError, match="not an http or https URL"):
        PrometheusClient(PrometheusOptions(url=url))


@pytest.mark.parametrize(
    ("answer", "kind", "failure"),
    [
        (lambda: refused(400, "bad_data"), "bad-data", Refused),
        (lambda: refused(401, "x"), "unauthorized", Refused),
        (lambda: refused(403, "x"), "forbidden", Refused),
        (lambda: refused(422, "execution"), "execution", Refused),
        (lambda: refused(503, "timeout"), "timeout", Unavailable),
        (lambda: refused(503, "canceled"), "gateway", Unavailable),
        (lambda: refused(500, "internal"), "gateway", Unavailable),
        (lambda: web.Response(status=429), "throttled", Unavailable),
        (lambda: web.Response(status=502, text="<html>"), "gateway", Unavailable),
        (lambda: web.Response(status=413), "oversize", Unavailable),
        (lambda: web.Response(status=404, text="<html>"), "nonsense", Unavailable),
        (lambda: web.Response(status=400, text="<html>"), "nonsense", Unavailable),
        (lambda: web.Response(text="<html>sign in</html>"), "nonsense", Unavailable),
        (lambda: body('{"status":"success","data":{"resultType":"vec'), "nonsense", Unavailable),
        (lambda: body('{"status":"error","errorType":"x"}'), "nonsense", Unavailable),
        (lambda: body('{"status":"success","data":{"resultType":"vector","result":'
                      '[{"metric":{},"value":[1,"x"]}]}}'), "nonsense", Unavailable),
        (lambda: body("[]"), "nonsense", Unavailable),
        (lambda: body('{"status":"success","data":' + "[" * 5000), "nonsense", Unavailable),
        (lambda: body('{"status":"success","data":{"resultType":"vector","result":'
                      '[{"metric":{"a":' + "[" * 5000), "nonsense", Unavailable),
        (lambda: web.Response(status=302, headers={"Location": "http://a..b/"}), "nonsense",
         Unavailable),
        (lambda: body(""), "nonsense", Unavailable),
    ],
)  # fmt: skip
async def test_failures_have_a_class(fake, answer, kind, failure):
    fake.react = lambda _: answer()
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("secret_metric", 1.0)
        fake.react = None
        assert list((await client.query("a", 1.0)).values) == [1.0]  # the connection recovers
    assert caught.value.kind == kind
    assert isinstance(caught.value.failure, failure)
    assert "secret_metric" not in caught.value.failure.message


TOO_MUCH = [
    (422, "execution", "query processing would load too many samples into memory",
     "execution", "--query.max-samples"),
    (422, "execution", "expanding series: context deadline exceeded", "timeout", "--query.timeout"),
    (503, "timeout", "query timed out in expression evaluation", "timeout", "--query.timeout"),
    (422, "execution", "query timed out in query execution", "timeout", "--query.timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "error_type", "words", "kind", "setting"), TOO_MUCH)
async def test_a_query_that_is_too_much_is_told_what_to_do(
    fake, status, error_type, words, kind, setting
):
    fake.react = lambda _: refused(status, error_type, words)
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("secret_metric", 1.0)
    told = caught.value.failure
    assert caught.value.kind == kind
    assert setting in told.message
    assert "recording rule" in told.message
    assert words not in told.message
    assert getattr(told, "is_timeout", False) is (kind == "timeout")
    assert refusals.advice(caught.value.detail) in told.message  # as the doctor says it


async def test_a_clock_without_a_time_is_no_answer_of_prometheus(fake):
    fake.react = lambda _: body('{"status":"success","data":{"resultType":"vector","result":[]}}')
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.clock_s()
    assert caught.value.kind == "nonsense"


async def test_a_refusal_that_arrives_in_two_parts_is_read_whole(fake):
    async def react(asked):
        said = refused(400, "bad_data", "x" * 5000).body
        response = web.StreamResponse(status=400)
        await response.prepare(asked.request)
        await response.write(said[:100])
        await asyncio.sleep(0.05)  # so that the parts are two reads
        await response.write(said[100:])
        return response

    fake.react = react
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
    assert caught.value.kind == "bad-data"


@pytest.mark.parametrize(
    ("asked_for", "kept"),
    [("7", 7.0), ("3600", 10.0), ("9" * 400, 10.0), ("\u00b2", None), ("soon", None)],
)
async def test_the_wait_that_a_429_asks_for_is_kept_but_not_for_hours(fake, asked_for, kept):
    fake.react = lambda _: web.Response(status=429, headers={"Retry-After": asked_for})
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
    assert caught.value.failure.retry_after_s == kept


async def test_a_large_page_of_html_costs_no_more_than_reading_it(fake):
    fake.react = lambda _: web.Response(text="<html>" + "x" * 4_000_000)
    async with connected(fake, deadline_s=60.0) as client:
        began = time.process_time()
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
        html_s = time.process_time() - began
        text = json.dumps(vector([({"pod": "p" * 400}, 1.0)] * 9000, 1.0), separators=(",", ":"))
        fake.react = lambda _: body(text)
        began = time.process_time()
        await client.query("a", 1.0)
        answer_s = time.process_time() - began
    assert caught.value.kind == "nonsense"
    assert html_s < 5 * answer_s  # searched again with every chunk, it took 20 times as long


async def test_prometheus_down_is_unreachable(fake, unused_tcp_port):
    options = PrometheusOptions(url=f"http://127.0.0.1:{unused_tcp_port}")
    async with PrometheusClient(options) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
    assert caught.value.kind == "unreachable"


@pytest.mark.parametrize("by_parts", [False, True])
async def test_a_hanging_answer_ends_at_the_deadline(fake, by_parts):
    release = asyncio.Event()

    async def react(asked):
        if by_parts:
            response = web.StreamResponse()
            await response.prepare(asked.request)
            await response.write(b'{"status":')
        await release.wait()

    fake.react = react
    async with connected(fake, deadline_s=0.2) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
    release.set()
    assert caught.value.kind == "deadline"
    assert caught.value.failure.is_timeout


async def test_a_body_cut_off_is_nonsense(fake):
    async def react(asked):
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(asked.request)
        await response.write(b'{"status":"success"')
        asked.request.transport.close()

    fake.react = react
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0)
    assert caught.value.kind in ("nonsense", "unreachable")


async def test_a_body_over_the_limit_is_oversize_however_it_is_packed(fake):
    rows = [({"pod": f"p{i}"}, 1.0) for i in range(20_000)]
    text = json.dumps(vector(rows, 1.0), separators=(",", ":")).encode()
    fake.react = lambda _: web.Response(
        body=gzip.compress(text), headers={"Content-Encoding": "gzip"}
    )
    async with connected(fake, body_limit_bytes=len(text) - 1) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("a", 1.0, compress=True)
    assert caught.value.kind == "oversize"
    async with connected(fake, body_limit_bytes=len(text)) as client:
        assert len((await client.query("a", 1.0, compress=True)).values) == 20_000


@pytest.mark.parametrize("count", [0, 1, 3, 5000])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
async def test_vectors_of_any_size_are_read_whole_and_in_order(fake, count, separators):
    rows = [({"pod": f"p{i}", "x": '"},{"'}, float(i)) for i in range(count)]
    text = json.dumps(vector(rows, 1.0, warnings=["PromQL warning: x"]), separators=separators)
    fake.react = lambda _: body(text)
    async with connected(fake) as client:
        answer = await client.query("a", 1.0)
    assert list(zip(answer.metrics, answer.values, strict=True)) == rows
    assert answer.warnings == ("PromQL warning: x",)
    assert not answer.is_partial


async def test_special_values_scalars_and_strings_are_told_apart(fake):
    def result(kind, data):
        return body(json.dumps({"status": "success", "data": {"resultType": kind, "result": data}}))

    values = ["NaN", "+Inf", "-Inf", "1e30", "-0"]
    answers = [
        result("vector", [{"metric": {}, "value": [1, value]} for value in values]),
        result("scalar", [1, "2.5"]),
        result("string", [1, "text"]),
        result("matrix", [{"metric": {}, "values": [[1, "2"]]}]),
        result("vector", [{"metric": {}, "histogram": [1, {"count": "2"}]}]),
    ]
    fake.react = lambda _: answers.pop(0)
    async with connected(fake) as client:
        got = [await client.query("a", 1.0) for _ in range(5)]
    assert [str(value) for value in got[0].values] == ["nan", "inf", "-inf", "1e+30", "-0.0"]
    assert [answer.kind for answer in got] == ["vector", "scalar", "string", "matrix", "vector"]
    assert list(got[1].values) == [2.5]
    assert (list(got[4].values), got[4].is_float_only) == ([], False)


async def test_series_are_reduced_to_names_and_label_names(fake):
    entries = [
        {"__name__": f"m{i % 7}", "namespace": "n", **({"pod": str(i)} if i % 2 else {})}
        for i in range(3000)
    ]
    document = {"status": "success", "data": entries, "warnings": ["slow"]}
    fake.react = lambda _: body(json.dumps(document, separators=(",", ":")))
    async with connected(fake) as client:
        series = await client.series("{namespace!=''}", 5.0)
    assert series.count == 3000
    assert set(series.names) == {f"m{i}" for i in range(7)}
    assert series.names["m0"] == {
        frozenset({"__name__", "namespace"}),
        frozenset({"__name__", "namespace", "pod"}),
    }
    assert series.names["m0"] is series.names["m1"]
    assert series.is_partial


@pytest.mark.parametrize(
    "text", ['{"status":"success","data":null}', '{"status":"success","data":[]}']
)
async def test_no_series_is_no_failure(fake, text):
    fake.react = lambda _: body(text)
    async with connected(fake) as client:
        assert (await client.series("x", 1.0)).count == 0


async def test_a_connection_that_died_while_idle_is_replaced(fake):
    async with connected(fake) as client:
        await client.query("a", 1.0, verb="POST")

        def react(asked):
            if len(fake.asked) == 2:
                asked.request.transport.abort()

        fake.react = react
        answer = await client.query("a", 1.0, verb="POST")
    assert list(answer.values) == [1.0]


async def test_an_outage_is_logged_when_it_begins_and_when_it_ends_with_its_length():
    now = 1_700_000_000.0
    async with serving(FakePrometheus({("n1", "p0"): 1.0})) as server:
        options = PrometheusOptions(url=server.url)
        async with PrometheusClient(options, clock=lambda: now) as client:
            with structlog.testing.capture_logs() as logs:
                await client.query("up", now)
                for second in range(10, 60, 10):
                    server.react = lambda _: web.Response(status=503)
                    now = 1_700_000_000.0 + second
                    with pytest.raises(QueryError):
                        await client.query("up", now)
                server.react = None
                now += 10.0
                await client.query("up", now)
                await client.query("up", now)
    begin, end = ((each["event"], each.get("outage_s")) for each in logs)
    assert begin == ("Prometheus does not answer", None)
    assert end == ("Prometheus answers again", 50)
    (pattern,) = re.findall("grep -E '([^']*)'", OPERATIONS.read_text(encoding="utf-8"))
    assert all(re.search(pattern, each["event"]) for each in logs)


@pytest.mark.parametrize(("answer", "said"), [
    (web.Response(status=403), "--prometheus-token-file"),
    (web.Response(status=404, text="404 page not found"), "may lack a path prefix"),
    (web.Response(status=503, text="Service Unavailable"), "is it ready (/-/ready)?"),
    (web.Response(text="<html>sign in</html>"), "perhaps a login page"),
])  # fmt: skip
async def test_a_refusal_says_the_next_step(fake, answer, said):
    fake.react = lambda _: answer
    async with connected(fake) as client:
        with pytest.raises(QueryError) as caught:
            await client.query("up", 1.0)
    assert said in caught.value.failure.message


@pytest.mark.parametrize("why", ["CERTIFICATE_VERIFY_FAILED] certificate verify failed",
                                 "WRONG_VERSION_NUMBER] wrong version number"])  # fmt: skip
def test_a_failure_of_tls_names_the_flag_of_its_ca(why):
    cause = OSError(f"Cannot connect to host p:443 ssl:True [SSLError: (1, '[SSL: {why}')]")
    assert "--prometheus-ca-file" in refusals.of_connection(cause).failure.message
    plain = OSError("Cannot connect to host p:443 ssl:default [Connect call failed]")
    assert "--prometheus-ca-file" not in refusals.of_connection(plain).failure.message
