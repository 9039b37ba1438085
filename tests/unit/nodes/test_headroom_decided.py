"""How much room is kept, for whom, and for how long."""

import numpy as np
import pytest

from podscale.nodes.decide.headroom import (
    HOLD_S,
    ComingPods,
    ExpectedSize,
    HeadroomLimit,
    expected,
    headroom,
    size_class,
    totals,
)

GI = 2**30
LIMIT = HeadroomLimit(10_000, 64 * GI)


@pytest.mark.parametrize(("known", "proposed", "now", "size"), [
    pytest.param(None, None, 0.0, None, id="nothing-known"),
    pytest.param(None, 4, 0.0, 4, id="first"),
    pytest.param(4, 6, 10.0, 6, id="raised-at-once"),
    pytest.param(4, 2, 10.0, 4, id="held"),
    pytest.param(4, 2, HOLD_S + 1, 2, id="let-go-later"),
    pytest.param(4, None, 10.0, 4, id="held-through-silence"),
    pytest.param(4, None, HOLD_S + 1, None, id="not-for-ever"),
])  # fmt: skip
def test_the_expected_size(
    known: int | None, proposed: int | None, now: float, size: int | None
) -> None:
    before = None if known is None else ExpectedSize(known, HOLD_S)
    got = expected(before, proposed, now)
    assert (None if got is None else got.replicas) == size


def test_the_same_size_again_is_expected_for_longer() -> None:
    got = expected(ExpectedSize(4, HOLD_S), 4, 100.0)
    assert got == ExpectedSize(4, 100.0 + HOLD_S)


def test_workloads_of_like_pods_share_a_class() -> None:
    got = headroom([ComingPods("shop/a", 2, 1000, GI), ComingPods("shop/b", 1, 990, GI - 5)], LIMIT)
    assert list(got.values()) == [3]


def test_what_places_pods_differently_is_another_class() -> None:
    got = headroom(
        [ComingPods("shop/a", 2, 1000, GI), ComingPods("shop/b", 1, 1000, GI, "{}")], LIMIT
    )
    assert sorted(got.values()) == [1, 2]


def test_a_limit_that_is_too_small_is_shared_in_turns() -> None:
    many, few = ComingPods("shop/a", 50, 1000, GI), ComingPods("shop/b", 4, 2000, GI)
    got = headroom([many, few], LIMIT)
    assert got[size_class(few)] == 3
    assert got[size_class(many)] == 4


def test_a_pod_larger_than_the_limit_leaves_it_to_the_others() -> None:
    large, small = ComingPods("shop/a", 1, 11_000, GI), ComingPods("shop/b", 2, 1000, GI)
    assert headroom([large, small], LIMIT) == {size_class(small): 2}


def test_never_more_than_the_limit_and_never_smaller_than_the_pods() -> None:
    rng = np.random.default_rng(27)
    most = 0.0
    for _ in range(500):
        coming = [
            ComingPods(f"shop/{number}", int(rng.integers(0, 9)), int(rng.integers(1, 4000)),
                       int(rng.integers(1, 8 * GI)), str(rng.integers(2)))
            for number in range(int(rng.integers(1, 8)))
        ]  # fmt: skip
        limit = HeadroomLimit(int(rng.integers(0, 40_000)), int(rng.integers(0, 64 * GI)))
        cpu, memory = totals(headroom(coming, limit))
        assert cpu <= limit.cpu_milli
        assert memory <= limit.memory_bytes
        for each in coming:
            size = size_class(each)
            assert each.cpu_milli <= size.cpu_milli
            assert each.memory_bytes <= size.memory_bytes
            most = max(most, size.cpu_milli / each.cpu_milli, size.memory_bytes / each.memory_bytes)
    print(f"a class is at most {most:.3f} times its pods")
    assert most <= 1.25
