"""``podscale.io/schedule``: what is read, what is in force when, and how it is told."""

import json
import sys
from collections.abc import Callable
from datetime import datetime
from types import FrameType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from hpa.decide.api.options import read_options
from hpa.decide.api.spec import HPA, HpaStatus
from hpa.decide.conclusion import conclude
from hpa.decide.decision import DONE, Decision
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.schedules import scheduled
from hpa.decide.settings import Mode, Settings
from hpa.explain.explanation import explain
from hpa.history.decision_log import PackedTrace
from hpa.simulate.workload import Plant
from podscale.core.metrics import Unavailable
from podscale.kube.objects.autoscaler import AutoscalerCondition
from tests.unit.hpa.decide.situations import NOW as MEASURED
from tests.unit.hpa.decide.situations import listed, pod, queue, seen, series
from tests.unit.hpa.simulate.loads import START_S, load, simulated, web

DAY = {"start": "0 8 * * 1-5", "end": "0 18 * * 1-5", "timeZone": "Europe/Berlin",
       "minReplicas": 5}  # fmt: skip
BERLIN = ZoneInfo("Europe/Berlin")


def with_schedules(*entries: object, most: int = 50) -> HPA:
    annotations = {"podscale.io/schedule": json.dumps(entries)}
    return structs.replace(web(), options=read_options(annotations, most))


def least(hpa: HPA, *when: int, zone: ZoneInfo = BERLIN, fold: int = 0) -> int:
    """Return minReplicas at a time of the clock on the wall."""
    moment = datetime(*when, tzinfo=zone, fold=fold).timestamp()  # type: ignore[arg-type, misc]
    return scheduled(hpa, moment)[0].min_replicas


@pytest.mark.parametrize(("entry", "problem"), [
    ("x", "Expected `object`"),
    ({**DAY, "minReplica": 5}, "unknown field `minReplica`"),
    ({k: v for k, v in DAY.items() if k != "end"}, "missing required field `end`"),
    ({**DAY, "minReplicas": 0}, "minReplicas 0 is not above zero"),
    ({**DAY, "timeZone": "Europe/Atlantis"}, "there is no timeZone 'Europe/Atlantis'"),
    ({**DAY, "timeZone": "../../etc/passwd"}, "there is no timeZone"),
    ({**DAY, "start": "0 8 * *"}, "'0 8 * *' is neither RFC 3339 nor cron: five fields"),
    ({**DAY, "start": "0 8 * * 1-5 2030"}, "five fields"),
    ({**DAY, "end": "61 8 * * *"}, "'61 8 * * *' is neither"),
    ({**DAY, "end": "0 0 30 2 *"}, "'0 0 30 2 *' is neither"),
    ({**DAY, "start": "0 0 * 2 1#5"}, "'0 0 * 2 1#5' does not come within five years"),
    ({**DAY, "end": "0 0 */31 * 1#5"}, "'0 0 */31 * 1#5' does not come within five years"),
    ({**DAY, "end": "0 8 * * 1" + ",1" * 100}, "a cron expression has more than 200 characters"),
    ({**DAY, "ramp": "soon"}, "ramp: "),
    ({**DAY, "ramp": "25h"}, "not between 0s and 24h"),
    ({**DAY, "end": "2026-11-27T18:00:00Z"}, "both cron expressions, or both RFC 3339"),
    ({**DAY, "start": "2026-11-27T08:00:00", "end": "2026-11-27T18:00:00Z"}, "has no offset"),
    ({**DAY, "start": "2026-11-27T18:00:00Z", "end": "2026-11-27T08:00:00Z"}, "is not after"),
    ({**DAY, "minReplicas": 60}, "minReplicas 60 is above maxReplicas 50, which counts"),
])  # fmt: skip
def test_what_is_wrong_is_named_and_the_others_stay(entry: object, problem: str) -> None:
    options = with_schedules(entry, DAY).options
    (text,) = options.problems
    assert text.startswith("podscale.io/schedule: entry 0: ")
    assert problem in text
    assert options.schedules[-1].min_replicas == 5


