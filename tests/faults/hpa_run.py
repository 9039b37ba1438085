"""One seeded run: two replicas, a few HPAs, and whatever the script of the seed does to them."""

import asyncio
from random import Random
from typing import Any

from msgspec import Struct

from hpa.decide.settings import Settings
from tests.faults.hpa_replica import Replica
from tests.faults.hpa_weather import NS, Weather
from tests.unit.hpa.world import deployment_object, hpa_object

EPOCH = 1_795_400_000.0  # after the start of every pod, jumps included
STORM_S = 110.0
CALM_S = 60.0  # a lease may have to expire, histories to be read, and every HPA gets its turn
PERIOD_S = 10.0
_POLICIES = (
    {"type": "Pods", "value": 1, "periodSeconds": 15},
    {"type": "Pods", "value": 3, "periodSeconds": 60},
    {"type": "Percent", "value": 50, "periodSeconds": 30},
    {"type": "Percent", "value": 100, "periodSeconds": 90},
)


class Result(Struct):
    """What one run came to."""

    found: list[str]
    rescales: int
    lowered: int
    statuses: int
    refused: int
    terms: int
    judged: int  # rescales under a policy
    exempted: int  # those of which no policy was judged


class Run:
    """One world from beginning to end; ``play`` it."""

    weather_type: type[Weather] = Weather
    replica_type: type[Replica] = Replica

    def __init__(self, history: str) -> None:
        """``history`` seeds everything that is left to chance."""
        self.draw = Random(history)
        self._jump = 0.0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.weather = self.weather_type(self.draw)
        self.settings = Settings(
            sync_period_s=PERIOD_S,
            downscale_stabilization_s=self.draw.choice((0.0, 20.0, 300.0)),
            cpu_initialization_s=0.0,
        )
        self.sizes: dict[str, int] = {}  # of pods, which follow the workloads
        self.names: list[str] = []
        self.problems: list[str] = []
        for number in range(self.draw.randint(1, 3)):
            self._create(f"web{number}")
        if self.draw.random() < 0.5:
            self._bad()
        self.replicas = [self._replica("a"), self._replica("b")]
        self._terms = 2
        self._reality()

    def wall(self) -> float:
        """The clock on the wall, which may jump."""
        return EPOCH + self._loop.time() - self._began + self._jump

    async def play(self) -> Result:
        """Storm, then calm; nothing may be wrong in either, and all must be well at the end."""
        end = self._loop.time() + STORM_S
        acts = (
            self._cut, self._cut, self._freeze, self._replace, self._blind, self._blind,
            self._clock, self._delete, self._recreate, self._edit, self._edit, self._faults,
            self._faults, self._measured, self._turn, self._turn, self._turn,
        )  # fmt: skip
        self._faults()
        self._measured()
        due = self._loop.time() + self.draw.uniform(0, 10)
        while self._loop.time() < end:
            if self._loop.time() >= due:
                await _maybe(self.draw.choice(acts)())
                due = self._loop.time() + self.draw.uniform(1, 14)
            await self._second()
        await self._calm()
        return self._result()

    async def _second(self) -> None:
        self._move()
        for each in self.replicas:
            each.see(self.sizes)
        await asyncio.sleep(1.0)

    def _move(self) -> None:
        # Controllers make and delete pods a little later than they are asked to.
        for (_, name), found in self.weather.workloads.items():
            size = found["spec"]["replicas"]
            if self.sizes.get(name) != size and self.draw.random() < 0.5:
                self.sizes[name] = size
                found["status"] = {"replicas": size}
                found["metadata"]["resourceVersion"] = self.weather.next_version()
                self.weather.changes += 1

    async def _calm(self) -> None:
        weather = self.weather
        weather.faults = 0.0
        for each in self.replicas:
            each.measured.faults = 0.0
            each.line.is_cut, each.line.thaws_at = False, 0.0
            each.sighted()
        for name in self.names:
            self._set_ratio(name, 1.0)
        until = self._loop.time() + CALM_S
        while self._loop.time() < until:
            await self._second()
        self._check_end()
        for each in self.replicas:
            await each.kill()

    def _check_end(self) -> None:
        now = self._loop.time()
        leaders = [each for each in self.replicas if each.elector.may_write()]
        if len(leaders) != 1:
            self.problems.append(f"{len(leaders)} leaders at the end")
            return
        for each in self.replicas:
            if each.leading.done():
                self.problems.append(f"{each.name} has ended: {each.leading!r}")
        for name in self.names:
            if (NS, name) not in self.weather.hpas:
                continue
            idle_s = now - leaders[0].measured.asked_at.get(name, float("-inf"))
            if idle_s > 2.5 * PERIOD_S:
                self.problems.append(f"{name} has not been looked at for {idle_s:.0f} s")
            found = self.weather.hpas[NS, name]
            conditions = {c["type"]: c for c in found.get("status", {}).get("conditions", ())}
            if conditions.get("ScalingActive", {}).get("status") != "True":
                self.problems.append(f"{name} is not well at the end: {conditions}")
            size = self.weather.workloads[NS, name]["spec"]["replicas"]
            spec = found["spec"]
            if not spec["minReplicas"] <= size <= spec["maxReplicas"]:
                self.problems.append(f"{name} has {size} replicas at the end")

    def _result(self) -> Result:
        judge = self.weather.judge
        found = [*judge.found, *self.problems]
        return Result(
            found, judge.rescales, judge.lowered, judge.statuses, judge.refused, self._terms,
            judge.judged, judge.exempted,
        )  # fmt: skip

    def _create(self, name: str) -> None:
        draw = self.draw
        metrics = [_pods(f"load-{name}"), _cpu(), _external(f"queue-{name}")]
        more: dict[str, Any] = {}
        if draw.random() < 0.6:
            more["behavior"] = {
                "scaleUp": {
                    "stabilizationWindowSeconds": draw.choice((0, 0, 30)),
                    "policies": [draw.choice(_POLICIES)],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": draw.choice((0, 15, 60)),
                    "policies": [draw.choice(_POLICIES)],
                },
            }
        chosen = draw.sample(metrics, draw.randint(1, 3))
        least = draw.choice((1, 1, 2))
        made = hpa_object(name, *chosen, least=least, most=draw.choice((6, 10, 12)), **more)
        if draw.random() < 0.2:
            text = draw.choice(('{"%s": "hold"}', '{"%s": "last:30s"}', '{"%s": "replicas:2"}'))
            annotations = {"podscale.io/fallback": text % f"load-{name}"}
            made["metadata"]["annotations"] = annotations
        self._put(made)
        size = draw.randint(1, 12)
        self.weather.workloads[NS, name] = deployment_object(name, size)
        self.sizes[name] = size
        self.names.append(name)

    def _bad(self) -> None:
        """An object that nobody can decide on; the others must not notice."""
        made = hpa_object("bad", _pods("load-bad"))
        if self.draw.random() < 0.5:
            made["spec"]["metrics"][0]["pods"]["target"]["averageValue"] = "plenty"
        else:
            made["spec"]["scaleTargetRef"] = {"apiVersion": "x/y/z", "kind": "No", "name": "no"}
        self._put(made)

    def _put(self, made: dict[str, Any]) -> None:
        made["metadata"]["resourceVersion"] = self.weather.next_version()
        name = made["metadata"]["name"]
        self.weather.hpas[NS, name] = made
        self.weather.changes += 1
        now = self._loop.time()
        self.weather.judge.specs.setdefault(name, []).append((now, made["spec"]))

    def _replica(self, name: str) -> Replica:
        return self.replica_type(self.weather, name, self.settings, self.wall)

    def _reality(self) -> None:
        for name in self.names:
            self._set_ratio(name, self.draw.choice((0.3, 1.0, 1.0, 2.0)))

    def _set_ratio(self, name: str, ratio: float) -> None:
        for each in self.replicas:
            each.measured.ratio[name] = ratio

    def _turn(self) -> None:
        ratio = self.draw.choice((0.0, 0.3, 0.3, 0.7, 1.0, 1.05, 1.6, 3.0))
        self._set_ratio(self.draw.choice(self.names), ratio)

    def _cut(self) -> None:
        one = self.draw.choice(self.replicas)
        one.line.is_cut = True
        one.blind()
        self._loop.call_later(self.draw.choice((3, 12, 40)), self._mend, one)

    def _mend(self, one: Replica) -> None:
        if one in self.replicas:
            one.line.is_cut = False
            one.sighted()

    def _freeze(self) -> None:
        one = self.draw.choice(self.replicas)
        one.line.thaws_at = self._loop.time() + self.draw.choice((2, 11, 25))

    async def _replace(self) -> None:
        """Kill one, the leader by preference, and start another in its place."""
        leading = [each for each in self.replicas if each.elector.may_write()]
        one = self.draw.choice(leading or self.replicas)
        await one.kill()
        self.weather.judge.broken_since.pop(one.name, None)
        self._terms += 1
        fresh = self._replica(f"r{self._terms}")
        fresh.measured.ratio = dict(one.measured.ratio)
        fresh.measured.faults = one.measured.faults
        self.replicas[self.replicas.index(one)] = fresh

    def _blind(self) -> None:
        one = self.draw.choice(self.replicas)
        one.blind()
        self._loop.call_later(self.draw.choice((5, 25, 50)), self._mend, one)

    def _clock(self) -> None:
        self._jump += self.draw.choice((-7200.0, -40.0, 40.0, 7200.0))
        self.weather.judge.jumps.append((self._loop.time(), self._jump))

    def _delete(self) -> None:
        name = self.draw.choice(self.names)
        self.weather.hpas.pop((NS, name), None)
        self.weather.changes += 1

    def _recreate(self) -> None:
        for name in self.names:
            if (NS, name) not in self.weather.hpas:
                spec = self.weather.judge.specs[name][-1][1]
                made = hpa_object(name)
                made["spec"] = spec
                made["metadata"]["uid"] = f"again-{self.weather.next_version()}"
                # Its history went with the first of that name.
                self.weather.judge.unsettle(name)
                self._put(made)
                return

    def _edit(self) -> None:
        name = self.draw.choice(self.names)
        found = self.weather.hpas.get((NS, name))
        if found is None:
            return
        least = self.draw.choice((1, 2, 3))
        spec = {
            **found["spec"], "minReplicas": least, "maxReplicas": least + self.draw.randint(0, 9),
        }  # fmt: skip
        metadata = {**found["metadata"], "generation": found["metadata"]["generation"] + 1}
        self._put({**found, "metadata": metadata, "spec": spec})

    def _faults(self) -> None:
        self.weather.faults = self.draw.choice((0.0, 0.05, 0.2, 0.5))

    def _measured(self) -> None:
        share = self.draw.choice((0.0, 0.1, 0.3, 1.0))
        for each in self.replicas:
            each.measured.faults = share


async def _maybe(awaited: Any) -> None:
    if awaited is not None:
        await awaited


def _pods(metric: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}}


def _cpu() -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 50}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _external(metric: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "2"}
    return {"type": "External", "external": {"metric": {"name": metric}, "target": target}}
