"""Pods that come back unsized after an eviction hold their group; one at a time tries it again."""

import pytest
from msgspec.structs import replace

from podscale.kube.columns.pod_set import PodView
from tests.unit.vpa.updater.worlds import RS, pod
from vpa.admission.patches.patch import OBSERVED
from vpa.model.samples.membership import VpaKey
from vpa.updater.loop.memory import ResizedReturns

KEY = VpaKey("shop", "web")
SIZED = {OBSERVED: "app"}


def seen(*names: str, sized: bool = False) -> list[PodView]:
    pods = [pod(name) for name in names]
    if not sized:
        return pods
    return [replace(one, annotations=SIZED) for one in pods]


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def returns(clock: Clock) -> ResizedReturns:
    found = ResizedReturns(clock)
    assert not found.look(KEY, RS, seen("a", "b"))
    found.evicted(KEY, RS, {"a", "b"})
    return found


def test_pods_that_were_never_sized_hold_nothing(returns: ResizedReturns) -> None:
    assert not returns.look(KEY, RS, seen("b"))
    assert returns.held_s(KEY, RS) is None


def test_one_that_came_back_unsized_holds_the_group(returns: ResizedReturns) -> None:
    assert returns.look(KEY, RS, seen("b", "c"))
    assert returns.held_s(KEY, RS) == 600.0
    assert not returns.look(KEY, RS, seen("b", "c", "d"))  # of the same evictions


def test_those_that_came_back_sized_hold_nothing(returns: ResizedReturns) -> None:
    assert not returns.look(KEY, RS, [*seen("b"), *seen("c", sized=True)])
    assert returns.held_s(KEY, RS) is None


def test_after_the_pause_one_is_tried_and_the_pause_doubles(
    returns: ResizedReturns, clock: Clock
) -> None:
    returns.look(KEY, RS, seen("b", "c"))
    clock.now += 600.0
    assert returns.held_s(KEY, RS) is None
    returns.evicted(KEY, RS, {"b", "c"})
    assert returns.held_s(KEY, RS) == 600.0  # until it is seen what comes back
    assert returns.look(KEY, RS, seen("c", "d"))
    assert returns.held_s(KEY, RS) == 1200.0


def test_a_sized_one_ends_it(returns: ResizedReturns, clock: Clock) -> None:
    returns.look(KEY, RS, seen("b", "c"))
    clock.now += 30.0
    returns.look(KEY, RS, [*seen("b", "c"), *seen("d", sized=True)])
    assert returns.held_s(KEY, RS) is None


def test_an_unsized_pod_long_after_the_eviction_is_not_its_fault(
    returns: ResizedReturns, clock: Clock
) -> None:
    clock.now += 601.0
    assert not returns.look(KEY, RS, seen("b", "c"))
    assert returns.held_s(KEY, RS) is None


def test_a_try_that_nothing_follows_holds_no_longer_than_it_is_watched(
    returns: ResizedReturns, clock: Clock
) -> None:
    returns.look(KEY, RS, seen("b", "c"))
    clock.now += 600.0
    returns.evicted(KEY, RS, {"b", "c"})
    clock.now += 601.0
    assert returns.held_s(KEY, RS) is None


def test_other_groups_are_not_held(returns: ResizedReturns) -> None:
    returns.look(KEY, RS, seen("b", "c"))
    assert returns.held_s(VpaKey("shop", "api"), RS) is None
