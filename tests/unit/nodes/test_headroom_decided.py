"""How much room is kept, for whom, and for how long."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from msgspec import structs

from podscale.nodes.headroom.shapes import (
    HOLD_S,
    ComingPods,
    ExpectedSize,
    HeadroomLimit,
    SizeClass,
    expected,
    headroom,
    size_class,
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
    got = headroom(
        [ComingPods("shop/a", 2, 1000, GI), ComingPods("shop/b", 1, 990, GI - 5)], LIMIT, {}
    )
    assert list(got.values()) == [3]


def test_what_places_pods_differently_is_another_class() -> None:
    got = headroom(
        [ComingPods("shop/a", 2, 1000, GI), ComingPods("shop/b", 1, 1000, GI, "{}")], LIMIT, {}
    )
    assert sorted(got.values()) == [1, 2]


def test_a_limit_that_is_too_small_is_shared_in_turns() -> None:
    many, few = ComingPods("shop/a", 50, 1000, GI), ComingPods("shop/b", 4, 2000, GI)
    got = headroom([many, few], LIMIT, {})
    assert got[size_class(few)] == 3
    assert got[size_class(many)] == 4


def test_a_pod_larger_than_the_limit_leaves_it_to_the_others() -> None:
    large, small = ComingPods("shop/a", 1, 11_000, GI), ComingPods("shop/b", 2, 1000, GI)
    assert headroom([large, small], LIMIT, {}) == {size_class(small): 2}


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
        counts = headroom(coming, limit, {})
        cpu = sum(size.cpu_milli * count for size, count in counts.items())
        memory = sum(size.memory_bytes * count for size, count in counts.items())
        assert cpu <= limit.cpu_milli
        assert memory <= limit.memory_bytes
        for each in coming:
            size = size_class(each)
            assert each.cpu_milli <= size.cpu_milli
            assert each.memory_bytes <= size.memory_bytes
            most = max(most, size.cpu_milli / each.cpu_milli, size.memory_bytes / each.memory_bytes)
    print(f"a class is at most {most:.3f} times its pods")
    assert most <= 1.25


def quota_of(cpu_milli: int, memory_bytes: int) -> dict[str, int]:
    return {"pods": 1000, "requests.cpu": cpu_milli, "requests.memory": 1000 * memory_bytes}


def in_turns(
    coming: Sequence[ComingPods], limit: HeadroomLimit, quotas: Mapping[str, Mapping[str, int]]
) -> dict[SizeClass, int]:
    """Return the same, one pod after the other."""
    found: dict[SizeClass, int] = {}
    left = {each.workload: each.count for each in coming}
    third = 1000 * max(limit.pods // 3, 1)
    rooms = {each.namespace: dict(quotas.get(each.namespace, {})) for each in coming}
    for room in rooms.values():
        room["pods"] = min(room.get("pods", third), third)
    cpu, memory, pods = limit.cpu_milli, limit.memory_bytes, limit.pods
    while any(left.values()):
        for each in sorted(coming, key=lambda each: each.workload):
            size, room = size_class(each), rooms[each.namespace]
            fits = size.cpu_milli <= cpu and size.memory_bytes <= memory and pods > 0
            if not left[each.workload]:
                continue
            if not fits or any(room[name] < each.quota[name] for name in room):
                left[each.workload] = 0
                continue
            cpu, memory, pods = cpu - size.cpu_milli, memory - size.memory_bytes, pods - 1
            for name in room:
                room[name] -= each.quota[name]
            found[size] = found.get(size, 0) + 1
            left[each.workload] -= 1
    return found


def test_many_turns_at_once_are_as_many_as_one_after_the_other() -> None:
    rng = np.random.default_rng(40)
    for _ in range(500):
        coming = [
            ComingPods(f"{rng.choice(['shop', 'data', 'web'])}/{number}", int(rng.integers(1, 40)),
                       cpu := int(rng.integers(1, 4000)), memory := int(rng.integers(1, 8 * GI)),
                       str(rng.integers(2)), quota_of(cpu, memory))
            for number in range(int(rng.integers(1, 8)))
        ]  # fmt: skip
        limit = HeadroomLimit(int(rng.integers(0, 80_000)), int(rng.integers(0, 128 * GI)),
                              int(rng.integers(0, 90)))  # fmt: skip
        quotas = {"shop": {"requests.cpu": int(rng.integers(-1000, 40_000))},
                  "data": {"pods": 1000 * int(rng.integers(0, 30)),
                           "requests.memory": 1000 * int(rng.integers(0, 64 * GI))}}  # fmt: skip
        assert headroom(coming, limit, quotas) == in_turns(coming, limit, quotas)


def test_a_number_in_an_object_is_no_number_of_steps() -> None:
    limit = HeadroomLimit(10**12, 10**18, 2**31)
    coming = [ComingPods(f"shop/{number}", 2**31 - 1 - number, 100, GI) for number in range(20)]
    assert sum(headroom(coming, limit, {}).values()) == 2**31 // 3


def test_one_namespace_has_a_third_of_the_pods_and_those_without_requests_none() -> None:
    wide = HeadroomLimit(10**9, 10**15)
    coming = [ComingPods("shop/a", 400, 10, 0), ComingPods("shop/b", 400, 20, 0),
              ComingPods("data/c", 9, 30, 0), ComingPods("shop/none", 400, 0, 0)]  # fmt: skip
    got = headroom(coming, wide, {})
    assert {size.cpu_milli: count for size, count in got.items()} == {10: 8, 20: 8, 30: 9}
    got = headroom(coming, structs.replace(wide, pods=9), {"shop": {"pods": 2000}})
    assert {size.cpu_milli: count for size, count in got.items()} == {10: 1, 20: 1, 30: 3}