@pytest.mark.parametrize("text", ["{}", "[", "7", "[" * 5000, '"x"'])
def test_what_is_no_list_is_said_once(text: str) -> None:
    (problem,) = read_options({"podscale.io/schedule": text}).problems
    assert problem.startswith("podscale.io/schedule: not a JSON list")


def test_it_is_in_force_from_start_until_before_end_in_its_own_zone() -> None:
    hpa = with_schedules(DAY)
    assert least(hpa, 2026, 11, 24, 7, 59, 59) == 1
    assert least(hpa, 2026, 11, 24, 8, 0) == 5
    assert least(hpa, 2026, 11, 24, 17, 59, 59) == 5
    assert least(hpa, 2026, 11, 24, 18, 0) == 1
    assert least(hpa, 2026, 11, 28, 12, 0) == 1, "a Saturday"
    assert least(hpa, 2026, 7, 1, 8, 0) == 5, "in summer time as well"


def test_the_largest_of_those_in_force_counts_and_at_most_max_replicas() -> None:
    noon = {**DAY, "start": "0 11 * * *", "end": "0 13 * * *", "minReplicas": 60}
    hpa = with_schedules(DAY, noon)
    assert least(hpa, 2026, 11, 24, 10, 0) == 5
    assert least(hpa, 2026, 11, 24, 12, 0) == 50
    assert least(hpa, 2026, 11, 24, 13, 0) == 5


def test_a_ramp_rises_evenly_and_is_whole_at_start() -> None:
    hpa = with_schedules({**DAY, "minReplicas": 9, "ramp": "80m"})
    assert least(hpa, 2026, 11, 24, 6, 40) == 1
    found = [least(hpa, 2026, 11, 24, 6, 40 + minutes) for minutes in (0, 1, 10, 11, 19)]
    assert found == [1, 2, 2, 3, 3]
    assert least(hpa, 2026, 11, 24, 7, 59) == 9
    assert least(hpa, 2026, 11, 24, 18, 0) == 1


def test_rfc_3339_times_are_in_force_once() -> None:
    hpa = with_schedules({"start": "2026-11-27T08:00:00+01:00", "end": "2026-11-28T00:00:00Z",
                          "minReplicas": 7, "ramp": "1h"})  # fmt: skip
    assert least(hpa, 2026, 11, 27, 6, 59) == 1
    assert least(hpa, 2026, 11, 27, 7, 30) == 4
    assert least(hpa, 2026, 11, 27, 8, 0) == 7
    assert least(hpa, 2026, 11, 28, 1, 0) == 1
    assert least(hpa, 2027, 11, 27, 8, 0) == 1


def test_where_clocks_are_set_a_time_of_day_comes_exactly_once() -> None:
    """As Debian's cron has it: skipped, it comes right after the gap; twice, the first counts."""
    night = with_schedules({**DAY, "start": "30 2 * * *", "end": "30 3 * * *"})
    # 29 March: 02:00 becomes 03:00.
    assert least(night, 2026, 3, 29, 1, 59) == 1
    assert least(night, 2026, 3, 29, 3, 0) == 5
    assert least(night, 2026, 3, 29, 3, 30) == 1
    # 25 October: 03:00 becomes 02:00; from the first 02:30 on, through the hour that comes again.
    assert least(night, 2026, 10, 25, 2, 29) == 1
    assert least(night, 2026, 10, 25, 2, 30) == 5
    assert least(night, 2026, 10, 25, 2, 29, fold=1) == 5
    assert least(night, 2026, 10, 25, 3, 29) == 5
    assert least(night, 2026, 10, 25, 3, 30) == 1


