"""Search and paging over thousands; states and reasons of single decisions."""

import itertools
import time

import msgspec
import pytest

from hpa.cluster.record import Key
from hpa.decide.decision import Trace
from hpa.history.decision_log import DecisionLog
from podscale.explain.decision_history import MOST
from podscale.page.answers import DecisionTrail
from podscale.page.board import MOST_HPAS
from podscale.page.listing import Query, WorkloadList, row
from podscale.page.values import ShownListing
from tests.browser.crowd import Crowd, crowd
from tests.browser.scenes import START, Played

COUNT = 2000


@pytest.fixture(scope="module")
def made() -> Crowd:
    return crowd(COUNT)


def answered(made: Crowd, query: Query) -> ShownListing:
    return WorkloadList(made.page.board).answer(query, now=START, is_leader=True)


def test_pages_are_disjoint_in_order_and_cover_everything(made: Crowd) -> None:
    lister = WorkloadList(made.page.board)
    seen: list[str] = []
    for offset in range(0, COUNT, 100):
        found = lister.answer(Query(offset=offset, limit=100), now=START, is_leader=True)
        seen += [row.id for row in found.rows]
    assert len(seen) == len(set(seen)) == COUNT
    keys = [(each.split("/")[0], each.split("/")[2]) for each in seen]
    assert keys == sorted(keys)


def test_words_are_found_in_any_order_and_any_case(made: Crowd) -> None:
    found = answered(made, Query("APP-1501 team-01"))
    assert [row.id for row in found.rows] == ["team-01/Deployment/app-1501"]
    assert (found.total, found.matched) == (COUNT, 1)


def test_a_reason_is_found_too(made: Crowd) -> None:
    reason = answered(made, Query(state="failing")).rows[0].reason
    found = answered(made, Query(reason.lower(), limit=100))
    assert {row.state for row in found.rows} == {"failing"}
    assert found.matched == COUNT // 500


def test_a_page_behind_the_end_is_the_last_one(made: Crowd) -> None:
    found = answered(made, Query(offset=10**9, limit=30))
    assert found.offset == 1980
    assert len(found.rows) == 20
    assert answered(made, Query("nothing like it", offset=50)).offset == 0


def test_what_waits_is_told_by_reason_with_examples(made: Crowd) -> None:
    found = answered(made, Query())
    failing = [each for each in found.waiting if each.state == "failing"]
    assert sum(each.count for each in failing) == found.counts["failing"] == COUNT // 500
    assert all(1 <= len(each.examples) <= 3 for each in found.waiting)


def test_a_page_costs_little_however_many_there_are(made: Crowd) -> None:
    small = crowd(200)
    listers = {200: WorkloadList(small.page.board), COUNT: WorkloadList(made.page.board)}
    costs = {}
    for count, lister in listers.items():
        lister.answer(Query(), now=START, is_leader=True)
        began = time.process_time()
        for _ in range(20):
            msgspec.json.encode(lister.answer(Query(), now=START, is_leader=True))
        costs[count] = time.process_time() - began
    assert costs[COUNT] < 10 * costs[200]  # linear at most: ten times as many


async def test_a_failed_metric_leaves_a_gap_and_never_a_zero() -> None:
    played = Played()
    await played.play(1500.0)
    workload = played.page.board.get(("shop", "Deployment", "web"))
    assert workload is not None
    assert workload.scaling_ring is not None
    times, (load, _, replicas) = workload.scaling_ring.times(), workload.scaling_ring.columns()
    is_down = (times - START >= 1380) & (times - START < 1440)
    assert is_down.sum() == 4
    assert (load[is_down] != load[is_down]).all()  # NaN
    assert (replicas[is_down] > 0).all()  # and nothing shrank


async def test_marks_are_the_changes_that_the_log_of_decisions_knows_the_newest_first() -> None:
    played = Played()
    await played.play(2400.0)
    workload = played.page.board.get(("shop", "Deployment", "web"))
    assert workload is not None
    marks = DecisionTrail(played.traces).decisions(workload)
    known = played.traces.changes(("shop", "web"))
    assert [each.at for each in marks] == [at for at, _ in reversed(known)]
    sizes = [each.title.removesuffix(" replicas").split(" → ") for each in marks
             if each.title.endswith(" replicas")]  # fmt: skip
    assert all(a[0] == b[1] for a, b in itertools.pairwise(sizes))


