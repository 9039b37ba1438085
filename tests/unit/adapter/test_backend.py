"""External backends: one that hangs, and the token that it is shown."""

import asyncio
from itertools import chain
from pathlib import Path

import pytest
import trustme
from prometheus_client import CollectorRegistry

from adapter.apis.metric_providers import MetricSources
from adapter.backends.backend import ReaderCredentials
from adapter.backends.backend_router import BackendRouter
from adapter.backends.backends_file import BackendConfig, NamedBackends
from adapter.selfmetrics import AdapterMetrics
from podscale.core.metrics import ExternalMetric, Unavailable
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, NotConfigured
from tests.unit.adapter.test_provider import provider
from tests.unit.adapter.world import RecordingFeed


class Silent:
    """A cluster that never answers, so that nobody gets a token in time."""

    user_agent = "test"

    async def request(self, method, path, *, timeout_s=30.0, **_):
        await asyncio.sleep(timeout_s)
        raise ApiUnreachable(f"{method} {path}: no answer", is_timeout=True)


async def test_all_who_wait_are_told_in_its_own_time_and_name() -> None:
    ca = trustme.CA().cert_pem.bytes().decode()
    keda = BackendConfig("keda", "https://keda", None, ("podscale", "reader"),
                         metrics=("s0-*",), timeout_s=0.3, ca_bundle=ca)  # fmt: skip
    async with BackendRouter(Silent(), AdapterMetrics(CollectorRegistry())) as backends:
        await backends.replace(NamedBackends((keda,)))
        await asyncio.sleep(0)
        feed = await provider(RecordingFeed())
        made = MetricSources(feed, backends=backends, patience_s=0.1)
        began = asyncio.get_running_loop().time()
        one_by_one = await asyncio.gather(
            *(made.read([ExternalMetric("shop", f"s0-{n}")]) for n in range(60))
        )
        together = await made.answer([ExternalMetric("shop", f"s0-{n}") for n in range(60)])
        assert asyncio.get_running_loop().time() - began < 2.4
    every = chain(together, *one_by_one)
    said = {(each.reason, each.message, each.is_timeout) for each in every
            if isinstance(each, Unavailable)}  # fmt: skip
    assert said == {("ExternalBackend", "the external backend keda did not answer in time", True)}


async def test_a_token_serves_to_its_end_where_none_can_be_made(tmp_path: Path) -> None:
    authority, now = trustme.CA(), 0.0
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    config = BackendConfig("keda", "https://keda", tmp_path / "ca.crt", ("podscale", "reader"))

    class Cluster(Silent):
        is_down = False

        async def request(self, method, path, **_):
            if self.is_down:
                raise ApiUnreachable(f"{method} {path}: refused")
            return Response(201, {}, b'{"status": {"token": "made"}}')

    cluster = Cluster()
    credentials = ReaderCredentials(config, cluster, lambda: now)
    first = await credentials.current()
    assert first.headers == {"Authorization": "Bearer made"}
    cluster.is_down = True
    now = 3000.0  # to be renewed
    assert await credentials.current() is first
    now = 3600.0
    with pytest.raises(NotConfigured):
        await credentials.current()
    cluster.is_down = False
    assert await credentials.current() is not first
