"""Health texts, single flight, logs, tallies and certificate files."""

import asyncio
import io
import json
import os
from pathlib import Path

import pytest
import structlog
from prometheus_client import generate_latest

from podscale.serving.certificates.tls import TlsError, read_files, self_signed
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import parse
from podscale.serving.monitoring.health import Health, HealthVerdict
from podscale.serving.monitoring.logs import Verbosity, configure
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.request_info import RequestInfo
from podscale.serving.singleflight import SingleFlight
from tests.unit.serving.kit import Pki


def test_health_texts_are_upstreams() -> None:
    health = Health()
    health.add_readiness("relist", lambda: HealthVerdict(False, "not tried yet"))
    health.add_readiness("rules", lambda: HealthVerdict(True, "a reload was refused"))
    assert health.report("livez").text == "ok"
    assert health.report("livez", is_verbose=True).text == "[+]ping ok\nlivez check passed\n"
    assert health.report("readyz").text == (
        "[+]ping ok\n[-]relist failed: not tried yet\n[+]rules ok: a reload was refused\n"
        "readyz check failed\n"
    )
    excluded = health.report("readyz", excluded=["relist", "none"], is_verbose=True)
    assert excluded.status == 200
    assert "[+]relist excluded: ok" in excluded.text
    assert 'no matches for "none"' in excluded.text
    assert "/readyz/relist" in set(health.paths())
    assert "/livez/relist" not in set(health.paths())


def test_liveness_is_not_touched_by_readiness_and_a_broken_check_fails() -> None:
    health = Health()

    def broken() -> HealthVerdict:
        raise RuntimeError("swordfish")

    health.add_readiness("store", broken)
    assert health.report("readyz").status == 500
    assert "swordfish" not in health.report("readyz").text
    assert health.report("livez").status == health.report("healthz").status == 200
    single = health.single("livez", "ping")
    assert single is not None
    assert single.text == "ok"
    assert health.single("livez", "store") is None


async def test_one_flight_for_all_and_failures_for_all() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    go = asyncio.Event()
    started = 0

    async def work() -> int:
        nonlocal started
        started += 1
        await go.wait()
        raise ValueError("no")

    waiting = [asyncio.create_task(flights.run("k", work)) for _ in range(3)]
    await asyncio.sleep(0)
    go.set()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(one) for one in outcomes] == ["no"] * 3
    assert started == 1


