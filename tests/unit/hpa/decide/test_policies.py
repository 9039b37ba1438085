"""Thousands of policies and events cost a pass little; none reaches back longer than it may."""

import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from msgspec import structs

from hpa.decide.api.reading import UP, read_rules
from hpa.decide.api.spec import Rules
from hpa.decide.behavior import rate_limit
from hpa.decide.observation import ScaleEvent
from podscale.kube.objects.autoscaler import Policy, ScalingRules
from tests.unit.hpa.decide.situations import NOW


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions are called in ``work``."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def events(count: int) -> tuple[ScaleEvent, ...]:
    times = [NOW - n % 1900 for n in range(count)]
    return tuple(
        ScaleEvent(1 + n % 3, at, earliest=at - 7 if n % 5 else None) for n, at in enumerate(times)
    )


def of(*policies: Policy, select: str = "Max") -> Rules:
    return read_rules(ScalingRules(select_policy=select, policies=policies), UP)


@pytest.mark.parametrize("select", ["Max", "Min"])
def test_the_least_and_the_greatest_of_a_type_and_period_decide_as_all_would(select: str) -> None:
    chance = random.Random(40)
    values = (1, 2, 10, 33, 50, 100, 200, 700)
    for _ in range(400):
        policies = tuple(
            Policy(chance.choice(["Pods", "Percent"]), chance.choice(values), period_s)
            for period_s in chance.choices([15, 60], k=20)
        )
        few = of(*policies, select=select)
        assert len(few.policies) <= 8
        every = structs.replace(few, policies=policies)
        past = (events(chance.randint(0, 30)), events(chance.randint(0, 30)))
        size = chance.choice([1, 3, 10, 500])  # with a size before those events below zero, too
        for to in ("up", "down"):
            left, whole = (rate_limit(to, size, *past, each, NOW) for each in (few, every))
            assert left.replicas == whole.replicas


def test_policies_times_events_is_no_number_of_steps() -> None:
    rules = of(*(Policy("Pods", 1 + n % 7, 1 + n % 1800) for n in range(20_000)))
    past = (events(1000), events(1000))
    assert calls_of(lambda: rate_limit("up", 500, *past, rules, NOW)) < 50_000
    assert calls_of(lambda: rate_limit("down", 500, *past, rules, NOW)) < 50_000


def test_windows_and_periods_are_at_most_those_of_the_api_server() -> None:
    rules = read_rules(ScalingRules(2**31 - 1, policies=(Policy("Pods", 4, 2**31 - 1),)), UP)
    assert (rules.window_s, rules.policies) == (3600, (Policy("Pods", 4, 1800),))
