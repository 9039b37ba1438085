"""The recommender killed with SIGKILL, again and again: what it has learned stays."""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from podscale.core import quantity
from podscale.core.times.rfc3339 import rfc3339
from tests.integration.test_vpa_recommender import checkpoints, target
from tests.integration.vpa_program import SPEED
from tests.integration.vpa_stage import Stage, deployment, stage, vpa
from vpa.model.histograms import buckets

KILLS = 2 if os.environ.get("PODSCALE_SHORT") else 15


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        built.objects.create("deployments", "default", deployment(2, memory="2Gi"))
        built.objects.create("verticalpodautoscalers", "default", vpa("Off"))
        await built.until(lambda: built.ready() == 2)
        yield built


@asynccontextmanager
async def living(directory: Path, t0: float, *words: str) -> AsyncIterator[None]:
    """Run the program; leaving kills it, whatever it is doing."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.integration.vpa_program",
        str(directory / "kubeconfig"), repr(t0), *words,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        program.send_signal(signal.SIGKILL)
        await program.wait()


def samples(small: Stage) -> int:
    found = checkpoints(small)
    return found[0]["status"]["totalSamplesCount"] if found else 0


def bucket(resource: str, text: str) -> int:
    amount = quantity.parse(text)
    value = amount.milli / 1000.0 if resource == "cpu" else float(amount.value)
    layout = buckets.CPU if resource == "cpu" else buckets.MEMORY
    return int(layout.find(np.array([value]))[0])


def passes(small: Stage) -> int:
    counts = small.cluster.server.counts
    return int(counts["list", "verticalpodautoscalercheckpoints.autoscaling.k8s.io"])


def kill_container(small: Stage, at: float) -> None:
    """Let the first pod show an OOM kill as its container's last run."""
    pod = small.pods()[0]
    state: dict[str, Any] = dict(pod["status"]["containerStatuses"][0])
    ended = rfc3339(at)
    killed = {"reason": "OOMKilled", "exitCode": 137, "startedAt": ended, "finishedAt": ended}
    state |= {"restartCount": 1, "lastState": {"terminated": killed}}
    status = {**pod["status"], "containerStatuses": [state]}
    small.objects.update(
        "pods", "default", pod["metadata"]["name"], {**pod, "status": status}, "status"
    )


@pytest.mark.timeout(300)
async def test_killed_at_any_time_it_goes_on_with_the_same_targets(small, tmp_path):
    t0, chance = time.time(), random.Random(5)
    async with living(tmp_path, t0):
        await small.until(lambda: samples(small) >= 20, 60.0)
    for _ in range(KILLS):
        before, known = target(small), samples(small)
        lists = passes(small)
        # Silent: what it says now it knows from its checkpoints.
        async with living(tmp_path, t0, "down"):
            await small.until(lambda lists=lists: passes(small) > lists, 60.0)
            await asyncio.sleep(0.5)
        after = target(small)
        assert before is not None
        assert after is not None
        for resource in ("cpu", "memory"):
            assert abs(bucket(resource, after[resource]) - bucket(resource, before[resource])) <= 1
        assert samples(small) == known
        async with living(tmp_path, t0):
            await small.until(lambda known=known: samples(small) > known, 60.0)
            await asyncio.sleep(chance.uniform(0.0, 0.3))


@pytest.mark.timeout(300)
async def test_an_oom_survives_a_kill_at_any_moment_after_it(small, tmp_path):
    t0, chance = time.time(), random.Random(6)
    async with living(tmp_path, t0):
        await small.until(lambda: samples(small) >= 5, 60.0)
        kill_container(small, t0 + (time.time() - t0) * SPEED)
        # It may have seen the kill or not, have written a checkpoint or not.
        await asyncio.sleep(chance.uniform(0.0, 0.2))
    for _ in range(KILLS):
        async with living(tmp_path, t0):
            await asyncio.sleep(chance.uniform(0.3, 1.5))
    bumped = 2 * 2**30 * 1.2
    async with living(tmp_path, t0, "down"):
        await small.until(
            lambda: quantity.parse((target(small) or {"memory": "0"})["memory"]).value >= bumped,
            60.0,
        )
        # Counted once: a second bump of the same kill would stand a bucket or more higher.
        top = quantity.parse(target(small)["memory"]).value
    assert top < bumped * 1.15 * 1.1
