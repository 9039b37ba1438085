"""The recommender as a process would run it, and what it tells about its decisions."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from podscale.cli.commands.explain import lines
from podscale.process.compose import composed
from podscale.process.part import Shared
from podscale.serving.flags import Flags, parse
from podscale.serving.monitoring.logs import Verbosity
from tests.integration.test_vpa_admission import admitting, recommended
from tests.integration.vpa_stage import Stage, deployment, stage, vpa
from tests.tools.process import free_port
from vpa.recommender import flags, part

BASE = "/apis/vpa.podscale.io/v1alpha1"


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


class UsageReader:
    """What reads Prometheus, with the stage's usage in its place."""

    outage = ""

    groups: Sequence[Any] = ()

    def __init__(self, source: Any) -> None:
        self.source = source

    def works(self) -> Sequence[Any]:
        return ()

    def register(self, _health: Any) -> None:
        pass

    def is_leader(self) -> bool:
        return True

    async def stop(self) -> None:
        pass


@asynccontextmanager
async def serving(small: Stage, tmp_path) -> AsyncIterator[Callable[..., Any]]:
    """Run the recommender from its flags; yields what asks its API and its monitoring."""
    port, monitoring = free_port(), free_port()
    words = [
        f"--kubeconfig={tmp_path}/kubeconfig",
        f"--authentication-kubeconfig={tmp_path}/kubeconfig",
        f"--secure-port={port}",
        f"--address=127.0.0.1:{monitoring}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={tmp_path}/certificates",
        "--recommender-interval=100ms",
        "--leader-elect=true",
        "--metrics-source=feed",
    ]

    @asynccontextmanager
    async def reader(_flags: Flags, _shared: Shared) -> AsyncIterator[Any]:
        yield UsageReader(small.usage)

    async def ask(path: str, accept: str = "application/json", plain: bool = False) -> Any:
        url = f"http://127.0.0.1:{monitoring}" if plain else f"https://127.0.0.1:{port}"
        headers = {"Accept": accept}
        if not plain:
            headers["Authorization"] = f"Bearer {small.cluster.server.admin_token}"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url + path, headers=headers, ssl=False) as answer,
        ):
            return await answer.text() if plain else await answer.json(content_type=None)

    kinds = {"recommender": part.kind()}
    given = {"recommender": parse(words, flags.TABLE)}
    async with composed(given, kinds, Verbosity(0), open_reader=reader) as running:
        made = running.parts["recommender"]
        assert isinstance(made, part.RecommenderPart)
        await small.until(lambda: made.recommender.estimates is not None)
        yield ask


async def test_a_recommendation_is_explained_and_monitored(small, tmp_path):
    small.objects.create("deployments", "default", deployment(2))
    small.objects.create("verticalpodautoscalers", "default", vpa("Off"))
    await small.until(lambda: small.ready() == 2)
    async with serving(small, tmp_path) as ask:
        await small.until(lambda: "recommendation" in (small.vpa().get("status") or {}))
        body = await ask(f"{BASE}/namespaces/default/sizingdecisions/web")
        listed = await ask(f"{BASE}/sizingdecisions")
        table = await ask(f"{BASE}/sizingdecisions", "application/json;as=Table;v=v1;g=meta.k8s.io")
        assert await ask("/health-check", plain=True) == "OK"
        metrics = await ask("/metrics", plain=True)
    assert body["kind"] == "SizingDecision"
    cpu, memory = body["status"]["recommendation"]
    assert (cpu["first_reason"], cpu["decision"]["value"]) == ("PercentileOfUsage", "247m")
    assert cpu["facts"]["percentile"] == 0.9
    assert (
        memory["decision"]["value"]
        == (
            small.vpa()["status"]["recommendation"]["containerRecommendations"][0]["target"][
                "memory"
            ]
        )
    )
    text = "\n".join(lines(body))
    assert "default/web → Deployment/web" in text
    assert "main cpu: 100m → 247m (up to " in text
    assert "main memory: 64Mi → " in text
    assert "(peak " in text
    assert "; little history so far)." in text
    for word in ("Percentile", "confidence", "margin", "samples"):
        assert word not in text.replace("(PercentileOfUsage", "")
    assert [each["metadata"]["name"] for each in listed["items"]] == ["web"]
    assert table["rows"][0]["cells"][:4] == ["web", "Deployment/web", "Off", "247m"]
    assert "vpa_recommender_aggregate_container_states_count 1.0" in metrics


async def test_a_target_that_is_missing_is_the_explanation(small, tmp_path):
    small.objects.create("verticalpodautoscalers", "default", vpa("Off", "gone"))
    async with serving(small, tmp_path) as ask:
        await small.until(lambda: "status" in small.vpa("gone"))
        body = await ask(f"{BASE}/namespaces/default/sizingdecisions/gone")
        missing = await ask(f"{BASE}/namespaces/default/sizingdecisions/none")
    assert body["status"]["first_reason"] == "TargetNotFound"
    assert missing["code"] == 404


async def test_the_webhooks_reasons_are_told_from_the_pods_and_earlier_ones_are_kept(
    small, tmp_path
):
    bounds = {"resourcePolicy": {"containerPolicies": [
        {"containerName": "*", "maxAllowed": {"cpu": "150m"}}
    ]}}  # fmt: skip
    recommended(small, "Initial", **bounds)
    async with admitting(small, tmp_path):
        small.objects.create("deployments", "default", deployment(1))
        await small.until(lambda: small.ready() == 1)
    async with serving(small, tmp_path) as ask:
        path = f"{BASE}/namespaces/default/sizingdecisions/web"

        async def known() -> Any:
            return await ask(f"{path}?at=0s")

        await until(known, lambda body: body["kind"] == "SizingDecision")
        body = await ask(path)
        small.usage.memory = 3e9
        first = value(await known())
        await until(known, lambda body: value(body) != first)
        before = await ask(f"{path}?at=1h")
        wrong = await ask(f"{path}?at=yesterday")
    (pod,) = body["status"]["pods"]
    assert (pod["first_reason"], pod["decision"]) == ("UpdateModeInitial", {"action": "none"})
    told = {(each["container"], each["value"]): each for each in pod["admission"]}
    cpu = told["main", "cpu request"]
    assert (cpu["first_reason"], cpu["decision"]["value"]) == ("MaxAllowed", "150m")
    assert "main: cpu request 150m. maxAllowed" in "\n".join(lines(body))
    assert before["code"] == 404
    assert "only recent ones are kept" in before["message"]
    assert wrong["code"] == 400


def value(body: Any) -> str:
    found: str = body["status"]["recommendation"][1]["decision"]["value"]
    return found


async def until(ask: Callable[[], Any], claim: Callable[[Any], bool]) -> None:
    async with asyncio.timeout(15.0):
        while not claim(await ask()):  # noqa: ASYNC110 - an answer over HTTP
            await asyncio.sleep(0.05)
