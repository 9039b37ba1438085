"""Bad weather with a name: each kind of it once, in virtual time, by the clock.

``test_hpa_invariants`` draws such things at random; here each is played out and what must
become of it is said.
"""

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from hpa.decide.settings import Settings
from podscale.kube.client.api import Method
from podscale.kube.client.errors import ApiUnreachable
from tests.faults.hpa_replica import Replica
from tests.faults.hpa_run import EPOCH
from tests.faults.hpa_weather import NS, Line, Weather
from tests.unit.hpa.world import deployment_object, hpa_object

pytestmark = pytest.mark.looptime(noop_cycles=0)

SETTINGS = Settings(sync_period_s=15.0, downscale_stabilization_s=0.0, cpu_initialization_s=0.0)
FREELY = [{"type": "Pods", "value": 100, "periodSeconds": 1}]
AT_ONCE = {
    "scaleUp": {"policies": FREELY},
    "scaleDown": {"stabilizationWindowSeconds": 0, "policies": FREELY},
}
FOUR_A_QUARTER = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 900}]}}


class Stage:
    """A quiet world with replicas, and pods that follow their workload at once."""

    def __init__(self, behavior: dict[str, Any] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.weather = Weather(Random(1))
        metric = {"type": "AverageValue", "averageValue": "1"}
        load = {"type": "Pods", "pods": {"metric": {"name": "load-web"}, "target": metric}}
        made = hpa_object("web", load, least=1, most=20, behavior=behavior or AT_ONCE)
        made["metadata"]["resourceVersion"] = self.weather.next_version()
        self.weather.hpas[NS, "web"] = made
        self.weather.judge.specs["web"] = [(0.0, made["spec"])]
        self.weather.workloads[NS, "web"] = deployment_object("web", 4)
        self.replicas: list[Replica] = []
        self.jump_s = 0.0

    def wall(self) -> float:
        """The clock on the wall."""
        return EPOCH + self._loop.time() + self.jump_s

    def start(self, name: str) -> Replica:
        """Start one more replica."""
        one = Replica(self.weather, name, SETTINGS, self.wall)
        if self.replicas:
            one.measured.ratio = dict(self.replicas[0].measured.ratio)
        self.replicas.append(one)
        return one

    def bear(self, ratio: float) -> None:
        """Put so much load on every pod, as a share of its target."""
        for each in self.replicas:
            each.measured.ratio["web"] = ratio

    @property
    def size(self) -> int:
        """The size of the workload."""
        return int(self.weather.workloads[NS, "web"]["spec"]["replicas"])

    async def last(self, seconds: float) -> None:
        """Let time pass; whoever is not blind sees what changes."""
        until = self._loop.time() + seconds
        while self._loop.time() < until:
            for each in self.replicas:
                each.see({"web": self.size})
            await asyncio.sleep(1.0)

    async def end(self) -> None:
        """Stop everybody; nothing may have been written that must never be."""
        for each in self.replicas:
            await each.kill()
        assert self.weather.judge.found == []

    def rescales(self) -> list[tuple[int, int]]:
        """Return the sizes written, from and to."""
        return [(each.before, each.after) for each in self.weather.judge.log.get("web", ())]

    def condition(self, kind: str) -> tuple[str, str]:
        """Return status and reason of one condition, as stored."""
        conditions = self.weather.hpas[NS, "web"]["status"]["conditions"]
        found = next(each for each in conditions if each["type"] == kind)
        return found["status"], found["reason"]


async def test_prometheus_down_for_an_hour_moves_nothing_and_then_all_goes_on() -> None:
    stage = Stage()
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(60.0)
    one.measured.is_down = True
    stage.bear(0.1)
    await stage.last(3600.0)
    assert stage.rescales() == []
    assert stage.condition("ScalingActive") == ("False", "FailedGetPodsMetric")
    one.measured.is_down = False
    await stage.last(31.0)
    assert stage.size == 1
    assert stage.condition("ScalingActive") == ("True", "ValidMetricFound")
    await stage.end()


async def test_an_api_server_gone_for_five_minutes_costs_the_lease_and_nothing_else() -> None:
    stage = Stage()
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(60.0)
    one.line.is_cut = True
    one.blind()
    stage.bear(0.3)
    await stage.last(300.0)
    assert not one.elector.may_write()
    assert not one.leading.done()
    assert stage.rescales() == []
    one.line.is_cut = False
    one.sighted()
    await stage.last(60.0)
    assert one.elector.may_write()
    assert stage.size in (1, 2)
    await stage.end()


async def test_what_happened_in_a_watch_gap_is_acted_on_when_it_closes() -> None:
    stage = Stage()
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(60.0)
    one.blind()
    found = stage.weather.hpas[NS, "web"]
    spec = {**found["spec"], "minReplicas": 6}
    version = stage.weather.next_version()
    metadata = {**found["metadata"], "generation": 2, "resourceVersion": version}
    stage.weather.hpas[NS, "web"] = {**found, "metadata": metadata, "spec": spec}
    stage.weather.changes += 1
    stage.weather.judge.specs["web"].append((0.0, spec))
    await stage.last(120.0)
    assert stage.rescales() == []
    one.sighted()
    await stage.last(3.0)
    assert stage.rescales() == [(4, 6)]
    await stage.end()


@pytest.mark.parametrize("after", [True, False], ids=["it-arrived", "it-did-not"])
async def test_a_leader_killed_in_mid_write_leaves_neither_a_double_nor_a_forgotten_write(
    after: bool,
) -> None:
    stage = Stage(FOUR_A_QUARTER)
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(30.0)
    other = stage.start("b")
    await stage.last(5.0)
    stage.bear(3.0)
    one.line.dies_with = "arrived" if after else "lost"
    await stage.last(20.0)
    assert one.line.is_cut
    assert stage.size == (8 if after else 4)
    await one.kill()
    await stage.last(60.0)
    assert other.elector.may_write()
    # The policy allows four in a quarter of an hour, whoever leads.
    assert stage.size == 8
    await stage.last(600.0)
    assert stage.size == 8
    assert len(stage.rescales()) == 1
    await stage.end()


async def test_a_leader_frozen_in_mid_write_does_not_write_when_it_wakes() -> None:
    stage = Stage()
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(30.0)
    other = stage.start("b")
    await stage.last(5.0)
    stage.bear(2.0)
    one.line.freezes_at = "scale"
    await stage.last(20.0)
    assert one.line.thaws_at > asyncio.get_running_loop().time()
    stage.bear(1.0)
    await stage.last(40.0)
    assert other.elector.may_write()
    assert stage.size == 4  # the load has gone before anybody could act on it
    await stage.last(60.0)  # and now the first one wakes, its request still in its hands
    assert asyncio.get_running_loop().time() > one.line.thaws_at
    assert stage.size == 4
    assert stage.rescales() == []
    await stage.end()


@pytest.mark.parametrize("jump_s", [-7200.0, -40.0, 40.0, 7200.0])
async def test_a_jumping_clock_neither_shrinks_nor_stops_anything(jump_s: float) -> None:
    stage = Stage()
    stage.start("a")
    stage.bear(2.0)
    await stage.last(3.0)
    assert stage.size == 8
    stage.bear(1.0)
    stage.jump_s = jump_s
    await stage.last(60.0)
    assert stage.size == 8
    stage.bear(1.5)
    await stage.last(20.0)
    assert stage.size == 12
    await stage.end()


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
async def test_a_clock_that_is_set_neither_forgets_a_window_nor_prolongs_it(jump_s: float) -> None:
    window = {"stabilizationWindowSeconds": 300, "policies": FREELY}
    stage = Stage({**AT_ONCE, "scaleDown": window})
    stage.start("a")
    stage.bear(1.0)
    await stage.last(60.0)
    stage.bear(0.3)
    stage.jump_s = jump_s
    await stage.last(250.0)
    assert stage.size == 4
    await stage.last(90.0)
    assert stage.size == 2
    await stage.end()


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
async def test_a_clock_set_while_nobody_leads_neither_forgets_an_event_nor_prolongs_it(
    jump_s: float,
) -> None:
    stage = Stage(FOUR_A_QUARTER)
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(30.0)
    stage.start("b")
    stage.bear(3.0)
    await stage.last(40.0)
    assert stage.size == 8
    await one.kill()
    stage.jump_s = jump_s
    await stage.last(800.0)
    assert stage.size == 8
    await stage.last(100.0)
    assert stage.size == 12
    await stage.end()


@pytest.mark.parametrize("is_known", [True, False], ids=["before-the-loss", "after-it"])
@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0])
async def test_a_leader_that_follows_itself_moves_no_event_twice_with_its_clock(
    jump_s: float, is_known: bool
) -> None:
    stage = Stage(FOUR_A_QUARTER)
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(30.0)
    stage.bear(3.0)
    await stage.last(40.0)
    assert stage.size == 8
    left_s = math.inf  # until it is renewed
    while one.elector.remaining_s() < left_s:
        left_s = one.elector.remaining_s()
        await stage.last(1.0)
    fate, is_over = stage.weather.fate, False

    def no_renewal(method: Method, path: str) -> Exception | str | None:
        refused = ApiUnreachable("no way to the Lease")
        return refused if "/leases" in path and not is_over else fate(method, path)

    # From here on histories are stored, and the Lease is not renewed.
    stage.weather.fate = no_renewal  # type: ignore[method-assign]
    if is_known:
        stage.jump_s = jump_s
    await stage.last(20.0)
    assert not one.elector.may_write()
    stage.jump_s = jump_s
    is_over = True
    await stage.last(740.0)
    assert one.elector.may_write()
    assert stage.size == 8
    await stage.last(140.0)
    assert stage.size == 12
    await stage.end()


