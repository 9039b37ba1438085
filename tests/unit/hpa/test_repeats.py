"""What is repeated is what would have been decided: the whole controller, with and without."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from hpa.decide import Past
from hpa.repeats import Repeat
from hpa.statuses import REFRESH_S
from podscale.core.metrics import ExternalMetric, ExternalSample, ExternalSamples, Sample
from podscale.kube.lease import Term
from tests.unit.hpa.webs import SETTINGS, load, web
from tests.unit.hpa.world import NS, Cluster, deployment_object, hpa_object, pod_object

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


@pytest.fixture(name="counted")
def _counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows with every repeated pass."""
    seen: list[str] = []
    again = Repeat.again

    def noted(self: Repeat, *words: Any) -> Any:
        found = again(self, *words)
        if found is not None:
            seen.append(self.look.entry.key[1])
        return found

    monkeypatch.setattr(Repeat, "again", noted)
    return seen


def switch_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeat, "of", classmethod(lambda *_, **__: None))


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
            name, spec = f"web{number}", self.draw.choice(SPECS)
            metrics = (QUEUE,) if number == 7 else ()
            self.loads[name], self.sizes[name] = 1000, self.draw.randint(1, 6)
            self.cluster.put(
                hpa_object(name, *metrics, least=self.draw.choice((1, 3)), **spec),
                deployment_object(name, self.sizes[name]),
            )
        self.put_pods()

    def wall(self) -> float:
        return 1_795_000_000.0 + self.jumped_s + asyncio.get_running_loop().time()

    def put_pods(self) -> None:
        for (_, name), found in self.cluster.world.workloads.items():
            self.sizes[name] = found["spec"]["replicas"]
            found["status"] = {"replicas": self.sizes[name]}
        sizes = self.sizes.items()
        self.cluster.put_pods(*(pod_object(name, n) for name, size in sizes for n in range(size)))

    async def pass_by(self, periods: int) -> None:
        leading = asyncio.ensure_future(self.cluster.controller.run(Term(0, "", None)))
        for _ in range(periods):
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
        elif roll < 0.3:
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
        }


@pytest.mark.parametrize("seed", range(12))
async def test_a_day_is_the_same_where_every_pass_is_decided_in_full(
    seed: int, counted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Day(seed)
    await one.pass_by(60)
    assert len(counted) > 100, "of 480 passes"
    switch_off(monkeypatch)
    counted.clear()
    start = asyncio.get_running_loop().time()
    other = Day(seed)
    other.jumped_s = -start  # the same day again
    await other.pass_by(60)
    assert counted == []
    for name, told in other.told().items():
        assert one.told()[name] == told, name


async def test_values_that_move_are_written_when_they_are_due(counted: list[str]) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(40.0)
    cluster.world.writes.clear()
    load(cluster, 1050)
    await asyncio.sleep(REFRESH_S + 15.0)
    assert len(cluster.statuses()) == 1, "once in five minutes"
    assert len(counted) > 15
    load(cluster, 899)
    cluster.world.writes.clear()
    await asyncio.sleep(16.0)
    assert len(cluster.statuses()) == 1, "by more than a tenth"
    leading.cancel()
    await asyncio.wait({leading})


async def test_whoever_follows_decisions_is_told_of_every_one(counted: list[str]) -> None:
    told: list[Any] = []

    class Followed:
        def decided(self, key: Any, trace: Any, reason: str) -> None:
            told.append(trace)

        def forgotten(self, key: Any) -> None: ...

    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(61.0)
    assert len(counted) >= 2
    counted.clear()
    cluster.controller.traces.follower = Followed()
    await asyncio.sleep(60.0)
    assert len(told) == 4
    assert all(trace.steps for trace in told)
    leading.cancel()
    await asyncio.wait({leading})


def _forget_past(cluster: Cluster) -> None:
    cluster.controller.memory._pasts.clear()


def _remember_more(cluster: Cluster) -> None:
    past = cluster.controller.memory._pasts[NS, "web"]
    more = tuple(msgspec.structs.replace(each, replicas=9) for each in past.recommendations or ())
    cluster.controller.memory._pasts[NS, "web"] = msgspec.structs.replace(
        past, recommendations=more
    )


@pytest.mark.parametrize("change", [_forget_past, _remember_more])
async def test_another_past_is_decided_on_in_full(
    change: Callable[[Cluster], None], counted: list[str]
) -> None:
    cluster = Cluster(settings=SETTINGS)
    web(cluster, 2)
    leading = asyncio.ensure_future(cluster.controller.run(Term(0, "", None)))
    await asyncio.sleep(61.0)
    counted.clear()
    change(cluster)
    await asyncio.sleep(15.0)
    assert counted == []
    known: Past = cluster.controller.memory._pasts[NS, "web"]
    assert known.recommendations
    leading.cancel()
    await asyncio.wait({leading})
