"""Which namespaces and objects are due at a tick."""

from collections import Counter

import pytest

from hpa.schedule import Schedule


@pytest.mark.parametrize("period_s", [0.5, 1.0, 3.0, 15.0, 60.0])
def test_a_period_is_its_slots_whatever_its_length(period_s: float) -> None:
    schedule = Schedule(period_s)
    assert schedule.slots * schedule.tick_s == pytest.approx(period_s, rel=0.05)


def test_every_namespace_is_due_once_a_period_and_slots_are_even() -> None:
    schedule = Schedule(15.0)
    names = [f"team-{n}" for n in range(3000)]
    for name in names:
        schedule.add(name)
    due = [schedule.namespaces(tick) for tick in range(schedule.slots)]
    assert sorted(name for each in due for name in each) == sorted(names)
    assert max(map(len, due)) < 1.5 * min(map(len, due))
    schedule.drop("team-7")
    assert "team-7" not in schedule.namespaces(schedule.slot_of("team-7"))


def test_own_periods_neither_drift_nor_catch_up() -> None:
    schedule = Schedule(15.0)
    schedule.own_period(("shop", "web"), 3.0, 0.0)
    seen = Counter(len(schedule.due(float(now))) for now in range(1, 31))
    assert seen[1] == 10
    assert schedule.due(1000.0) == [("shop", "web")]  # once, not 323 times
    schedule.own_period(("shop", "web"), None, 1000.0)
    assert schedule.due(2000.0) == []
    assert not schedule.has_own_period(("shop", "web"))