def test_it_may_end_on_another_day_and_start_again_before_it_ends() -> None:
    night = with_schedules({**DAY, "start": "0 22 * * *", "end": "0 6 * * *"})
    assert [least(night, 2026, 11, 24, hour, 0) for hour in (21, 22, 23)] == [1, 5, 5]
    assert [least(night, 2026, 11, 25, hour, 0) for hour in (0, 5, 6)] == [5, 5, 1]
    often = with_schedules({**DAY, "start": "0 8-12 * * *", "end": "0 14 * * *"})
    assert [least(often, 2026, 11, 24, hour, 30) for hour in (7, 8, 12, 13, 14)] == [1, 5, 5, 5, 1]


def test_a_minimum_below_that_of_the_spec_changes_nothing() -> None:
    hpa = structs.replace(with_schedules(DAY), min_replicas=6)
    assert scheduled(hpa, START_S) == (hpa, None)
    assert least(hpa, 2026, 11, 24, 12, 0) == 6


NOW = datetime(2026, 11, 24, 12, 0, tzinfo=BERLIN).timestamp()


def test_a_schedule_raises_at_once_and_explain_names_it() -> None:
    seen = Observation(with_schedules(DAY), Scale(2, 2, "app=web"))
    decision = decide(seen, Past(), Settings(), NOW)
    assert decision.replicas == 5
    told = explain(decision.trace)
    assert told.first_reason == "ScheduledMinimumReached"
    assert told.facts["min"] == 5
    assert (
        "A schedule (0 8 * * 1-5 to 0 18 * * 1-5 Europe/Berlin, minReplicas 5) raises minReplicas "
        "from 1 to 5." in told.sentences
    )
    assert "podscale.io/schedule" in told.change
    later = decide(seen, Past(), Settings(), NOW + 7 * 3600)
    assert later.replicas != 5


@pytest.mark.parametrize(("went", "replicas"), [("True", 5), ("False", None)])
def test_it_wakes_what_went_to_zero_though_no_metric_answers(went, replicas) -> None:
    # KEDA's cron with minReplicaCount 0; who set the scale to zero by hand keeps it there.
    status = HpaStatus(
        0, 0, conditions=(AutoscalerCondition("ScaledToZero", went, "ScaledToZero", "", NOW),)
    )
    hpa = structs.replace(with_schedules(DAY), min_replicas=0, metrics=(queue(1000),),
                          status=status)  # fmt: skip
    seen = Observation(hpa, Scale(0, 0, "app=web"), answers=(Unavailable("Down", "no answer"),))
    decision = decide(seen, Past(), Settings(), NOW)
    assert decision.replicas == replicas
    if replicas:
        assert explain(decision.trace).first_reason == "ScheduledMinimumReached"
        told = conclude(decision, DONE, NOW).status.conditions
        assert [each.status for each in told if each.type == "ScaledToZero"] == ["False"]


def test_a_paused_object_has_no_schedule() -> None:
    hpa = with_schedules(DAY)
    hpa = structs.replace(hpa, options=structs.replace(hpa.options, is_paused=True))
    decision = decide(Observation(hpa, Scale(2, 2, "app=web")), Past(), Settings(), NOW)
    assert decision.replicas is None
    assert explain(decision.trace).first_reason == "Paused"


def test_a_replay_has_the_schedule_in_it() -> None:
    hpa = with_schedules(
        {"start": "2023-11-14T22:20:00Z", "end": "2023-11-14T22:40:00Z", "minReplicas": 5}
    )
    run = simulated(hpa, load([50.0] * 240), Plant(), Settings(), 1)
    starts = datetime.fromisoformat("2023-11-14T22:20:00Z").timestamp()
    is_scheduled = (run.time_s >= starts) & (run.time_s < starts + 1200)
    assert (run.replicas[is_scheduled] == 5).all()
    assert (run.replicas[run.time_s < starts] == 1).all()
    assert (run.replicas[run.time_s >= starts + 1200 + 315] == 1).all()


