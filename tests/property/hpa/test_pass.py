"""Any order of what may happen to passes: one at a time for each autoscaler, one write at a time,
none outside a term, none of what was decided for another spec, nothing shrinks on a silent watch,
no policy is outrun, and a spec that changed is decided on.

The controller runs in virtual time. Meanwhile objects change and go, terms end, watches fall
silent, other controllers come, answers are late, fail or are lost, and the clock is set.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from hpa.cluster.foreign_controllers import QUIET_S
from hpa.decide.settings import Settings
from hpa.loop.state import Options
from podscale.core.metrics import Answer, Question, Unavailable
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, ServerFailed, WriteConflict
from podscale.kube.informer.list_watch import WatchBroken
from podscale.kube.leadership.lease import Term
from tests.kit.api import Sent
from tests.unit.hpa.world import (
    NS,
    Cluster,
    Metrics,
    World,
    deployment_object,
    hpa_object,
    pod_object,
    writer,
)

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(300)]
NAMES = ("web", "api", "job")
PERIOD_S, VALUE = 60.0, 2  # of the policy of both directions
RULES = {
    "policies": [{"type": "Pods", "value": VALUE, "periodSeconds": int(PERIOD_S)}],
    "stabilizationWindowSeconds": 0,
}
BEHAVIOR = {"scaleUp": RULES, "scaleDown": RULES}


def now() -> float:
    return asyncio.get_running_loop().time()


class JudgedWorld(World):
    """An API server that is late, refuses and loses answers, and judges each write it is sent."""

    def __init__(self, draw: Random) -> None:
        super().__init__()
        self.draw = draw
        self.faults = 0.0
        self.is_led = self.is_blind = False
        self.foreign_until: dict[str, float] = {}
        self.lives: Counter[str] = Counter()  # how often there was an object of the name
        self.under_way: Counter[tuple[str, int]] = Counter()
        self.log: list[tuple[float, str, int, int]] = []  # when, name, before, after
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []  # promises: who raises here would be answered, and go on

    def promise(self, is_held: bool, what: str) -> None:
        if not is_held:
            self.broken.append(f"{now():.2f}: {what}")

    async def reply(self, sent: Sent) -> Response:
        name, is_write = sent.path.split("/")[-2], sent.method in ("PUT", "PATCH")
        if not is_write or "configmaps" in sent.path:
            return await self._late(sent)
        life = (name, self.lives[name])
        self.promise(self.under_way[life] == 0, f"one write in flight: {name}")
        self.promise(self.is_led, "no write outside a term")
        is_ours = now() >= self.foreign_until.get(name, 0.0)
        self.promise(is_ours, f"what another one scales is left alone: {name}")
        self.under_way[life] += 1
        try:
            if sent.path.endswith("/scale"):
                self._judge(name, sent.object["spec"]["replicas"])
            return await self._late(sent)
        finally:
            self.under_way[life] -= 1

    def _judge(self, name: str, after: int) -> None:
        before, spec = self.size(name), self.hpas[NS, name]["spec"]
        least, most = spec["minReplicas"], spec["maxReplicas"]
        what = f"{name}: {before} -> {after}"
        self.promise(least <= after <= most, f"what changed is decided on anew: {what}")
        self.counts["lowered"] += after < before
        self.promise(after >= before or not self.is_blind, f"nothing shrinks blindly: {what}")
        if not least <= before <= most:
            return  # a correction to a bound
        recent = [each for each in self.log if each[1] == name and each[0] > now() - PERIOD_S + 3]
        grown = sum(each[3] - each[2] for each in recent)
        self.promise(
            abs(after - (before - grown)) <= VALUE, f"no policy is outrun: {what}, after {recent}"
        )

    async def _late(self, sent: Sent) -> Response:
        await asyncio.sleep(self.draw.choice((0.0, 0.0, 0.01, 2.0)) if self.faults else 0.0)
        if self.draw.random() >= self.faults:
            return await self._stored(sent)
        self.counts["refused"] += 1
        if self.draw.random() < 0.4 and "configmaps" not in sent.path:
            await self._stored(sent)
            raise ApiUnreachable("connection reset after the request was sent")
        raise self.draw.choice(
            (
                ServerFailed(503, "ServiceUnavailable", "overloaded"),
                WriteConflict(409, "Conflict", "the object has been modified"),
            )
        )

    async def _stored(self, sent: Sent) -> Response:
        count = len(self.rescales)
        answer = await super().reply(sent)
        self.log += [(now(), *each) for each in self.rescales[count:]]
        return answer

    def size(self, name: str) -> int:
        size: int = self.workloads[NS, name]["spec"]["replicas"]
        return size


class JudgedMetrics(Metrics):
    """A provider that is late and fails, and notices an autoscaler that is in two passes."""

    def __init__(self, world: JudgedWorld) -> None:
        super().__init__(lambda _question, pod: self.load[pod.rpartition("-")[0]])
        self.load = dict.fromkeys(NAMES, 1000)
        self._world = world
        self._asking: Counter[tuple[str, int]] = Counter()

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        world, draw = self._world, self._world.draw
        names = [each.selector.partition("=")[2] for each in questions]  # type: ignore[union-attr]
        lives = [(name, world.lives[name]) for name in names]
        for each in lives:
            world.promise(not self._asking[each], f"an autoscaler is never in two passes: {each}")
        self._asking.update(lives)
        try:
            await asyncio.sleep(draw.choice((0.0, 0.5, 3.0, 20.0)) if world.faults else 0.0)
        finally:
            self._asking.subtract(lives)
        if draw.random() < world.faults:
            return [Unavailable("Down", "no Prometheus")] * len(questions)
        return await super().answer(questions)


class AnyOrder:
    """A controller, and everything that may happen around it."""

    def __init__(self, draw: Random) -> None:
        self.draw, self.set_s = draw, 0.0
        self.world = world = JudgedWorld(draw)
        self.cluster = Cluster(
            settings=Settings(sync_period_s=15.0),
            options=Options(writes=draw.choice((1, 50))),
            world=world,
            wall=lambda: 1_795_000_000.0 + now() + self.set_s,
        )
        self.provider = JudgedMetrics(world)
        self.provider.pods, self.provider.now = self.cluster.provider.pods, self.cluster.wall
        self.cluster.controller.state.ports.provider = self.provider
        self.leading: asyncio.Task[None] | None = None
        for name in NAMES:
            self.create(name, 4)
        self.watch()

    def create(self, name: str, size: int) -> None:
        self.world.lives[name] += 1
        made = hpa_object(name, least=1, most=8, behavior=BEHAVIOR)
        made["metadata"]["uid"] += str(self.world.lives[name])
        made["metadata"]["resourceVersion"] = self.world.next_version()
        self.world.hpas[NS, name] = made
        self.world.workloads.setdefault((NS, name), deployment_object(name, size))

    def watch(self) -> None:
        """Have the watches tell what is stored."""
        if self.world.is_blind:
            return
        self.cluster.sync()
        self.cluster.put_pods(
            *(pod_object(name, row) for name in NAMES for row in range(self.world.size(name)))
        )

    def change(self, name: str, **metadata: Any) -> dict[str, Any]:
        found = self.world.hpas[NS, name]
        version = {"resourceVersion": self.world.next_version()}
        found = {**found, "metadata": {**found["metadata"], **metadata, **version}}
        self.world.hpas[NS, name] = found
        return found

    async def a_load_changes(self) -> None:
        self.provider.load[self.draw.choice(NAMES)] = self.draw.choice((300, 1000, 2500))

    async def a_spec_changes(self) -> None:
        found = self.change(self.draw.choice(NAMES), generation=self.world.version)
        least = self.draw.randint(1, 4)
        bounds = {"minReplicas": least, "maxReplicas": least + self.draw.randint(0, 5)}
        found["spec"] = {**found["spec"], **bounds}
        self.cluster.sync()

    async def one_goes_and_another_comes(self) -> None:
        name = self.draw.choice(NAMES)
        del self.world.hpas[NS, name]
        self.world.foreign_until.pop(name, None)
        self.cluster.sync()
        await asyncio.sleep(self.draw.choice((0.0, 5.0)))
        # What is remembered of the first one no policy of the second one counts.
        self.world.log = [each for each in self.world.log if each[1] != name]
        self.create(name, 4)
        self.cluster.sync()

    async def another_controller_writes(self) -> None:
        name, manager = self.draw.choice(NAMES), "kube-controller-manager"
        for each in NAMES:  # whom it wrote lately it comes to again
            if each == name or self.world.foreign_until.get(each, 0.0) > now():
                self.world.foreign_until[each] = now() + QUIET_S - 1.0
        time = f"2026-11-21T10:{self.world.version // 60 % 60:02}:{self.world.version % 60:02}Z"
        self.change(name, managedFields=[writer(manager, time)])
        self.cluster.sync()

    async def the_watch_falls_silent_or_is_heard(self) -> None:
        self.world.is_blind = not self.world.is_blind
        if self.world.is_blind:
            broken = WatchBroken("the stream broke", None)
            self.cluster.stores.pods.apply(broken, scope="", now=now())
        self.watch()

    async def the_weather_changes(self) -> None:
        self.world.faults = self.draw.choice((0.0, 0.1, 0.5))

    async def the_clock_is_set(self) -> None:
        self.set_s += self.draw.choice((-4000.0, -30.0, 30.0, 4000.0))

    async def a_term_begins_or_ends(self) -> None:
        if self.leading is None:
            self.world.is_led = True
            behind_s = self.cluster.controller.state.clock.look()  # since the last pass
            term = Term(self.cluster.wall(), behind_s)
            self.leading = asyncio.ensure_future(self.cluster.controller.run(term))
            return
        self.leading.cancel()
        await asyncio.wait({self.leading})
        assert self.leading.cancelled()
        self.leading, self.world.is_led = None, False
        assert not any(each.passes.is_under_way for each in self.cluster.controller.catalog)

    async def play(self, steps: int) -> None:
        await self.a_term_begins_or_ends()
        happens = (
            *(self.a_load_changes,) * 6, self.a_spec_changes, self.a_spec_changes,
            self.one_goes_and_another_comes, self.another_controller_writes,
            self.the_watch_falls_silent_or_is_heard, self.the_weather_changes,
            self.the_weather_changes, self.the_clock_is_set, self.a_term_begins_or_ends,
        )  # fmt: skip
        for _ in range(steps):
            await self.draw.choice(happens)()
            for _ in range(self.draw.choice((1, 3, 12))):
                await asyncio.sleep(self.draw.choice((0.001, 0.7, 6.0)))
                self.watch()
            if self.leading is not None:
                assert not self.leading.done(), "nothing ends a term"

    async def calm_down(self) -> None:
        """Let all be well, and see every autoscaler decided on, at once when its spec changes."""
        self.world.faults, self.world.is_blind = 0.0, False
        if self.leading is None:
            await self.a_term_begins_or_ends()
        for _ in range(80):
            await asyncio.sleep(10.0)
            self.watch()
        for name in NAMES:
            found = self.change(name, generation=self.world.version)
            found["spec"] = {**found["spec"], "minReplicas": 9, "maxReplicas": 9}
        self.cluster.sync()
        await asyncio.sleep(1.0)
        for name in NAMES:
            record = self.cluster.controller.catalog.get((NS, name))
            assert record is not None
            assert not record.passes.is_under_way
            assert self.world.size(name) == 9
        await self.a_term_begins_or_ends()


@pytest.mark.parametrize("seed", range(40))
async def test_any_order_keeps_what_is_promised(seed: int) -> None:
    one = AnyOrder(Random(seed))
    await one.play(100)
    await one.calm_down()
    assert one.world.broken == []
    print(dict(one.world.counts), len(one.world.rescales), "rescales")
