"""When a size moves, and where to."""

import math
from typing import get_args

import pytest
from msgspec import structs

from podscale.coordinate.anchor import Anchor
from podscale.coordinate.sizes import (
    DAY_S,
    REASONS,
    HorizontalState,
    LatestLoads,
    LoadOfDays,
    SeenLoad,
    SizeChange,
    SizeKept,
    SizeReason,
    VerticalEstimates,
    choose,
    may_shrink,
)

NOW = 1.7e9


def day(load: float) -> tuple[SeenLoad, ...]:
    return (SeenLoad(load, max(math.ceil(load / 600.0), 2.0), 1.0),) * 24


ANCHOR = Anchor(1000, 1000, "u")
SEEN = VerticalEstimates(700, 760, 800, 25, 16_000, DAY_S)
# 20 cores in 34 pods at 60 % of a core, all day.
AXIS = HorizontalState(60, 2, 500, (5, 50), 34, 3600.0, 300.0, day(20_000.0), DAY_S)


def axis(**changes) -> HorizontalState:
    return structs.replace(AXIS, **changes)


def kept(found: SizeChange | SizeKept) -> str:
    assert isinstance(found, SizeKept), found
    return found.reason


def moved(found: SizeChange | SizeKept) -> SizeChange:
    assert isinstance(found, SizeChange), found
    assert found.after < found.before
    return found


def test_a_request_above_its_bounds_falls_and_the_anchor_stays():
    change = moved(choose(ANCHOR, SEEN, AXIS, NOW))
    assert change.reason == "OutsideBounds"
    assert change.anchor == Anchor(1000, 760, "u", 0, int(NOW))


@pytest.mark.parametrize(
    ("anchor", "seen", "state", "reason"),
    [
        pytest.param(ANCHOR, SEEN, axis(quiet_s=599.0), "HorizontalMoving", id="rescaled-lately"),
        pytest.param(ANCHOR, SEEN, axis(window_s=3601.0), "HorizontalMoving", id="a-long-window"),
        pytest.param(ANCHOR, SEEN, axis(loads=(), seen_s=0.0), "DayNotSeen", id="no-day-yet"),
        pytest.param(
            structs.replace(ANCHOR, moved=int(NOW - DAY_S)), SEEN, AXIS, "EstimatesSettling",
            id="estimates-of-other-pods",
        ),
        pytest.param(
            structs.replace(ANCHOR, sized=int(NOW - DAY_S)), SEEN, AXIS, "SizedLately",
            id="at-most-so-often",
        ),
        pytest.param(structs.replace(ANCHOR, size=790), SEEN, AXIS, "WithinBounds", id="in-band"),
        pytest.param(
            structs.replace(ANCHOR, size=830), SEEN, AXIS, "WithinBounds", id="not-worth-it"
        ),
    ],
)  # fmt: skip
def test_what_keeps_a_size(anchor, seen, state, reason):
    assert kept(choose(anchor, seen, state, NOW)) == reason


def test_a_request_that_is_too_small_grows_before_a_day_was_seen():
    small = structs.replace(ANCHOR, size=500)
    change = moved(choose(small, SEEN, axis(loads=(), seen_s=0.0), NOW))
    assert (change.anchor.size, change.anchor.milli) == (760, 1000)


def test_more_pods_than_comfortable_become_fewer_larger_ones():
    change = moved(choose(ANCHOR, SEEN, axis(loads=day(60_000.0), replicas=100), NOW))
    assert change.reason == "OutsideComfort"
    pods = 60_000 / (0.6 * change.anchor.milli)
    assert 5 <= pods <= 50
    assert change.anchor.size / change.anchor.milli == pytest.approx(0.76, abs=0.02)