async def test_another_takes_over_when_the_first_is_cancelled() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    go = asyncio.Event()
    started = 0

    async def work() -> int:
        nonlocal started
        started += 1
        await go.wait()
        return started

    first = asyncio.create_task(flights.run("k", work))
    await asyncio.sleep(0)
    others = [asyncio.create_task(flights.run("k", work)) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait(others, timeout=0.05)
    assert started == 2
    go.set()
    assert await asyncio.gather(*others) == [2, 2, 2]
    assert first.cancelled()


def test_verbosity_decides_about_debug_lines_while_running() -> None:
    stream, verbosity = io.StringIO(), Verbosity()
    configure("json", verbosity, stream)
    log = structlog.get_logger()
    log.debug("Hidden")
    log.info("Shown", rule="a")
    verbosity.v = 4
    log.debug("Seen")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["Shown", "Seen"]
    assert lines[0]["rule"] == "a"
    assert lines[0]["level"] == "info"


def test_exceptions_are_logged_with_their_trace_in_one_line() -> None:
    stream = io.StringIO()
    configure("json", Verbosity(), stream)
    try:
        raise ValueError("no")
    except ValueError:
        structlog.get_logger().exception("Failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: no" in json.loads(line)["exception"]


def test_tallies_become_upstreams_series() -> None:
    metrics = SelfMetrics()
    info = RequestInfo(True, "/p", "get", "g", "v1", "ns", "pods", "m", "*")
    for seconds in (0.001, 0.03, 70.0):
        metrics.requests.observe("GET", info, 200, seconds)
    metrics.requests.observe("GET", info, 404, 0.001)
    labels = {
        "verb": "GET",
        "dry_run": "",
        "group": "g",
        "version": "v1",
        "resource": "pods",
        "subresource": "",
        "scope": "namespace",
        "component": "apiserver",
    }
    value = metrics.registry.get_sample_value
    assert value("apiserver_request_total", {**labels, "code": "200"}) == 3
    assert value("apiserver_request_total", {**labels, "code": "404"}) == 1
    name = "apiserver_request_duration_seconds"
    assert value(f"{name}_count", labels) == 4
    assert value(f"{name}_sum", labels) == pytest.approx(70.032)
    assert value(f"{name}_bucket", {**labels, "le": "0.005"}) == 2
    assert value(f"{name}_bucket", {**labels, "le": "60.0"}) == 3
    assert value(f"{name}_bucket", {**labels, "le": "+Inf"}) == 4


def test_only_what_was_answered_and_is_no_text_of_a_stranger_becomes_a_label() -> None:
    metrics = SelfMetrics()

    def ask(group: str, version: str, resource: str, code: int) -> None:
        info = RequestInfo(True, "/p", "get", group, version, "ns", resource, "m", "*")
        metrics.requests.observe("GET", info, code, 0.001)

    ask("g", "v1", "pods", 200)
    for number in range(300):
        ask("g", f"v{number}", "pods", 404)
        ask("g", "v1", f"pods{number}", 404)
        ask("g", "v1", "p" * (257 + number), 200)
    text = generate_latest(metrics.registry).decode()
    shown = {line.split('resource="')[1].split('"')[0] for line in text.splitlines()
             if line.startswith("apiserver_request_total")}  # fmt: skip
    assert shown == {"pods", "other"}
    assert 'version="v7"' not in text


def test_what_follows_of_the_tallies_has_upstreams_buckets_and_labels() -> None:
    metrics = SelfMetrics()
    info = RequestInfo(True, "/p", "get", "g", "v1", "ns", "pods", "m", "*")
    for seconds, size in ((0.001, 900), (0.03, 1000), (0.07, 1001)):
        metrics.requests.observe("GET", info, 200, seconds, size)
    metrics.requests.observe("POST", info, 405, 0.001, 10)
    labels = {
        "verb": "GET", "group": "g", "version": "v1", "resource": "pods", "subresource": "",
        "scope": "namespace", "component": "apiserver",
    }  # fmt: skip
    value = metrics.registry.get_sample_value
    sli, sizes = "apiserver_request_sli_duration_seconds", "apiserver_response_sizes"
    assert value(f"{sli}_bucket", {**labels, "le": "0.025"}) is None
    assert value(f"{sli}_bucket", {**labels, "le": "0.05"}) == 2
    assert value(f"{sli}_bucket", {**labels, "le": "0.1"}) == 3
    assert value(f"{sli}_count", labels) == 3
    assert value(f"{sli}_sum", labels) == pytest.approx(0.101)
    assert value(f"{sizes}_bucket", {**labels, "le": "1000.0"}) == 2
    assert value(f"{sizes}_bucket", {**labels, "le": "10000.0"}) == 3
    assert value(f"{sizes}_bucket", {**labels, "le": "1e+09"}) == 3
    assert value(f"{sizes}_sum", labels) == 2901
    written = {**labels, "verb": "POST"}
    assert value(f"{sli}_count", written) == 1
    assert value(f"{sizes}_count", written) is None  # sizes are those of reads


def test_attempts_are_counted_under_upstreams_whole_names() -> None:
    metrics = SelfMetrics()
    metrics.authentication.counts["success"] += 2
    metrics.authorization.counts["denied"] += 1
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert 'authentication_attempts{result="success"} 2.0' in lines
    assert "# TYPE authentication_attempts untyped" in lines
    assert not [line for line in lines if "authentication_attempts_total" in line]
    assert 'authorization_attempts_total{result="denied"} 1.0' in lines
    assert "# TYPE authorization_attempts_total counter" in lines


def test_certificates_for_server_names(tmp_path: Path) -> None:
    pki = Pki()
    pair = pki.server()
    (tmp_path / "c").write_bytes(pair.certificate)
    (tmp_path / "k").write_bytes(pair.key)
    argument = f"{tmp_path / 'c'},{tmp_path / 'k'}"
    flags = parse(
        [f"--tls-sni-cert-key={argument}:a.example,*.B.example", f"--tls-sni-cert-key={argument}"],
        API_SERVER,
    )
    files = read_files(flags)
    assert files.pair is None
    assert [one.patterns for one in files.named] == [("a.example", "*.b.example"), ("localhost",)]
    with pytest.raises(TlsError, match="expected certificate,key"):
        read_files(parse([f"--tls-sni-cert-key={tmp_path / 'c'}"], API_SERVER))
    with pytest.raises(TlsError, match=r"--tls-cert-file: cannot read .*none"):
        read_files(
            parse(
                [
                    f"--tls-cert-file={tmp_path / 'none'}",
                    f"--tls-private-key-file={tmp_path / 'k'}",
                ],
                API_SERVER,
            )
        )


def test_the_self_signed_pair_is_kept_and_its_key_is_private(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "certificates"
    first = self_signed(str(directory))
    assert self_signed(str(directory)) == first
    assert (directory / "apiserver.key").stat().st_mode & 0o777 == 0o600
    (directory / "apiserver.crt").write_bytes(b"garbage")
    assert self_signed(str(directory)) != first


def test_a_directory_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    configure("json", Verbosity(), io.StringIO())
    (tmp_path / "file").write_text("")
    blocked = os.fspath(tmp_path / "file" / "below")
    assert self_signed(blocked) != self_signed(blocked)
