"""Which namespaces and objects are due at a tick."""

import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpa.cluster.record import AutoscalerRecord
from hpa.loop.controller import Schedule
from podscale.kube.client.wire import decode, encode
from podscale.kube.objects.autoscaler import Autoscaler
from tests.unit.hpa.world import hpa_object


def slot_of(schedule: Schedule, namespace: str) -> int:
    return next(n for n in range(schedule.slots) if namespace in schedule.namespaces(n))


@pytest.mark.parametrize("period_s", [0.5, 1.0, 3.0, 15.0, 60.0])
def test_a_period_is_its_slots_whatever_its_length(period_s: float) -> None:
    schedule = Schedule(period_s)
    assert schedule.slots * schedule.tick_s == pytest.approx(period_s, rel=0.05)


def test_every_namespace_is_due_once_a_period_and_slots_are_even() -> None:
    schedule = Schedule(15.0)
    sizes = {f"team-{n}": 1 + n % 5 for n in range(3000)}
    schedule.spread(sizes)
    due = [schedule.namespaces(tick) for tick in range(schedule.slots)]
    assert [name for each in due for name in each] == sorted(sizes)  # runs, as queries are packed
    loads = [sum(sizes[name] for name in each) for each in due]
    assert max(loads) < 1.1 * min(loads)
    schedule.drop("team-7")
    assert not any("team-7" in schedule.namespaces(tick) for tick in range(schedule.slots))


@pytest.mark.parametrize(
    ("autoscalers", "slots"), [(1, 1), (200, 5), (1000, 5), (1001, 6), (3000, 15), (100_000, 15)]
)
def test_few_autoscalers_take_few_slots_and_those_are_spread(autoscalers: int, slots: int) -> None:
    schedule = Schedule(15.0)
    schedule.spread({f"team-{n:06}": 1 for n in range(autoscalers)})
    used = [tick for tick in range(schedule.slots) if schedule.namespaces(tick)]
    assert len(used) == slots
    gaps = {after - before for before, after in zip(used, [*used[1:], used[0] + 15], strict=True)}
    assert max(gaps) - min(gaps) <= 1


def test_a_new_namespace_joins_its_neighbour_at_once() -> None:
    schedule = Schedule(15.0)
    schedule.add("m")
    schedule.spread(dict.fromkeys("abcdefghijklmno", 200))
    schedule.add("dd")
    assert slot_of(schedule, "dd") == slot_of(schedule, "d")


def test_a_namespace_that_moves_far_back_is_not_left_waiting() -> None:
    schedule = Schedule(15.0)
    schedule.spread(dict.fromkeys("abcdefghijklmno", 200))
    old = slot_of(schedule, "c")
    schedule.spread({"a": 20_000, **dict.fromkeys("bcdefghijklmno", 200)})
    assert "c" in schedule.namespaces(old)
    later = [n for n in range(schedule.slots) if "c" in schedule.namespaces(n)][-1]
    assert later > old + 1
    schedule.spread({"a": 20_000, **dict.fromkeys("bcdefghijklmno", 200)})
    assert "c" not in schedule.namespaces(old)


def test_own_periods_neither_drift_nor_catch_up() -> None:
    schedule = Schedule(15.0)
    web = AutoscalerRecord.of(decode(encode(hpa_object("web")), Autoscaler))
    schedule.own_period(web, 3.0, 0.0)
    seen = Counter(len(schedule.due(float(now))) for now in range(1, 31))
    assert seen[1] == 10
    assert schedule.due(1000.0) == [web]  # once, not 323 times
    schedule.own_period(web, None, 1000.0)
    assert schedule.due(2000.0) == []
    assert web.period is None


def test_a_period_that_was_changed_or_given_up_and_taken_again_is_one_period() -> None:
    schedule = Schedule(15.0)
    web = AutoscalerRecord.of(decode(encode(hpa_object("web")), Autoscaler))
    for period_s, now in ((60.0, 0.0), (30.0, 5.0), (None, 6.0), (30.0, 7.0)):
        schedule.own_period(web, period_s, now)
    assert [now for now in range(120) if schedule.due(float(now))] == [37, 67, 97]


def test_of_a_period_that_is_changed_again_and_again_the_last_one_is_kept() -> None:
    schedule = Schedule(15.0)
    web = AutoscalerRecord.of(decode(encode(hpa_object("web")), Autoscaler))
    before = sys.getrefcount(web)
    for change in range(1000):
        schedule.own_period(web, 3000.0 + change % 2, float(change))
    assert sys.getrefcount(web) <= before + 2
    assert schedule.due(10_000.0) == [web]
    schedule.own_period(web, None, 10_000.0)
    assert sys.getrefcount(web) == before


@given(
    st.lists(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 900))),
    st.lists(st.tuples(st.booleans(), st.text("abc", min_size=1, max_size=3))),
)
def test_each_namespace_has_its_turn_exactly_once_a_period_or_twice_while_it_moves(
    spreads: list[dict[str, int]], changes: list[tuple[bool, str]]
) -> None:
    schedule = Schedule(15.0)
    known: set[str] = set()
    for sizes in spreads:
        schedule.spread(sizes)
        known = set(sizes)
    for is_new, namespace in changes:
        if is_new:
            schedule.add(namespace)
            known.add(namespace)
        else:
            schedule.drop(namespace)
            known.discard(namespace)
        turns = [each for tick in range(schedule.slots) for each in schedule.namespaces(tick)]
        assert set(turns) == known
        assert all(1 <= turns.count(each) <= 2 for each in known)
