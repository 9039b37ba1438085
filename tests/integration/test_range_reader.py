"""History of a real Prometheus through the child process."""

import asyncio
import math
import os
import signal
import ssl
import tempfile
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest

from podscale.feed.errors import QueryError
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryClient, HistoryReader
from podscale.serving.certificates.issuing import make_authority, make_client, make_leaf
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
    async with HistoryReader(options, attempts=2) as history:
        with pytest.raises(QueryError) as caught:
            [p async for p in history.read("a", 0, 60, 60)]
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


ACCEPTED: list[str] = []


class Empty(BaseHTTPRequestHandler):
    """A Prometheus without series, which notes how it may answer; it has moved from /old."""

    def do_GET(self):
        if self.path.startswith("/old"):
            self.send_response(308)
            self.send_header("Location", self.path.removeprefix("/old"))
            self.end_headers()
            return
        ACCEPTED.append(self.headers["Accept-Encoding"])
        body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def serving(tls=None):
    with HTTPServer(("127.0.0.1", 0), Empty) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_a_client_reads_is_not_packed_for_it():
    ACCEPTED.clear()

    async def parts():
        client = HistoryClient(PrometheusOptions(url=url))
        return [len(part.series) async for part in client.read("up", 0, 60, 60)]

    with serving() as url:
        assert asyncio.run(parts()) == [0]
    assert ACCEPTED == ["identity"]


async def test_history_is_read_with_the_authorities_and_the_certificate_of_the_options(tmp_path):
    now = time.time()
    ours, other = (make_authority(name, now=now, life_s=3600.0) for name in ("ours", "other"))
    client = make_client(ours, "podscale", now=now, life_s=3600.0)
    leaf = make_leaf(ours, ["127.0.0.1"], now=now, life_s=3600.0)
    files = {"ca": ours.certificate, "leaf": leaf.certificate + leaf.key,
             "cert": client.certificate, "key": client.key}  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "leaf")
    tls.load_verify_locations(tmp_path / "ca")
    tls.verify_mode = ssl.CERT_REQUIRED
    by_file = {"client_cert_file": tmp_path / "cert", "client_key_file": tmp_path / "key"}
    by_text = {"client_cert_data": client.certificate.decode(),
               "client_key_data": client.key.decode()}  # fmt: skip
    with serving(tls) as url:
        for options, is_served in (
            ({"ca_file": tmp_path / "ca", **by_file}, True),
            ({"ca_data": ours.certificate.decode(), **by_text}, True),
            ({"is_insecure": True, **by_text}, True),
            ({"ca_file": tmp_path / "ca"}, False),
            ({"ca_data": other.certificate.decode(), **by_text}, False),
            (by_text, False),
        ):
            async with HistoryReader(PrometheusOptions(url=f"{url}/old", **options), 1) as history:
                read = history.read("up", 0, 60, 60)
                if is_served:
                    assert [len(part.series) async for part in read] == [0]
                    continue
                with pytest.raises(QueryError) as caught:
                    [part async for part in read]
                assert caught.value.kind == "unreachable"
