"""The server over real TLS sockets: its health, figures and certificate, and how it ends."""

# A server, then its client: nested blocks read better than one block of both (SIM117); what
# a test waits for lies in the server under test, which has no event for it (ASYNC110).
# ruff: noqa: SIM117, ASYNC110

import asyncio
import ssl
from pathlib import Path

import pytest

from podscale.serving.apis.api import ApiResponse
from podscale.serving.monitoring.health import Health, HealthVerdict
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from tests.integration.serving.asked import PODS
from tests.unit.serving.kit import GROUP, Pki, ScriptedApi, Shop, awaited, flags_for, serving, wire


async def test_draining_fails_readiness_first_and_lets_requests_finish(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    shop = Shop()
    go = asyncio.Event()
    shop.answer = lambda _: awaited(ApiResponse(body=b"{}"), go)
    flags = flags_for(tmp_path, pki, "--shutdown-delay-duration=300ms")
    async with serving(flags, api, shop) as server:
        async with (
            wire(server.port, pki.client()) as busy,
            wire(server.port, pki.client()) as probe,
            asyncio.TaskGroup() as tasks,
        ):
            answer = tasks.create_task(busy.get(PODS, Authorization="Bearer admin"))
            while not shop.asked:
                await asyncio.sleep(0.01)
            draining = tasks.create_task(server.drain(grace_s=5))
            await asyncio.sleep(0.05)
            assert (await probe.get("/readyz")).code == 500
            assert (await probe.get("/livez")).code == 200
            await asyncio.sleep(0.4)
            with pytest.raises(OSError):
                async with wire(server.port, pki.client()):
                    pass
            go.set()
            assert (await answer).headers["connection"] == "close"
            await draining
        assert not server.server.connections


async def test_health_endpoints_and_their_checks(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    health = Health()
    state = {"synced": False}
    health.add_readiness(
        "stores", lambda: HealthVerdict(state["synced"], "pods are not listed yet")
    )
    async with serving(flags_for(tmp_path, pki), api, health=health) as server:
        async with wire(server.port, pki.client()) as client:
            assert (await client.get("/livez")).body == b"ok"
            unready = await client.get("/readyz")
            assert unready.code == 500
            assert b"[-]stores failed: pods are not listed yet\n" in unready.body
            state["synced"] = True
            assert (await client.get("/readyz")).body == b"ok"
            verbose = await client.get("/readyz?verbose")
            assert verbose.body.endswith(b"readyz check passed\n")
            admin = {"Authorization": "Bearer admin"}
            assert (await client.get("/readyz/stores", **admin)).body == b"ok"
            assert (await client.get("/readyz/none", **admin)).code == 404
            assert (await client.get("/readyz/stores")).code == 403


async def test_ten_thousand_requests_leave_figures_under_upstreams_names(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    metrics = SelfMetrics()
    async with serving(flags_for(tmp_path, pki), api, metrics=metrics) as server:
        async with wire(server.port, pki.client()) as client:
            for number in range(300):
                path = f"/apis/{GROUP}/v1beta2/namespaces/default/r{number}/x/m"
                await client.get(path, Authorization="Bearer admin")
            text = (await client.get("/metrics", Authorization="Bearer admin")).body.decode()
    assert 'resource="other"' in text
    resources = {
        line.split('resource="')[1].split('"')[0]
        for line in text.splitlines()
        if line.startswith("apiserver_request_total{")
    }
    assert len(resources) <= 102
    for name in (
        "apiserver_request_duration_seconds_bucket",
        "apiserver_current_inflight_requests",
        "apiserver_delegated_authn_request_total",
        "apiserver_tls_handshake_errors_total",
        "process_cpu_seconds_total",
    ):
        assert name in text, name


async def test_serving_certificate_changes_without_a_restart(
    tmp_path: Path, pki: Pki, api: ScriptedApi
) -> None:
    async with serving(flags_for(tmp_path, pki), api) as server:
        async with wire(server.port, pki.client()) as old:
            other = Pki()
            server.tls.use_pair(other.server())
            async with wire(server.port, other.client()) as new:
                assert (await new.get("/livez")).code == 200
            assert (await old.get("/livez")).code == 200
            with pytest.raises(ssl.SSLError):
                async with wire(server.port, pki.client()):
                    pass
