"""Histories in few numbers, and what they must not lose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.decide.api.spec import LONGEST_WINDOW_S, Rules
from hpa.decide.behavior import rate_limit
from hpa.decide.observation import GoodProposal, Past, Recommendation, ScaleEvent
from hpa.history.history import (
    drifted,
    from_record,
    mark,
    recovered,
    resumed,
    shifted,
    taken_over,
    to_record,
)
from podscale.kube.objects.autoscaler import Policy
from tests.unit.hpa.hpas import BEHAVIOR_HPA, with_status

NOW = 1_795_000_000.0
ages = st.floats(0.0, 1000.0).map(lambda age: round(age, 3))


@given(st.lists(st.tuples(st.integers(0, 6), ages), max_size=30), st.floats(0.001, 900.0))
def test_a_window_sees_the_same_through_the_stored_form(
    given_: list[tuple[int, float]], window_s: float
) -> None:
    past = Past(tuple(Recommendation(replicas, NOW - age) for replicas, age in given_))
    again = from_record(to_record(past, 3, NOW), None)
    cutoff = NOW - round(window_s, 3) - 0.0005  # between the milliseconds of the stored times

    def seen(which: Past) -> set[int]:
        return {each.replicas for each in which.recommendations or () if each.at > cutoff}

    assert seen(again) == seen(past)


def test_the_last_run_reaches_to_the_last_sign_of_life() -> None:
    past = Past((Recommendation(4, NOW - 60), Recommendation(5, NOW - 30)))
    again = from_record(to_record(past, 5, NOW - 30), NOW - 2)
    assert again.recommendations == (Recommendation(4, NOW - 60), Recommendation(5, NOW - 2))


def test_a_record_from_before_the_last_rescale_reaches_no_further() -> None:
    record = to_record(Past((Recommendation(8, NOW - 7200),)), 8, NOW - 7200)
    shrunk = with_status(BEHAVIOR_HPA, current=3, desired=3, last_scale_s=NOW - 100)
    assert taken_over(record, NOW - 2, shrunk).recommendations == (
        Recommendation(8, NOW - 7200),
        Recommendation(3, NOW - 100),
    )
    # The status has whole seconds, and is written just before the history.
    known = with_status(BEHAVIOR_HPA, current=8, desired=8, last_scale_s=NOW - 7200 + 1)
    assert taken_over(record, NOW - 2, known).recommendations == (Recommendation(8, NOW - 2),)


def test_where_nobody_knows_the_size_that_is_found_counts_as_recommended() -> None:
    silent = Past((Recommendation(8, NOW - 61),))
    assert resumed(silent, 3, NOW).recommendations == (
        Recommendation(8, NOW - 61),
        Recommendation(3, NOW - 0.001),
    )
    assert resumed(Past(()), 3, NOW).recommendations == (Recommendation(3, NOW - 0.001),)


def test_what_another_clock_dates_ahead_has_happened_by_now() -> None:
    past = Past((Recommendation(4, NOW - 5),), (ScaleEvent(2, NOW + 7200), ScaleEvent(1, NOW - 1)))
    moved = shifted(past, 3.0, NOW)
    assert moved.recommendations == (Recommendation(4, NOW - 2),)
    assert moved.scale_ups == (ScaleEvent(2, NOW), ScaleEvent(1, NOW))


def test_what_no_window_reaches_is_not_stored() -> None:
    old = NOW - LONGEST_WINDOW_S - 1
    past = Past((Recommendation(9, old),), (ScaleEvent(2, old),), (ScaleEvent(3, NOW - 1),))
    record = to_record(past, 1, NOW)
    assert (record.runs, record.ups, record.downs) == ((), (), ((3, NOW - 1),))


def test_only_a_new_value_or_event_makes_a_history_worth_writing() -> None:
    first = Past((Recommendation(4, NOW - 30), Recommendation(5, NOW - 15)))
    same = Past((Recommendation(5, NOW), Recommendation(5, NOW - 15)))
    other = Past((Recommendation(5, NOW - 15), Recommendation(6, NOW)))
    rescaled = Past(first.recommendations, (ScaleEvent(1, NOW),))
    assert mark(first, 5) == mark(same, 5)
    assert len({mark(first, 5), mark(other, 5), mark(rescaled, 5), mark(first, 6)}) == 4


def test_a_good_number_that_stays_is_written_again_within_a_minute() -> None:
    def good(at: float) -> Past:
        return Past((), good=(GoodProposal("load", 4, at),))

    begun = NOW - NOW % 60
    assert mark(good(begun), 4) == mark(good(begun + 59), 4)
    assert mark(good(begun), 4) != mark(good(begun + 60), 4)


def test_a_rescale_that_only_the_status_tells_is_recovered_once() -> None:
    hpa = with_status(BEHAVIOR_HPA, current=2, desired=5, last_scale_s=NOW - 10)
    past, size = recovered(Past(()), hpa, 2)
    assert past.scale_ups == (ScaleEvent(3, NOW - 10),)
    assert size == 5
    assert recovered(past, hpa, 5) == (past, 5)
    # The status has whole seconds: our own event is a fraction younger.
    ours = Past((), (ScaleEvent(3, NOW - 10 + 0.7),))
    assert recovered(ours, hpa, 5) == (ours, 5)


def test_a_difference_in_size_counts_as_an_event_of_now() -> None:
    (event,) = drifted(Past(()), BEHAVIOR_HPA, 4, 2, NOW, NOW - 50).scale_downs
    assert event == ScaleEvent(2, NOW, earliest=NOW - 50)
    assert drifted(Past(()), BEHAVIOR_HPA, 4, 4, NOW, NOW - 50) == Past(())
    assert drifted(Past(()), BEHAVIOR_HPA, None, 4, NOW, NOW - 50) == Past(())


@pytest.mark.parametrize(("earliest_s", "room"), [(50, 0), (10, 2)])
def test_what_was_perhaps_made_long_ago_gives_the_other_direction_no_room(
    earliest_s: float, room: int
) -> None:
    policies = Rules(0, "Max", (Policy("Pods", 1, 15),))
    fewer = drifted(Past(()), BEHAVIOR_HPA, 8, 6, NOW, NOW - earliest_s)
    more = drifted(Past(()), BEHAVIOR_HPA, 6, 8, NOW, NOW - earliest_s)
    assert rate_limit("up", 6, (), fewer.scale_downs, policies, NOW).replicas == 7 + room
    assert rate_limit("down", 8, more.scale_ups, (), policies, NOW).replicas == 7 - room
    # Its own direction has used it up, as if it were of now.
    assert rate_limit("down", 6, (), fewer.scale_downs, policies, NOW).replicas == 7
    assert rate_limit("up", 8, more.scale_ups, (), policies, NOW).replicas == 7


def test_what_is_not_known_of_a_rescale_is_stored_and_follows_the_clock() -> None:
    past = drifted(Past((), (ScaleEvent(1, NOW - 70),)), BEHAVIOR_HPA, 8, 6, NOW, NOW - 50)
    assert from_record(to_record(past, 6, NOW), None) == past
    (event,) = shifted(past, -3.0).scale_downs
    assert event == ScaleEvent(2, NOW - 3, earliest=NOW - 53)
