"""The page says of pods what was done, not what was decided."""

import pytest
from msgspec import structs

from podscale.page.board import WorkloadBoard
from podscale.page.health import FeedHealth
from podscale.page.listing import reason_of, state_of
from podscale.page.sampler import MOST_VPAS, PageSources, Sampler
from tests.browser.scenes import START, Played
from tests.unit.vpa.updater.worlds import vpa
from vpa.decisions.decisions import KnownSizing
from vpa.explain.recommendation import TargetState
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.decision import AppliedDecision, PodDecision, UpdateDecision
from vpa.updater.decide.priority import Due, Priority

KEY = VpaKey("shop", "web")
EVICT = UpdateDecision("evict", ("OutsideBounds",), {"resource": "memory"})
RESIZE = UpdateDecision("resize", ("OutsideBounds",), {"resource": "memory"})
NOTHING = UpdateDecision("none", ("NothingToChange",), {})


class Vpas:
    def __init__(self) -> None:
        self.pod = PodDecision("web-0", 100.0, EVICT)
        self.problem = ""

    def keys(self) -> list[VpaKey]:
        return [KEY]

    def sized(self, key: VpaKey) -> KnownSizing:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        known = KnownSizing(
            vpa(targetRef=ref), 100.0, TargetState(True), "default", True, (), None, {}, (self.pod,)
        )
        return structs.replace(known, usage_problem=self.problem, selector="app=web")


async def shown(*pods: PodDecision) -> list[tuple[float, str]]:
    """Return the marks about pods after a look at each state."""
    board, vpas = WorkloadBoard(), Vpas()
    sampler = Sampler(
        board, FeedHealth(None), PageSources(vpas=vpas), wall=lambda: 200.0, period_s=1.0
    )
    for pod in pods:
        vpas.pod = pod
        await sampler.once()
    return [(mark.at, mark.title) for each in board for mark, _ in each.marks if mark.kind == "pod"]


async def test_a_decision_that_was_not_carried_out_is_no_event():
    assert await shown(PodDecision("web-0", 100.0, EVICT)) == []


@pytest.mark.parametrize(
    ("decision", "in_place", "title"),
    [
        (EVICT, False, "web-0 evicted"),
        (RESIZE, True, "web-0 resized in place"),
        (RESIZE, False, "web-0 evicted"),
    ],
)
async def test_an_act_is_told_once_and_as_it_went(
    decision: UpdateDecision, in_place: bool, title: str
):
    act = AppliedDecision(101.0, in_place, decision)
    later = PodDecision("web-0", 160.0, NOTHING, act)
    assert await shown(PodDecision("web-0", 100.0, decision, act), later) == [(101.0, title)]


@pytest.mark.parametrize(
    ("due", "direction"),
    [
        pytest.param(Priority(scale_up=True), "up", id="some container wants more"),
        pytest.param(Priority(resource_diff=0.5), "down", id="all want less"),
        pytest.param(None, "down", id="a boost ends"),
    ],
)
async def test_a_pod_goes_where_its_requests_go(due: Priority | None, direction: str):
    board, vpas = WorkloadBoard(), Vpas()
    sources = PageSources(vpas=vpas)
    sampler = Sampler(board, FeedHealth(None), sources, wall=lambda: 200.0, period_s=1.0)
    decision = structs.replace(
        RESIZE, due=None if due is None else Due(is_due=True, reason="OutsideBounds", priority=due)
    )
    vpas.pod = PodDecision("web-0", 100.0, decision, AppliedDecision(101.0, True, decision))
    await sampler.once()
    assert [mark.direction for each in board for mark, _ in each.marks] == [direction]


async def test_of_pods_that_are_gone_nothing_stays():
    board, vpas = WorkloadBoard(), Vpas()
    sources = PageSources(vpas=vpas)
    sampler = Sampler(board, FeedHealth(None), sources, wall=lambda: 200.0, period_s=1.0)
    for number in range(50):
        act = AppliedDecision(100.0 + number, False, EVICT)
        vpas.pod = PodDecision(f"web-{number}", 100.0 + number, EVICT, act)
        await sampler.once()
    assert len(sampler._acts[KEY]) == 1


async def test_who_does_not_lead_any_more_shows_nothing_that_it_decided_before():
    played = Played()
    await played.play(600.0)
    leads = [True]
    board, sources = played.page.board, played.page._sources
    watching = structs.replace(sources, vpas=None, is_leader=lambda: leads[0])
    sampler = Sampler(board, FeedHealth(None), watching, wall=lambda: START, period_s=1.0)
    await sampler.once()
    assert any(each.scaling is not None for each in board)
    leads[0] = False
    await sampler.once()
    assert not any(each.scaling is not None for each in board)
    assert board.get(("shop", "Deployment", "web")) is None


async def test_a_vpa_whose_usage_is_not_read_is_failing_and_not_steady():
    board, vpas = WorkloadBoard(), Vpas()
    sampler = Sampler(
        board, FeedHealth(None), PageSources(vpas=vpas), wall=lambda: 200.0, period_s=1.0
    )
    vpas.pod = PodDecision("web-0", 100.0, NOTHING)
    vpas.problem = "Prometheus did not answer in time"
    await sampler.once()
    (workload,) = board
    assert (state_of(workload), reason_of(workload)) == ("failing", "UsageMissing")
    assert vpas.problem in workload.vpa.why
    vpas.problem = ""
    await sampler.once()
    assert reason_of(workload) != "UsageMissing"


class ManyVpas(Vpas):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.asked: list[VpaKey] = []

    def keys(self) -> list[VpaKey]:
        return [VpaKey("shop", f"web-{number}") for number in range(self.count)]

    def sized(self, key: VpaKey) -> KnownSizing:
        self.asked.append(key)
        return super().sized(key)


async def test_of_thousands_of_vpas_each_gets_its_turn_and_a_look_stays_short():
    vpas = ManyVpas(2 * MOST_VPAS + 10)
    sources = PageSources(vpas=vpas)
    sampler = Sampler(WorkloadBoard(), FeedHealth(None), sources, wall=lambda: 200.0, period_s=1.0)
    for look in range(1, 4):
        await sampler.once()
        assert len(vpas.asked) == look * MOST_VPAS
    assert set(vpas.asked) == set(vpas.keys())
