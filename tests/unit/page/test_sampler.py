"""The page says of pods what was done, not what was decided."""

import pytest

from podscale.page.board import Board
from podscale.page.feedhealth import FeedHealth
from podscale.page.sampler import Sampler
from podscale.page.sources import Sized, Sources
from tests.unit.vpa.updater.worlds import vpa
from vpa.explain.recommendation import TargetState
from vpa.model.membership import VpaKey
from vpa.sizing import Known, PodDecision
from vpa.updater.decide import Act, UpdateDecision

KEY = VpaKey("shop", "web")
EVICT = UpdateDecision("evict", ("OutsideBounds",), {"resource": "memory"})
RESIZE = UpdateDecision("resize", ("OutsideBounds",), {"resource": "memory"})
NOTHING = UpdateDecision("none", ("NothingToChange",), {})


class Vpas:
    def __init__(self) -> None:
        self.pod = PodDecision("web-0", 100.0, EVICT)

    def keys(self) -> list[VpaKey]:
        return [KEY]

    def sized(self, key: VpaKey) -> Sized:
        ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        known = Known(
            vpa(targetRef=ref), 100.0, TargetState(True), "default", True, (), None, {}, (self.pod,)
        )
        return Sized(known, "app=web")


async def shown(*pods: PodDecision) -> list[tuple[float, str]]:
    """Return the marks about pods after a look at each state."""
    board, vpas = Board(), Vpas()
    sampler = Sampler(board, FeedHealth(None), Sources(vpas=vpas), wall=lambda: 200.0, period_s=1.0)
    for pod in pods:
        vpas.pod = pod
        await sampler.once()
    return [(mark.at, mark.title) for each in board for mark in each.marks if mark.kind == "pod"]


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
    act = Act(101.0, in_place, decision)
    later = PodDecision("web-0", 160.0, NOTHING, act)
    assert await shown(PodDecision("web-0", 100.0, decision, act), later) == [(101.0, title)]
