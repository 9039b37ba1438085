"""Merges as upstream's; the expected weights are what its 1.8.1 made of the same samples."""

from datetime import datetime

import numpy as np

from tests.kit.histogram import Histogram
from vpa.model.histograms import buckets
from vpa.model.samples.checkpoints import HistogramCheckpoint

DAY = 86_400.0
EMPTY_BELOW = buckets.CPU.epsilon


def at(day: int) -> float:
    return datetime.fromisoformat(f"2026-03-{day:02}T00:00:00Z").timestamp()


def holding(cores: float, day: int, half_life_s: float = DAY) -> Histogram:
    made = Histogram.alone(buckets.CPU, half_life_s)
    made.add(cores, 0.1, at(day))
    return made


def loaded(bucket: int, day: int, half_life_s: float) -> Histogram:
    made = Histogram.alone(buckets.CPU, half_life_s)
    made.load(HistogramCheckpoint({bucket: 10_000}, 0.1, at(day)))
    return made


def test_a_checkpoint_of_another_half_life_is_merged_at_a_multiple_of_this_one():
    # Counted from year 1 the 5th is no multiple of two days; the 2nd and the 6th are.
    made = holding(0.1, 2, 2 * DAY)
    made.merge(loaded(25, 5, 2 * DAY))
    assert made.save() == HistogramCheckpoint({8: 2500, 25: 10_000}, 0.125, at(6))
    made = loaded(25, 5, 2 * DAY)
    made.merge(holding(0.1, 2, 2 * DAY))
    assert made.save() == HistogramCheckpoint({8: 2500, 25: 10_000}, 0.125, at(5))


def test_merging_leaves_behind_what_weighs_less_than_an_empty_bucket():
    made, other = holding(0.1, 20), holding(0.5, 20)
    other.add(3.0, EMPTY_BELOW / 2, at(20))
    made.merge(other)
    made.add(3.0, 0.1, at(20))
    assert made.save().bucket_weights == {8: 10_000, 25: 10_000, 56: 10_000}
    assert made.matrix.weights[56, 0] == 0.1


def test_a_new_reference_leaves_alone_what_weighs_less_than_an_empty_bucket():
    made = holding(0.5, 1)
    made.add(3.0, EMPTY_BELOW / 2, at(1))
    made.add(0.5, 0.1, at(1) + 101 * DAY)
    assert np.flatnonzero(made.matrix.weights[:, 0]).tolist() == [25, 56]
    assert made.matrix.weights[56, 0] == EMPTY_BELOW / 2