def days_looked_at(work: Callable[[], object]) -> int:
    """Return how many days cron expressions were compared with in ``work``."""
    days = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal days
        days += event == "call" and frame.f_code.co_name == "match_day"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return days


def rare(number: int) -> dict[str, object]:
    """Return an entry that never comes, and is no other's."""
    return {**DAY, "start": f"{number % 60} {number // 60} */31 * 1#5"}


def test_reading_looks_at_a_bounded_number_of_days() -> None:
    found: list[HPA] = []
    days = days_looked_at(lambda: found.append(with_schedules(*map(rare, range(20)), DAY)))
    assert days == 0, "there are too many entries"
    assert found[0].options.refused_schedule == (
        "podscale.io/schedule: 21 entries, and 20 are the most"
    )
    days = days_looked_at(lambda: found.append(with_schedules(*map(rare, range(20)))))
    assert days < 13_000
    assert "too many steps" in found[1].options.problems[9]
    yearly = [{**DAY, "start": f"{n} 8 29 2 *", "end": f"{n} 9 24-31 12 *"} for n in range(20)]
    assert with_schedules(*yearly).options.problems == ()


def test_start_and_end_are_looked_for_once_until_they_have_passed() -> None:
    hpa = with_schedules(*({**DAY, "start": f"{n} 8 31 * *", "end": f"{n} 9 1 * *"}
                           for n in range(20)))  # fmt: skip
    begin = datetime(2026, 11, 24, 12, 0, tzinfo=BERLIN).timestamp()
    assert days_looked_at(lambda: scheduled(hpa, begin)) > 0
    period = range(15, 3 * 86400, 615)
    assert days_looked_at(lambda: [scheduled(hpa, begin + after) for after in period]) == 0
    assert least(hpa, 2026, 12, 31, 8, 0) == 5
    assert least(hpa, 2027, 1, 1, 9, 19) == 1


def idle(*entries: object, mode: Mode = "replace", at: float = MEASURED, **more: Any) -> Decision:
    """Return what is decided about four pods whose queue one of them could empty."""
    hpa = structs.replace(with_schedules(*entries), metrics=(queue(4000),), **more)
    observed = seen(hpa, 4, listed(*[pod()] * 4), [series(1000)])
    return decide(observed, Past(recommendations=()), Settings(mode=mode), at)


NEVER = {**DAY, "start": "0 0 * 2 1#5"}


@pytest.mark.parametrize("entries", [[NEVER], [NEVER, DAY], [DAY] * 21, ["x"]])
def test_what_has_a_refused_schedule_is_not_lowered_until_it_is_corrected(entries) -> None:
    assert idle(*entries).trace.decided == 4
    assert idle(*entries, mode="shadow").trace.decided == 1, "who acts holds nothing"
    assert idle(DAY).trace.decided == 1


def test_it_grows_all_the_same_and_the_other_entries_are_followed() -> None:
    at_noon = datetime(2025, 6, 16, 12, 0, tzinfo=BERLIN).timestamp()
    assert idle(NEVER, DAY, at=at_noon).trace.decided == 5
    assert idle(NEVER, max_replicas=3).trace.decided == 3, "above maxReplicas"


def test_condition_event_and_explanation_name_the_refused_entry() -> None:
    decision = idle(DAY, NEVER)
    text = (
        "podscale.io/schedule: entry 1: '0 0 * 2 1#5' does not come within five years; until that "
        "is corrected nothing shrinks"
    )
    (able,) = [each for each in decision.status.conditions if each.type == "AbleToScale"]
    assert (able.status, able.reason, able.message) == ("True", "ScheduleRefused", text)
    assert [(each.reason, each.message) for each in decision.events] == [("ScheduleRefused", text)]
    told = explain(decision.trace)
    assert told.first_reason == "ScheduleRefused"
    assert f"{text}: the size is held at 4 (metrics ask for 1)." in told.sentences
    assert "podscale.io/schedule" in told.change
    assert PackedTrace.of(decision.trace).trace() == decision.trace
