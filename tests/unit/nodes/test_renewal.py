"""Whose ballast is made anew."""

import math

import numpy as np
import pytest

from podscale.nodes.decide.ballast import BallastPlan, Floats, NodeColumns, Reason, renewals
from tests.unit.nodes import columns

GI = 2.0**30
NEWEST = 1000.0


def rooms(*room: tuple[float, float]) -> NodeColumns:
    """Return nodes with so many cores and GiB of allocatable beyond what is requested."""
    made = columns.nodes([0.0] * len(room))
    free = np.array(room, np.float64).T * [[1000.0], [GI]]
    return NodeColumns(made.capacity, made.requested + free, made.usage, made.young, made.requested)


def held(*cpu: float, reason: Reason = Reason.WITHIN_STEP) -> BallastPlan:
    requests = np.array([cpu, [2.0**20] * len(cpu)])
    return BallastPlan(requests, np.zeros(len(cpu), np.bool_), np.full(len(cpu), reason, np.uint8))


def started(*seconds: float) -> Floats:
    return np.array(seconds)


def test_the_roomiest_of_those_that_hold_something_and_the_one_that_is_late_longest() -> None:
    nodes = rooms((4, 4), (9, 9), (6, 6), (5, 5))
    # The roomiest holds nothing: what fits is bound there, and takes nobody's place.
    plan = held(500, 1, 500, 500)
    assert renewals(nodes, plan, started(10, 10, 20, 30), NEWEST).tolist() == [0, 2]


def test_of_two_resources_each_node_that_none_has_more_of_both_than() -> None:
    nodes = rooms((4, 1), (3, 3), (2, 2), (1, 4), (4, 0.5))
    assert renewals(nodes, held(*[500] * 5), started(10, 10, 20, 10, 10), NEWEST).tolist() == [
        0,
        1,
        3,
    ]


@pytest.mark.parametrize(
    ("second", "wanted"), [(NEWEST - 1, [0]), (NEWEST, [0]), (NEWEST + 1, []), (math.nan, [])]
)
def test_ballast_is_late_until_it_started_after_every_rival(
    second: float, wanted: list[int]
) -> None:
    # Start times are whole seconds: of the same one it is not known who was first.
    assert renewals(rooms((4, 4)), held(500), started(second), NEWEST).tolist() == wanted


@pytest.mark.parametrize("reason", [Reason.TOO_SOON, Reason.CORDONED, Reason.NO_BALLAST])
def test_what_was_just_written_or_is_let_go_stays_as_it_is(reason: Reason) -> None:
    assert renewals(rooms((4, 4)), held(500, reason=reason), started(10), NEWEST).tolist() == []


def test_a_roomiest_node_that_is_young_is_no_reason_to_renew_the_next() -> None:
    nodes = rooms((9, 9), (6, 6), (5, 5))
    assert renewals(nodes, held(*[500] * 3), started(1001, 20, 10), NEWEST).tolist() == [2]


def test_one_that_was_written_a_moment_ago_keeps_nobody_waiting() -> None:
    nodes, plan = rooms((9, 9), (6, 6), (5, 5)), held(*[500] * 3)
    is_recent = np.array([False, False, True])
    got = renewals(nodes, plan, started(1001, 20, 10), NEWEST, is_recent=is_recent)
    assert got.tolist() == [1]


def test_a_node_without_room_for_two_ballast_pods_is_left_as_it_is() -> None:
    nodes = rooms((0.001, 9), (9, 1 / 1024), (0.002, 2 / 1024))
    assert renewals(nodes, held(*[500] * 3), started(1, 2, 3), NEWEST).tolist() == [2]


def test_what_fits_anywhere_but_for_ballast_fits_on_one_of_the_roomiest() -> None:
    draw = np.random.default_rng(27)
    for _ in range(300):
        room = draw.integers(1, 9, (draw.integers(1, 8), 2))
        nodes = rooms(*(tuple(row) for row in room.tolist()))
        late = renewals(nodes, held(*[500] * len(room)), np.full(len(room), 10.0), NEWEST)
        for pod in draw.integers(0, 9, (10, 2)):
            assert (room >= pod).all(axis=1).any() == (room[late] >= pod).all(axis=1).any()
