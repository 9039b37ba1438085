"""Migrated ScaledObjects under a scripted load on the sandbox: the HPA and its fallback do what
KEDA documents, and nothing else shrinks on an error or on silence.
"""

import time
from pathlib import Path
from typing import Any

from podscale.core.metrics import (
    Answer,
    ExternalSample,
    ExternalSamples,
    NoData,
    Sample,
    Unavailable,
)
from podscale.sandbox.server import SandboxServer
from tests.integration.test_hpa import NS, Running, running, until
from tests.kit.migrating import migrate
from tests.unit.hpa.world import deployment_object

INPUTS = Path(__file__).parents[1] / "unit" / "migrate" / "inputs"
AT_ONCE = "--horizontal-pod-autoscaler-downscale-stabilization=0s"
FAILED = Unavailable("PrometheusUnreachable", "Prometheus cannot be reached")
EMPTY = NoData("NoSample", "the query returns nothing")


def load(milli: int) -> Answer:
    now = time.time()
    return ExternalSamples((ExternalSample({}, Sample(milli, now)),), now)


def put(hpa: Running, name: str, kind: str, size: int) -> dict[str, Any]:
    """Create the migrated HPA and its target; return the HPA."""
    (made,) = migrate((INPUTS / f"keda-{name}.yaml").read_text()).manifests
    manifest = dict(made)
    target = deployment_object(manifest["metadata"]["name"], size)
    hpa.server.objects.put({**target, "apiVersion": "apps/v1", "kind": kind})
    hpa.server.objects.put(manifest)
    return manifest


async def passes(hpa: Running, count: int) -> None:
    """Let so many more decisions be made."""
    asked = len(hpa.metrics.asked)
    await until(f"{count} passes", lambda: len(hpa.metrics.asked) >= asked + count, 20.0)


async def test_a_static_fallback_raises_and_lowers_as_keda_documents() -> None:
    async with sandbox() as server, running(server, AT_ONCE) as hpa:
        hpa.metrics.answer_with = lambda _question: load(100_000)  # 100 of 12.5 each
        put(hpa, "fallback-static", "StatefulSet", 4)

        def size() -> int:
            return hpa.size("checkout", "statefulsets.apps")

        await until("eight for the load", lambda: size() == 8)
        hpa.metrics.answer_with = lambda _question: FAILED
        await until("six by the fallback", lambda: size() == 6)
        hpa.metrics.answer_with = lambda _question: load(30_000)
        await until("three for less load", lambda: size() == 3)
        hpa.metrics.answer_with = lambda _question: EMPTY
        await until("six again", lambda: size() == 6)


async def test_a_fallback_to_the_higher_number_never_lowers() -> None:
    async with sandbox() as server, running(server, AT_ONCE) as hpa:
        hpa.metrics.answer_with = lambda _question: FAILED
        put(hpa, "fallback-current-if-higher", "Deployment", 15)
        await passes(hpa, 3)
        assert hpa.size("search") == 15


async def test_silence_that_keda_counted_as_zero_holds_the_size() -> None:
    async with sandbox() as server, running(server, AT_ONCE) as hpa:
        hpa.metrics.answer_with = lambda _question: load(700_000)
        put(hpa, "minimal", "Deployment", 4)
        await until("seven for the load", lambda: hpa.size() == 7)
        for weather in (EMPTY, FAILED):
            hpa.metrics.answer_with = lambda _question, weather=weather: weather  # type: ignore[misc]
            await passes(hpa, 3)
            assert hpa.size() == 7
        hpa.metrics.answer_with = lambda _question: load(0)
        await until("none, for a real zero", lambda: hpa.size() == 0)


def sandbox() -> SandboxServer:
    server = SandboxServer(bookmark_interval_s=0.5)
    server.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    return server