class AskedLog(DecisionLog):
    """Counts the decisions that are made again."""

    asked = 0

    def at(self, key: Key, time_s: float) -> Trace | None:
        self.asked += 1
        return super().at(key, time_s)


async def test_a_page_left_open_makes_no_decision_again() -> None:
    traces = AskedLog()
    played = Played(traces)
    await played.play(2400.0)
    workload = played.page.board.get(("shop", "Deployment", "web"))
    assert workload is not None
    trail = DecisionTrail(traces)
    first = trail.decisions(workload)
    assert traces.asked == len(first) > 4
    assert all(trail.decisions(workload) == first for _ in range(100))
    assert traces.asked == len(first)


async def test_hundreds_of_autoscalers_of_one_object_make_no_look_dear() -> None:
    traces = AskedLog()
    played = Played(traces)
    await played.play(300.0)
    board = played.page.board
    trace = traces.last(("shop", "web"))
    assert trace is not None
    for number in range(300):
        traces.put(("shop", f"web-{number:03}"), trace)
    workload = board.get(("shop", "Deployment", "web"))
    assert workload is not None
    DecisionTrail(traces).decisions(workload)
    assert traces.asked <= MOST_HPAS * MOST
    assert len(row(workload).others) == MOST_HPAS - 1
    # A place that one leaves is another's from its next decision on.
    traces.forget(("shop", "web"))
    traces.put(("shop", "web-299"), trace)
    assert "web-299" in workload.scalings
    for number in range(300):
        traces.forget(("shop", f"web-{number:03}"))
    assert board.get(("shop", "Deployment", "web")) is None


async def test_a_deleted_autoscaler_leaves_the_page() -> None:
    played = Played()
    await played.play(60.0)
    played.traces.forget(("shop", "web"))
    assert played.page.board.get(("shop", "Deployment", "web")) is None
    assert len(played.page.board) == 2
    played.traces.clear()
    assert len(played.page.board) == 1  # the worker has a VPA


async def test_several_autoscalers_of_one_object_are_all_named_and_none_hides_another() -> None:
    played = Played()
    await played.play(60.0)
    board = played.page.board
    workload = board.get(("shop", "Deployment", "web"))
    trace = played.traces.last(("shop", "web"))
    assert workload is not None
    assert trace is not None
    points = len(workload.scaling_ring or ())
    board.decided(("shop", "web-too"), trace, "MetricAboveTarget")
    board.decided(("shop", "web-third"), trace, "MetricAboveTarget")
    shown = row(workload)
    assert (shown.hpa, shown.others) == ("web", ["web-third", "web-too"])
    found = WorkloadList(board).answer(Query("web-third"), now=START, is_leader=True)
    assert [each.id for each in found.rows] == ["shop/Deployment/web"]
    assert len(workload.scaling_ring or ()) == points  # no line of two loads
    workload.scalings["web-too"] = msgspec.structs.replace(
        workload.scalings["web-too"], state="failing", reason="FailedGetPodsMetric"
    )
    assert (row(workload).state, row(workload).reason) == ("failing", "FailedGetPodsMetric")
    for gone, left in (("web", "web-third"), ("web-too", "web-third"), ("web-third", "")):
        board.forgotten(("shop", gone))
        assert (workload.hpa, row(workload).others[:1]) == (
            left, ["web-too"] if gone == "web" else []
        )  # fmt: skip
    assert board.get(("shop", "Deployment", "web")) is None


async def test_each_mark_tells_the_reasons_of_its_own_autoscaler() -> None:
    played = Played()
    await played.play(600.0)
    board, traces = played.page.board, played.traces
    trail = DecisionTrail(traces)
    for at, _ in traces.changes(("shop", "web")):
        trace = traces.at(("shop", "web"), at)
        assert trace is not None
        later = msgspec.structs.replace(trace, now=trace.now + 1.0)
        traces.put(("shop", "a-second"), later)
    workload = board.get(("shop", "Deployment", "web"))
    assert workload is not None
    assert set(workload.scalings) == {"web", "a-second"}
    marks = trail.decisions(workload)
    assert len({mark.key for mark in marks}) == len(marks) > 4
    for mark in marks:
        words = trail.told(workload, mark.key)
        assert words is not None
        assert (words.at, words.title, words.reason) == (mark.at, mark.title, mark.reason)
    assert trail.told(workload, marks[0].key + "-of-another") is None
