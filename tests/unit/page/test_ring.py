"""Points in a bounded number of bytes: recent ones all, older ones thinned."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podscale.page.board import MOST_POINTS, PointRing

START = 1_795_000_000.0


def filled(count: int, step_s: float = 15.0) -> PointRing:
    ring = PointRing(2)
    for index in range(count):
        ring.add(START + index * step_s, float(index), None)
    return ring


def test_what_fits_comes_back_as_it_went_in() -> None:
    ring = filled(100)
    assert ring.times().tolist() == [START + 15.0 * index for index in range(100)]
    values, missing = ring.columns()
    assert values.tolist() == [float(index) for index in range(100)]
    assert np.isnan(missing).all()  # not known is never zero


@given(st.integers(1, 5000))
def test_bytes_are_bounded_and_both_ends_are_kept(count: int) -> None:
    ring = filled(count)
    assert len(ring) <= MOST_POINTS
    assert ring._table.nbytes <= MOST_POINTS * 3 * 4
    times = ring.times()
    assert times[0] == START
    assert times[-1] == START + 15.0 * (count - 1)
    assert (np.diff(times) > 0).all()


def test_the_recent_half_keeps_every_point_and_the_past_becomes_coarser() -> None:
    times = filled(4000).times()
    gaps = np.diff(times)
    assert (gaps[-MOST_POINTS // 2 :] == 15.0).all()
    assert gaps[0] >= gaps[-1] * 4


def test_a_time_that_runs_backwards_replaces_the_last_point() -> None:
    ring = filled(3)
    ring.add(START, 99.0, 1.0)
    assert len(ring) == 3
    assert ring.columns()[0].tolist() == [0.0, 1.0, 99.0]
    assert (np.diff(ring.times()) > 0).all()


def test_a_span_can_be_asked_for() -> None:
    ring = filled(40)
    assert ring.times(since=START + 15.0 * 30)[0] == START + 15.0 * 30
    assert len(ring.columns(since=START + 1e6)[0]) == 0


def test_a_day_of_offsets_keeps_its_seconds() -> None:
    ring = PointRing(1)
    ring.add(START, 0.0)
    ring.add(START + 86_399.25, 1.0)
    assert math.isclose(ring.times()[1], START + 86_399.25, abs_tol=0.01)
