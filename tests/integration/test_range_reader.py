"""History of a real Prometheus through the child process."""

import asyncio
import math
import os
import signal
import tempfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest

from podscale.feed.errors import QueryError
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryClient, HistoryReader
from tests.integration.prometheus import PrometheusServer

END_S = 1_700_000_000
STEP_S = 300
STEPS = 600
SERIES = 40


def value(series, step):
    return math.nan if (series, step) == (3, 5) else series * 1000 + step / 4


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    lines = [
        f'usage{{namespace="n",pod="p{series:02}"}} {value(series, step)} '
        f"{END_S - (STEPS - 1 - step) * STEP_S}"
        for series in range(SERIES)
        for step in range(STEPS)
    ]
    text = "\n".join([*lines, "# EOF\n"]).replace("nan", "NaN")
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), openmetrics=text) as server:
        yield server


def reader(server):
    return HistoryReader(PrometheusOptions(url=server.url))


async def test_every_sample_arrives_once_in_slices_of_bounded_size(prometheus):
    got, sizes, done = {}, [], []
    async with reader(prometheus) as history:
        start_s = END_S - (STEPS - 1) * STEP_S
        async for part in history.read("usage", start_s, END_S, STEP_S, points=5000):
            sizes.append(sum(len(series.values) for series in part.series))
            done.append(part.done)
            for series in part.series:
                name = series.labels["pod"]
                got.setdefault(name, []).append((series.time_s, series.values))
    assert len(sizes) > 4
    assert max(sizes) <= 5000
    assert done == sorted(done)
    assert done[-1] == 1.0
    assert len(got) == SERIES
    for place in range(SERIES):
        times, values = map(np.concatenate, zip(*got[f"p{place:02}"], strict=True))
        assert times.tolist() == [END_S - (STEPS - 1 - s) * STEP_S for s in range(STEPS)]
        expected = np.array([value(place, step) for step in range(STEPS)])
        np.testing.assert_array_equal(values, expected)


async def test_one_reader_answers_many_queries_and_survives_a_bad_one(prometheus):
    async with reader(prometheus) as history:
        for query in ("usage", "usage{pod='p01'}"):
            assert [p async for p in history.read(query, END_S - 600, END_S, STEP_S)]
        with pytest.raises(QueryError) as caught:
            [p async for p in history.read("usage{", END_S - 600, END_S, STEP_S)]
        assert caught.value.kind == "bad-data"
        assert "parse error" in caught.value.detail
        (part,) = [p async for p in history.read("sum(usage)", END_S, END_S, STEP_S)]
        assert part.series[0].values.tolist() == [sum(value(s, STEPS - 1) for s in range(SERIES))]


async def test_an_empty_history_is_no_failure(prometheus):
    async with reader(prometheus) as history:
        parts = [p async for p in history.read("nothing", END_S - 600, END_S, STEP_S)]
    assert all(not part.series for part in parts)


async def test_prometheus_down_is_unreachable_after_the_last_attempt(unused_tcp_port):
    options = PrometheusOptions(url=f"http://127.0.0.1:{unused_tcp_port}")
    async with HistoryReader(options) as history:
        with pytest.raises(QueryError) as caught:
            [p async for p in history.read("a", 0, 60, 60, attempts=2)]
    assert caught.value.kind == "unreachable"


async def test_a_child_that_dies_is_an_error_not_a_hang(prometheus):
    async with reader(prometheus) as history:
        [p async for p in history.read("usage", END_S, END_S, STEP_S)]
        history._child.kill()
        with pytest.raises(QueryError) as caught:
            async with asyncio.timeout(20):
                [p async for p in history.read("usage", END_S, END_S, STEP_S)]
    assert caught.value.kind == "unreachable"


async def test_a_child_that_hangs_is_an_error_not_a_hang(prometheus, monkeypatch):
    monkeypatch.setattr("podscale.feed.range_reader.SLICE_DEADLINE_S", 0.5)
    async with reader(prometheus) as hanging:
        os.kill(hanging._child.pid, signal.SIGSTOP)
        with pytest.raises(QueryError) as caught:
            async with asyncio.timeout(20):
                [p async for p in hanging.read("usage", END_S, END_S, STEP_S)]
    assert caught.value.kind == "deadline"


@pytest.mark.parametrize("data", [{}, {"ca_data": "not read without TLS"}])
async def test_a_reader_leaves_no_file_behind(prometheus, data, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    async with HistoryReader(PrometheusOptions(url=prometheus.url, **data)) as history:
        [p async for p in history.read("usage", END_S, END_S, STEP_S)]
    assert not list(tmp_path.iterdir())


def test_what_a_client_reads_is_not_packed_for_it():
    accepted = []

    class Prometheus(BaseHTTPRequestHandler):
        def do_GET(self):
            accepted.append(self.headers["Accept-Encoding"])
            body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    async def parts():
        client = HistoryClient(PrometheusOptions(url=f"http://127.0.0.1:{server.server_port}"))
        return [len(part.series) async for part in client.read("up", 0, 60, 60)]

    with HTTPServer(("127.0.0.1", 0), Prometheus) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert asyncio.run(parts()) == [0]
        server.shutdown()
    assert accepted == ["identity"]
