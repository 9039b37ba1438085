"""What one turn asks of the API server, and what it costs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from podscale.kube.client.eviction import DisruptionOutcome
from podscale.kube.columns.pod_set import PodView
from tests.kit.stores import take_out
from tests.unit.vpa.updater.turns import KEY, Crowd
from tests.unit.vpa.updater.worlds import RS, SETTINGS, vpa
from vpa.admission.patches.patch import OBSERVED

BOOST = replace(SETTINGS, cpu_startup_boost=True)
MARK = {"vpaCpuStartupBoost/app": "{}"}
REFUSED = DisruptionOutcome(
    "pdb", "Cannot evict pod as it would violate the pod's disruption budget."
)
MANY = 500


class Ticks:
    """How often the event loop came round, and what was done at most in between."""

    def __init__(self) -> None:
        self.work = 0
        self.most = 0


@asynccontextmanager
async def ticking(crowd: Crowd) -> AsyncIterator[Ticks]:
    ticks, note = Ticks(), crowd.decisions.note

    def counted(*words: Any) -> None:
        ticks.work += 1
        note(*words)

    async def tick() -> None:
        while True:
            ticks.most, ticks.work = max(ticks.most, ticks.work), 0
            await asyncio.sleep(0)

    crowd.decisions.note = counted  # type: ignore[method-assign, assignment]
    task = asyncio.create_task(tick())
    try:
        yield ticks
        await asyncio.sleep(0)
    finally:
        task.cancel()
        await asyncio.wait({task})


def crowd_of(count: int, **labels: str) -> tuple[Crowd, list[PodView]]:
    crowd = Crowd(count)
    return crowd, [
        crowd.put(
            f"web-{n}",
            labels={key: value.format(n=n) for key, value in labels.items()},
        )
        for n in range(count)
    ]


async def test_a_refusal_costs_the_others_of_its_budget_one_decision_each() -> None:
    crowd, pods = crowd_of(MANY)
    crowd.answer = lambda _pod: REFUSED
    async with ticking(crowd) as ticks:
        await crowd.turn(pods)
    assert crowd.asked["evict"] == 1
    assert crowd.reasons() == {"PdbRefuses"}
    assert crowd.pods.looks <= MANY + 10
    assert ticks.most <= 40


async def test_what_a_group_lost_is_not_counted_pod_by_pod_for_every_act() -> None:
    crowd, pods = crowd_of(MANY)
    await crowd.turn(pods)
    assert crowd.asked["evict"] == MANY // 2
    assert crowd.pods.looks <= 4 * MANY


@pytest.mark.parametrize("when", ["before", "within"])
async def test_pods_that_others_take_away_are_no_longer_there_to_evict(when: str) -> None:
    crowd, pods = crowd_of(10)

    def lose() -> None:
        for seen in pods[-3:]:
            take_out(crowd.pods, "shop", seen.name)

    def answer(_pod: PodView) -> DisruptionOutcome:
        if crowd.asked["evict"] == 1:
            lose()
        return DisruptionOutcome("done")

    if when == "before":
        lose()
    else:
        crowd.answer = answer
    await crowd.turn(pods)
    assert crowd.asked["evict"] == 2  # of the five that may be down, three are


async def test_a_turn_leaves_no_follower_behind() -> None:
    crowd, pods = crowd_of(4)
    await crowd.turn(pods)
    assert not crowd.pods._callbacks


async def test_pods_that_count_themselves_in_their_labels_are_asked_for_once() -> None:
    crowd, pods = crowd_of(
        20,
        **{
            "statefulset.kubernetes.io/pod-name": "web-{n}",
            "apps.kubernetes.io/pod-index": "{n}",
            "batch.kubernetes.io/job-completion-index": "{n}",
            "operator.example/instance": "web-{n}",
        },
    )
    crowd.answer = lambda _pod: REFUSED
    await crowd.turn(pods)
    assert crowd.asked["evict"] == 1


async def test_a_busy_api_server_is_not_asked_to_end_the_next_boost() -> None:
    crowd = Crowd(20, settings=BOOST)
    pods = [crowd.put(f"web-{n}", annotations=MARK) for n in range(20)]
    crowd.answer = lambda _pod: DisruptionOutcome("busy", "too many requests")
    await crowd.turn(pods)
    assert crowd.asked == {"resize": 1}


async def test_a_mark_is_removed_whatever_the_kubelet_says_about_what_was_taken_back() -> None:
    crowd = Crowd(4, settings=BOOST, of_vpa=vpa("InPlaceOrRecreate"))
    left = crowd.put("web-0", annotations=MARK, resize="Infeasible", cpu="500m")
    boosted = crowd.put("web-1", annotations=MARK, resize="Infeasible", cpu="1")
    plain = crowd.put("web-2", resize="Infeasible", cpu="500m")
    await crowd.turn([left, boosted, plain, crowd.put("web-3", cpu="500m")])
    assert crowd.asked == {"unmark": 1}


@pytest.mark.parametrize(("outcome", "count"), [("failed", 1), ("nothing", 0), ("gone", 0)])
async def test_a_mark_that_could_not_be_removed_is_counted_as_a_failure(
    outcome: Literal["failed", "nothing", "gone"], count: int
) -> None:
    crowd = Crowd(4, settings=BOOST, of_vpa=vpa("InPlaceOrRecreate"))
    crowd.answer = lambda _pod: DisruptionOutcome(outcome, "timed out")
    await crowd.turn([crowd.put("web-0", annotations=MARK, cpu="500m")])
    (failures,) = crowd.tools.metrics.failed_updates.collect()
    assert crowd.asked == {"unmark": 1}
    assert sum(each.value for each in failures.samples if each.name.endswith("_total")) == count


async def test_a_pod_that_had_waited_for_a_node_is_no_answer_to_an_eviction() -> None:
    crowd, pods = crowd_of(4)
    waiting = crowd.put("late", node="")
    await crowd.turn(pods, [waiting])
    assert crowd.asked["evict"] > 0
    # The evicted one's place is taken by the one that waited; its own replacement is sized.
    late = crowd.see("late")
    sized = crowd.put("new", node="", annotations={OBSERVED: "app"})
    await crowd.turn([*pods[2:], late], [sized])
    assert crowd.tools.returns.held_s(KEY, RS) is None


async def test_one_that_came_after_the_eviction_is_judged_while_it_waits_for_a_node() -> None:
    crowd, pods = crowd_of(4)
    await crowd.turn(pods, [crowd.put("late", node="")])
    await crowd.turn(pods[2:], [crowd.see("late"), crowd.put("new", node="")])
    assert crowd.tools.returns.held_s(KEY, RS) is not None


@pytest.mark.parametrize(("of_pod", "evictions"), [({"cpu": "200m"}, 0), ({"cpu": "500m"}, 1)])
async def test_no_pod_goes_for_more_than_the_pod_as_a_whole_requests(
    of_pod: dict[str, str], evictions: int
) -> None:
    crowd = Crowd(2)  # admission would leave its successor as it is
    await crowd.turn([crowd.put(name, of_pod=of_pod) for name in ("a", "b")])
    assert crowd.asked["evict"] == evictions