async def test_an_autoscaler_deleted_in_mid_write_is_not_written_again() -> None:
    stage = Stage()
    one = stage.start("a")
    stage.bear(1.0)
    await stage.last(30.0)
    stage.bear(2.0)
    one.line.freezes_at, one.line.frozen_s = "scale", 5.0
    await stage.last(16.0)
    del stage.weather.hpas[NS, "web"]
    stage.weather.changes += 1
    before = stage.weather.judge.statuses
    await stage.last(60.0)
    assert stage.weather.judge.statuses == before
    assert "shop/web" not in stage.weather.histories()
    assert one.controller.traces.last((NS, "web")) is None
    await stage.end()


def fated(end: str | None) -> Callable[[Method, str], Exception | str | None]:
    """Return a fate that all requests share."""
    return lambda _method, _path: end


async def test_the_judge_goes_on_judging_after_a_lost_answer() -> None:
    stage = Stage(FOUR_A_QUARTER | {"scaleDown": AT_ONCE["scaleDown"]})
    weather, line = stage.weather, Line(stage.weather, "a")
    weather.lease = {"spec": {"holderIdentity": "a"}}
    path = f"/apis/apps/v1/namespaces/{NS}/deployments/web/scale"

    async def grow(size: int) -> None:
        version = weather.workloads[NS, "web"]["metadata"]["resourceVersion"]
        sent = {"metadata": {"resourceVersion": version}, "spec": {"replicas": size}}
        await line.request("PUT", path, body=msgspec.json.encode(sent))

    weather.fate = fated("lost")  # type: ignore[method-assign,assignment]
    with pytest.raises(ApiUnreachable):
        await grow(8)
    weather.fate = fated(None)  # type: ignore[method-assign,assignment]
    assert weather.judge.found == []
    await asyncio.sleep(5.0)
    await grow(9)
    assert len(weather.judge.found) == 1


async def test_a_lost_answer_of_a_rescale_lets_no_policy_be_overstepped() -> None:
    stage = Stage(FOUR_A_QUARTER | {"scaleDown": AT_ONCE["scaleDown"]})
    stage.start("a")
    stage.bear(1.0)
    await stage.last(20.0)
    weather = stage.weather

    def fate(method: Method, path: str) -> Exception | str | None:
        if method == "GET" or not path.endswith("/scale"):
            return None
        weather.fate = fated(None)  # type: ignore[method-assign,assignment]
        return "lost"

    weather.fate = fate  # type: ignore[method-assign]
    stage.bear(3.0)
    await stage.last(300.0)
    assert stage.size == 8
    await stage.end()
