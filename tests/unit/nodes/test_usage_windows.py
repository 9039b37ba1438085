"""Usage of nodes over time."""

import math
import tracemalloc

import numpy as np

from podscale.nodes.decide.usage_windows import UsageWindows


def taken(*cpu: float) -> np.ndarray:
    return np.array([cpu, cpu], np.float64)


def test_the_mean_is_over_the_window_before_each_nodes_newest_sample() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a", "b"])
    for second, a, b in ((0, 100, 8), (100, 1, 8), (200, 2, 8), (300, 3, math.nan)):
        windows.add(taken(a, b), np.full(2, float(second)))
    mean, deviation, latest = windows.within(300.0)
    assert mean[0].tolist() == [2.0, 8.0]
    assert latest[0].tolist() == [3.0, 8.0]
    assert deviation[0].tolist() == [math.sqrt(2 / 3), 0.0]
    assert windows.measured_s().tolist() == [300.0, 200.0]


def test_a_sample_that_is_served_twice_counts_once() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a"])
    for value, second in ((1.0, 10.0), (1.0, 10.0), (4.0, 20.0)):
        windows.add(taken(value), np.array([second]))
    assert windows.within(300.0)[0][0].tolist() == [2.5]


def test_what_is_no_amount_is_no_sample() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a"])
    windows.add(np.full((2, 1), np.nan), np.array([10.0]))
    assert windows.measured_s().tolist() == [-math.inf]
    for bad in (-1.0, math.inf, math.nan):
        windows.add(np.array([[bad], [7.0]]), np.array([20.0]))
    assert np.isnan(windows.within(300.0)[0][0]).all()
    assert windows.within(300.0)[0][1].tolist() == [7.0]
    assert windows.measured_s().tolist() == [-math.inf]  # half of it is not it


def test_nodes_come_and_go_and_keep_their_own_samples() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a", "b"])
    windows.add(taken(1.0, 2.0), np.array([10.0, 10.0]))
    windows.keep(["c", "b"])
    assert windows.within(300.0)[0][0][1] == 2.0
    assert np.isnan(windows.within(300.0)[0][0][0])
    windows.keep([])
    assert windows.measured_s().tolist() == []


def test_no_more_is_kept_than_the_longest_window_needs() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a"])
    for second in range(0, 15_000, 15):
        windows.add(taken(1.0), np.array([float(second)]))
    assert len(windows._times) == 62


def test_a_time_that_lies_ahead_keeps_samples_out_for_no_longer_than_any_is_kept() -> None:
    windows = UsageWindows(15.0)
    windows.keep(["a"])
    windows.add(taken(9.0), np.array([1e6]))  # by a clock that was then set right
    for second in range(0, 930, 15):
        windows.add(taken(1.0), np.array([float(second)]))
    assert windows.measured_s().tolist() == [-math.inf]
    windows.add(taken(1.0), np.array([930.0]))
    assert windows.measured_s().tolist() == [930.0]
    assert windows.mean(300.0)[0].tolist() == [1.0]


def test_one_node_is_read_without_a_copy_of_what_the_others_used() -> None:
    nodes = 10_000
    windows = UsageWindows(15.0)
    windows.keep([f"n{number}" for number in range(nodes)])
    for second in range(0, 900, 15):
        windows.add(np.full((2, nodes), float(second)), np.full(nodes, float(second)))
    tracemalloc.start()
    try:
        usage = windows.within(900.0, slice(7, 8))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert usage[:, 0, 0].tolist() == windows.within(900.0)[:, 0, 7].tolist()
    assert peak < windows._values.nbytes / 100