def test_fewer_pods_than_comfortable_wait_for_a_week():
    few = axis(loads=day(1_000.0), replicas=2)
    used = VerticalEstimates(550, 575, 580, 25, 16_000, DAY_S)
    assert choose(ANCHOR, used, few, NOW).anchor.milli == 1000
    change = moved(choose(ANCHOR, used, structs.replace(few, seen_s=7 * DAY_S), NOW))
    assert change.reason == "OutsideComfort"
    assert 5 <= 1_000 / (0.6 * change.anchor.milli) <= 50


def test_no_pod_becomes_larger_than_a_node():
    seen = structs.replace(SEEN, most=900)
    found = choose(ANCHOR, seen, axis(loads=day(60_000.0), replicas=100), NOW)
    assert moved(found).anchor.size <= 900


def test_no_pod_becomes_smaller_than_what_it_needs_to_start():
    seen = VerticalEstimates(30, 40, 45, 400, 16_000, DAY_S)
    week = axis(loads=day(300.0), replicas=2, seen_s=7 * DAY_S)
    assert moved(choose(ANCHOR, seen, week, NOW)).anchor.size >= 400


def test_no_pod_requests_less_than_the_hpa_lets_it_use():
    idle = VerticalEstimates(30, 40, 45, 25, 16_000, DAY_S)
    found = moved(choose(ANCHOR, idle, axis(loads=day(60.0), replicas=2), NOW))
    assert found.anchor.size >= 0.6 * found.anchor.milli


def test_the_middle_of_the_band_is_taken_among_equals():
    found = moved(choose(ANCHOR, SEEN, axis(loads=day(60_000.0), replicas=100), NOW))
    pods = 60_000 / (0.6 * found.anchor.milli)
    assert 10 < pods < 25


def test_a_load_is_forgotten_with_a_gap():
    seen = LoadOfDays()
    for minute in range(1441):
        seen.add(1000.0, 2, NOW + 60.0 * minute)
    assert seen.seen_s == DAY_S
    assert {(each.load, each.pods) for each in seen.loads(DAY_S)} == {(1000.0, 2.0)}
    weights = [each.weight for each in seen.loads(DAY_S)]
    assert weights[0] == pytest.approx(0.5, rel=0.05)
    assert weights[-1] == 1.0
    seen.add(1000.0, 2, NOW + 2 * DAY_S)
    assert (seen.seen_s, len(seen.loads(DAY_S))) == (0.0, 1)


def test_the_first_load_after_a_gap_is_not_the_only_one():
    latest = LatestLoads()
    for minute in range(11):
        assert latest.highest is None
        latest.add(6000.0, NOW + 60.0 * minute)
    assert latest.highest == 6000.0
    for minute in range(40, 50):
        latest.add(100.0, NOW + 60.0 * minute)
        assert latest.highest == 6000.0
    latest.add(100.0, NOW + 60.0 * 50)
    assert latest.highest == 100.0
    latest.add(100.0, NOW + 60.0 * 120)  # an hour and more: nothing is known of before
    assert latest.highest is None


def test_a_burst_is_seen_as_what_it_is_over_an_hour():
    seen = LoadOfDays()
    for minute in range(120):
        seen.add(61_000.0 if minute == 30 else 1000.0, 2, NOW - NOW % 3600 + 60.0 * minute)
    assert max(each.load for each in seen.loads(DAY_S)) == pytest.approx(2000.0)


def test_an_anchor_of_a_clock_that_was_ahead_does_not_hold_for_years():
    ahead = int(NOW + 365 * DAY_S)
    change = moved(choose(structs.replace(ANCHOR, moved=ahead, sized=ahead), SEEN, AXIS, NOW))
    assert change.anchor.size == 760


@pytest.mark.parametrize(("load", "is_ready"), [(None, False), (6900.0, True), (7000.0, False)])
def test_pods_shrink_when_so_many_small_ones_carry_the_load(load, is_ready):
    assert may_shrink(structs.replace(ANCHOR, size=760), load, 10) is is_ready


def test_every_reason_has_words():
    assert set(get_args(SizeReason)) == REASONS.keys()
