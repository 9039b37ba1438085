"""The matrix against one plain histogram at a time, written down as upstream describes it."""

import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vpa.model.histograms import buckets
from vpa.model.histograms.matrix import ZERO_TIME, HistogramMatrix
from vpa.model.samples.checkpoints import load_histogram, save_histograms

FRACTIONS = (0.5, 0.9, 0.95)
HALF_LIFE = 3600.0
START = 1_772_409_600.0
LAYOUT = buckets.CPU
COLUMNS = 4


class Plain:
    """One decaying histogram, bucket by bucket."""

    def __init__(self) -> None:
        self.weights = [0.0] * LAYOUT.count
        self.total = 0.0
        self.reference = ZERO_TIME
        self.low, self.high = LAYOUT.count - 1, 0

    def factor(self, at: float) -> float:
        if at - self.reference > 100 * HALF_LIFE:
            rounded = math.floor((at - ZERO_TIME) / HALF_LIFE + 0.5) * HALF_LIFE + ZERO_TIME
            steps = math.floor((self.reference - rounded) / HALF_LIFE + 0.5)
            scale = math.ldexp(1.0, max(steps, -5000))
            for bucket in range(self.low, self.high + 1):
                self.weights[bucket] *= scale
            self.total *= scale
            self.reference = rounded
            self.tighten()
        return 2.0 ** ((at - self.reference) / HALF_LIFE)

    def tighten(self) -> None:
        while self.weights[self.low] < LAYOUT.epsilon and self.low < LAYOUT.count - 1:
            self.low += 1
        while self.weights[self.high] < LAYOUT.epsilon and self.high > 0:
            self.high -= 1

    def add(self, value: float, at: float) -> None:
        weight = self.factor(at)
        bucket = find(value)
        self.weights[bucket] += weight
        self.total += weight
        if self.weights[bucket] >= LAYOUT.epsilon:
            self.low, self.high = min(self.low, bucket), max(self.high, bucket)

    def percentile(self, fraction: float) -> float:
        if self.weights[self.low] < LAYOUT.epsilon:
            return 0.0
        partial, threshold, bucket = 0.0, fraction * self.total, self.low
        while bucket < self.high:
            partial += self.weights[bucket]
            if partial >= threshold:
                break
            bucket += 1
        return float(LAYOUT.ends[bucket])


def find(value: float) -> int:
    if value < LAYOUT.first:
        return 0
    grown = value * (LAYOUT.ratio - 1.0) / LAYOUT.first + 1.0
    return min(math.floor(math.log(grown) / math.log(LAYOUT.ratio)), LAYOUT.count - 1)


def near_tie(plain: Plain, fraction: float) -> bool:
    """Return whether rounding decides: the order of additions differs, and both are right."""
    partial, threshold = 0.0, fraction * plain.total
    for weight in plain.weights[plain.low : plain.high]:
        partial += weight
        if abs(partial - threshold) <= 1e-12 * plain.total:
            return True
    return False


samples = st.tuples(
    st.integers(0, COLUMNS - 1),
    st.floats(0.0, 2000.0, allow_nan=False),
    st.floats(0.0, 400 * HALF_LIFE),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(samples, min_size=1, max_size=60), st.integers(1, 7))
def test_percentiles_are_those_of_plain_histograms(
    fed: list[tuple[int, float, float]], batch: int
) -> None:
    matrix = HistogramMatrix(LAYOUT, HALF_LIFE, COLUMNS)
    columns = matrix.allocate(COLUMNS)
    plain = [Plain() for _ in range(COLUMNS)]
    fed.sort(key=lambda sample: sample[2])
    for start in range(0, len(fed), batch):
        part = fed[start : start + batch]
        matrix.add(
            np.array([column for column, _, _ in part], dtype=np.intp),
            np.array([value for _, value, _ in part]),
            1.0,
            np.array([START + at for _, _, at in part]),
        )
        for column, value, at in part:
            plain[column].add(value, START + at)
        walked = matrix.percentiles(FRACTIONS, columns)
        for column, one in enumerate(plain):
            for place, fraction in enumerate(FRACTIONS):
                if not near_tie(one, fraction):
                    assert walked[place, column] == one.percentile(fraction)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.0, 1500.0), min_size=1, max_size=40))
def test_find_is_the_scalar_formula(values: list[float]) -> None:
    boundaries = [float(start) for start in LAYOUT.starts[:: max(1, len(values))]]
    asked = np.array(values + boundaries)
    assert LAYOUT.find(asked).tolist() == [find(value) for value in asked.tolist()]


@settings(max_examples=100, deadline=None)
@given(st.lists(samples, min_size=1, max_size=40))
def test_a_checkpoint_brings_back_percentiles_within_its_quantisation(
    fed: list[tuple[int, float, float]],
) -> None:
    matrix = HistogramMatrix(LAYOUT, HALF_LIFE, 2)
    (column, copy) = matrix.allocate(2)
    one = np.array([column])
    for _, value, at in sorted(fed, key=lambda sample: sample[2]):
        matrix.add(one, np.array([value]), 1.0, np.array([START + at]))
    saved = save_histograms(matrix, one)[0]
    load_histogram(matrix, int(copy), saved)
    again = save_histograms(matrix, np.array([copy]))[0]
    assert set(again.bucket_weights) <= set(saved.bucket_weights)
    for bucket, weight in again.bucket_weights.items():
        assert abs(weight - saved.bucket_weights[bucket]) <= 1
    assert math.isclose(again.total_weight, saved.total_weight, rel_tol=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(samples, max_size=30), st.lists(samples, max_size=30))
@example(  # what an old reference leaves outside the bounds is not scaled with the rest
    [(0, 0.0, 577800.0)],
    [(0, 0.0, 170980.0), (0, 0.0, 919800.0), (0, 0.0, 1279800.0), (0, 1.0, 470170.0)],
)
def test_merging_is_adding_everything_to_one(
    first: list[tuple[int, float, float]], second: list[tuple[int, float, float]]
) -> None:
    matrix = HistogramMatrix(LAYOUT, HALF_LIFE, 3)
    a, b, both = (np.array([column]) for column in matrix.allocate(3))
    for target, fed in ((a, first), (b, second)):
        for _, value, at in sorted(fed, key=lambda sample: sample[2]):
            matrix.add(target, np.array([value]), 1.0, np.array([START + at]))
    for _, value, at in sorted([*first, *second], key=lambda sample: sample[2]):
        matrix.add(both, np.array([value]), 1.0, np.array([START + at]))
    before = matrix.weights[:, b].copy(), float(matrix.reference[b][0])
    matrix.merge(a, matrix, b)
    assert np.array_equal(matrix.weights[:, b], before[0])
    assert matrix.reference[b][0] == before[1]
    factor = 2.0 ** ((matrix.reference[both] - matrix.reference[a]) / HALF_LIFE)
    if first or second:
        merged = matrix.weights[:, a[0]] / factor
        heaviest = matrix.weights[:, both[0]].max(initial=1e-300)
        # What has become lighter than an empty bucket is left behind, or stays as light.
        least = float(1e-9 * heaviest + 4 * LAYOUT.epsilon * max(1.0, 1.0 / factor[0]))
        assert np.allclose(merged, matrix.weights[:, both[0]], rtol=1e-9, atol=least)
