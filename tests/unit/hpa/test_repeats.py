"""What is repeated is what would have been decided: the whole controller, with and without."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import looptime
import msgspec
import pytest

from hpa.catalog import Key
from hpa.decide import Past, Trace
from hpa.statuses import REFRESH_S
from podscale.core.metrics import ExternalMetric, ExternalSample, ExternalSamples, Sample
from podscale.kube.lease import Term
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import (
    NS,
    POD_METRIC,
    Cluster,
    deployment_object,
    hpa_object,
    pod_object,
)

pytestmark = pytest.mark.looptime

POLICY = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
SPECS: tuple[dict[str, Any], ...] = (
    {},
    {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}},
    {"behavior": {"scaleUp": POLICY, "scaleDown": {"stabilizationWindowSeconds": 60, **POLICY}}},
)


class Follower:
    """Whoever follows is told the steps of every decision, so that none is repeated."""

    def __init__(self) -> None:
        self.told: list[Trace] = []

    def decided(self, key: Key, trace: Trace, reason: str) -> None:
        self.told.append(trace)

    def forgotten(self, key: Key | None) -> None: ...


class Day:
    """A cluster whose loads, pods and clock follow a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.jumped_s = 0.0
        self.cluster = Cluster(settings=SETTINGS, wall=self.wall)
        self.loads: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.cluster.provider.usage = lambda _question, pod: self.loads[pod.rpartition("-")[0]]
        self.cluster.provider.answer_with = self._queue
        for number in range(8):
            self._create(f"web{number}", (QUEUE, POD_METRIC) if number == 7 else ())
        self.put_pods()

    def wall(self) -> float:
        return 1_795_000_000.0 + self.jumped_s + asyncio.get_running_loop().time()

    def put_pods(self) -> None:
        for (_, name), found in self.cluster.world.workloads.items():
            self.sizes[name] = found["spec"]["replicas"]
            found["status"] = {"replicas": self.sizes[name]}
        sizes = self.sizes.items()
        self.cluster.put_pods(*(pod_object(name, n) for name, size in sizes for n in range(size)))

    def _create(self, name: str, metrics: Sequence[Any] = ()) -> None:
        spec = self.draw.choice(SPECS)
        self.loads[name], self.sizes[name] = 1000, self.draw.randint(1, 6)
        self.cluster.put(
            hpa_object(name, *metrics, least=self.draw.choice((1, 3)), **spec),
            deployment_object(name, self.sizes[name]),
        )

    async def pass_by(self, periods: int) -> None:
        """Go on for so many, in two terms of leadership."""
        for term in range(2):
            ended = Term(term, "me", self.wall()) if term else Term(0, "", None)
            leading = asyncio.ensure_future(self.cluster.controller.run(ended))
            for _ in range(periods // 2):
                await asyncio.sleep(14.0)
                self._happen()
                await asyncio.sleep(1.0)
            leading.cancel()
            await asyncio.wait({leading})

    def _happen(self) -> None:
        draw = self.draw
        for name, was in self.loads.items():
            if draw.random() < 0.1:
                self.loads[name] = draw.choice((100, 800, 900, 1000, 1100, 1101, 2500))
            else:
                self.loads[name] = max(was + draw.randint(-9, 9), 0)
        roll = draw.random()
        if roll < 0.2:
            self.put_pods()
            self.cluster.sync()
        elif roll < 0.22:
            self.jumped_s += draw.choice((-120.0, 45.0, 400.0))
        elif roll < 0.24:  # deleted, and a moment later another one of the name
            name = draw.choice(list(self.sizes)[:4])
            del self.cluster.world.hpas[NS, name]
            self.cluster.sync()
            self._create(name)
        elif roll < 0.26:  # somebody else scales the same
            self.cluster.put(twin := hpa_object("twin"))
            twin["spec"]["scaleTargetRef"]["name"] = draw.choice(list(self.sizes))
            self.cluster.sync()
        elif roll < 0.28:
            self.cluster.world.hpas.pop((NS, "twin"), None)
            self.cluster.sync()
        elif roll < 0.36:
            name = draw.choice(list(self.sizes))
            found = self.cluster.world.hpas[NS, name]
            found["spec"]["maxReplicas"] = draw.randint(4, 12)
            found["metadata"]["generation"] += 1
            found["metadata"]["resourceVersion"] = self.cluster.world.next_version()
            self.cluster.sync()

    def _queue(self, question: Any) -> ExternalSamples | None:
        if not isinstance(question, ExternalMetric):
            return None
        total = 3 * self.loads["web7"]
        return ExternalSamples([ExternalSample({}, Sample(total, self.wall()))], self.wall())

    def told(self) -> dict[str, object]:
        """Return everything that anybody could see of it."""
        controller, metrics = self.cluster.controller, self.cluster.metrics
        return {
            "writes": self.cluster.world.writes,
            "events": self.cluster.recorder.events,
            "histories": self.cluster.world.histories(),
            "traces": {name: controller.traces.last((NS, name)) for name in self.loads},
            "changes": {name: controller.traces.changes((NS, name)) for name in self.loads},
            "saved": metrics.saved,
            "passes": metrics.passes,
            "computations": metrics.computations,
            "decisions": metrics.decisions,
            "gaps": metrics.gap.counts,
            "ages": metrics.data_age.counts,
        }


def played(seed: int, *, is_followed: bool) -> tuple[dict[str, object], int]:
    """Return what a day came to, and how many passes were repeated; it begins at time zero."""

    async def play() -> Day:
        day = Day(seed)
        if is_followed:
            day.cluster.controller.traces.follower = Follower()
        await day.pass_by(60)
        return day

    random.seed(seed)  # the product's own jitter
    loop = looptime.new_event_loop(noop_cycles=0)
    try:
        day = loop.run_until_complete(play())
    finally:
        loop.close()
    return day.told(), day.cluster.metrics.repeated


@pytest.mark.parametrize("seed", range(12))
def test_a_quarter_of_an_hour_is_the_same_where_every_pass_is_decided_in_full(seed: int) -> None:
    one, repeated = played(seed, is_followed=False)
    assert repeated > 80, "of 480 passes"
    other, repeated = played(seed, is_followed=True)
    assert repeated == 0
    for name, told in other.items():
        assert one[name] == told, name


@asynccontextmanager
async def leading(cluster: Cluster) -> AsyncIterator[None]:
    task = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    yield
    task.cancel()
    await asyncio.wait({task})


async def test_values_that_move_are_written_when_they_are_due() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(40.0)
        cluster.world.writes.clear()
        load(cluster, 1050)
        await asyncio.sleep(REFRESH_S + 15.0)
        assert len(cluster.statuses()) == 1, "once in five minutes"
        assert cluster.metrics.repeated > 15
        load(cluster, 899)
        cluster.world.writes.clear()
        await asyncio.sleep(16.0)
        assert len(cluster.statuses()) == 1, "by more than a tenth"


async def test_what_never_moves_is_repeated_for_as_long_as_it_does_not() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(3 * REFRESH_S)
        before = cluster.metrics.repeated
        await asyncio.sleep(150.0)
        assert cluster.metrics.repeated == before + 10


async def test_whoever_follows_decisions_is_told_of_every_one() -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        before = cluster.metrics.repeated
        assert before >= 2
        cluster.controller.traces.follower = follower = Follower()
        await asyncio.sleep(60.0)
        assert cluster.metrics.repeated == before
        assert len(follower.told) == 4
        assert all(trace.steps for trace in follower.told)


async def test_what_fails_once_is_decided_in_full_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        before = cluster.metrics.repeated
        with monkeypatch.context() as patched:
            patched.setattr(cluster.controller.traces, "repeat", None)
            await asyncio.sleep(15.0)
        decided = sum(cluster.metrics.passes.values())
        await asyncio.sleep(60.0)
        assert sum(cluster.metrics.passes.values()) == decided + 4
        assert cluster.metrics.repeated == before + 3


def _forget_past(cluster: Cluster) -> None:
    cluster.controller.memory.forget((NS, "web"))


def _remember_more(cluster: Cluster) -> None:
    past = cluster.controller.memory._known((NS, "web"))
    assert past is not None
    more = tuple(msgspec.structs.replace(each, replicas=9) for each in past.recommendations or ())
    cluster.controller.memory._pasts[NS, "web"] = msgspec.structs.replace(
        past, recommendations=more
    )


@pytest.mark.parametrize("change", [_forget_past, _remember_more])
async def test_another_past_is_decided_on_in_full(
    change: Callable[[Cluster], None],
) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    async with leading(cluster):
        await asyncio.sleep(61.0)
        before = cluster.metrics.repeated
        await asyncio.sleep(15.0)
        assert cluster.metrics.repeated == before + 1
        change(cluster)
        await asyncio.sleep(15.0)
        assert cluster.metrics.repeated == before + 1
        known: Past = cluster.controller.memory._pasts[NS, "web"]
        assert known.recommendations
