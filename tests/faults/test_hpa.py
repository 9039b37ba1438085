"""Random histories of the whole HPA part: whatever fails, the invariants of DESIGN.md hold.

Each run is one HPA over some periods of bad weather in virtual time: metrics of every
error class, conflicts and refusals, broken watches, jumping clocks, leaders that are
replaced in the middle. The seed of a failing run is in its message.
"""

import asyncio
import gc
import os
import random
from typing import Any

import pytest

from hpa.decide import Settings
from podscale.core.metrics import (
    Failure,
    NoData,
    NotFound,
    PodSamples,
    Question,
    Refused,
    Stale,
    Unavailable,
)
from podscale.kube.errors import Conflict, Forbidden, ServerFailed, Unprocessable
from podscale.kube.lease import Term
from podscale.kube.watching import Broken
from tests.unit.hpa.world import NS, POD_METRIC, Cluster, deployment_object, hpa_object, pod_object

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(900)]

SEED = 20261121
RUNS = 500 if os.environ.get("PODSCALE_SHORT") else 10_000
PERIOD_S = 15.0
_REFUSALS = (
    Conflict(409, "Conflict", "the object has been modified"),
    Forbidden(403, "Forbidden", "no rights"),
    Unprocessable(422, "Invalid", "no"),
    ServerFailed(500, "InternalError", "no"),
)
OTHER = {
    "type": "Pods",
    "pods": {"metric": {"name": "other"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


class Run:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.least = self.chance.randint(1, 4)
        self.most = self.least + self.chance.randint(0, 8)
        self.jump_s = 0.0
        self.failing: set[str] = set()  # metrics without a usable answer
        self.is_blind = False  # a watch is broken
        self.violations: list[str] = []
        self.cluster = self._cluster(None)
        behavior: dict[str, Any] = {}
        if self.chance.random() < 0.5:
            window = self.chance.choice([0, 30, 300])
            behavior = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": window}}}
        metrics = [POD_METRIC, OTHER][: self.chance.randint(1, 2)]
        self.metrics = [metric["pods"]["metric"]["name"] for metric in metrics]
        self.cluster.put(
            hpa_object("web", *metrics, least=self.least, most=self.most, **behavior),
            deployment_object("web", self.chance.randint(1, self.most + 2)),
        )

    def _cluster(self, before: Cluster | None) -> Cluster:
        cluster = Cluster(
            settings=Settings(sync_period_s=PERIOD_S),
            world=None if before is None else before.world,
            wall=lambda: 1_795_000_000.0 + asyncio.get_running_loop().time() + self.jump_s,
        )
        cluster.provider.answer_with = self._answer
        cluster.world.fail = self._fail  # type: ignore[assignment]
        return cluster

    async def go(self) -> None:
        for _ in range(self.chance.randint(3, 8)):
            self._weather()
            self._pods()
            if self.chance.random() < 0.15:
                alive = self.cluster.wall()
                self.cluster = self._cluster(self.cluster)
                self.cluster.sync()
                self._pods()
                await self._lead(Term(1, "before", alive))
            else:
                await self._lead(Term(0, "", None))

    async def _lead(self, term: Term) -> None:
        world = self.cluster.world
        before, done = len(world.writes), len(world.rescales)
        await self.cluster.run_for(PERIOD_S * self.chance.choice([0.5, 1.1, 2.1]), term)
        for method, path, body in world.writes[before:]:
            if method == "PUT" and path.endswith("/scale"):
                self._check_write(body)
        for _, old, new in world.rescales[done:]:
            self._check_rescale(old, new)

    def _check_write(self, body: Any) -> None:
        wanted = body["spec"]["replicas"]
        if not self.least <= wanted <= self.most:
            self.violations.append(f"wrote {wanted}, outside {self.least}..{self.most}")
        if not body["metadata"].get("resourceVersion"):
            self.violations.append("wrote without a resourceVersion")

    def _check_rescale(self, old: int, new: int) -> None:
        if new >= old:
            return
        is_correction = old > self.most
        if not is_correction and set(self.metrics) & self.failing:
            self.violations.append(f"{old} to {new} although {self.failing} failed")
        if self.is_blind:
            self.violations.append(f"{old} to {new} while a watch was broken")

    def _size(self) -> int:
        return int(self.cluster.world.workloads[(NS, "web")]["spec"]["replicas"])

    def _weather(self) -> None:
        chance = self.chance
        self.load = chance.choice([0, 100, 500, 1000, 1090, 1500, 4000])
        self.failing = {name for name in self.metrics if chance.random() < 0.3}
        self.failure: Failure = chance.choice(
            [
                NotFound("NoRule", "no"),
                NoData("NoSeries", ""),
                Stale("Stale", "old"),
                Unavailable("Down", "no"),
                Refused("No", "no"),
            ]
        )
        self.refusals = chance.choice([0, 0, 0, 1, 3, 20])
        self.refusal = chance.choice(_REFUSALS)
        self.is_blind = chance.random() < 0.2
        if chance.random() < 0.1:
            self.jump_s += chance.choice([-3600.0, -60.0, 60.0, 3600.0])

    def _pods(self) -> None:
        size = self._size()
        self.cluster.world.workloads[(NS, "web")]["status"] = {"replicas": size}
        self.cluster.sync()
        self.cluster.put_pods(*(pod_object("web", number) for number in range(size)))
        if self.is_blind:
            store = self.chance.choice([self.cluster.stores.pods, self.cluster.stores.autoscalers])
            store.apply(Broken("the stream broke", None), scope="", now=0.0)  # type: ignore[attr-defined]

    def _answer(self, question: Question) -> Any:
        name = getattr(question, "metric", "")
        if name in self.failing:
            if self.chance.random() < 0.3:
                return PodSamples({}, self.cluster.wall())  # items, and none of them usable
            return self.failure
        self.cluster.provider.usage = lambda _question, _pod: self.load
        return None

    def _fail(self, method: str, path: str) -> Exception | None:
        if method in ("PUT", "PATCH") and "configmaps" not in path and self.refusals:
            self.refusals -= 1
            return self.refusal
        return None


async def test_no_random_history_breaks_an_invariant() -> None:
    scales = 0
    for number in range(RUNS):
        run = Run(SEED + number)
        await run.go()
        gc.unfreeze()  # each term freezes what it starts with: ten thousand would stay
        assert not run.violations, f"seed {SEED + number}: {run.violations}"
        scales += len(run.cluster.world.rescales)
    print(f"{RUNS} runs from seed {SEED}: {scales} rescales, no violation")
    assert scales > RUNS / 2  # the histories are not idle
