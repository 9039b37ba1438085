"""First, last and number of samples do not depend on how their columns come."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vpa.model.samples.aggregates import SampleSpan

SAMPLES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 10**9), st.integers(1, 9)), max_size=30
)


@given(SAMPLES, st.booleans())
def test_ascending_columns_are_taken_in_as_any_others(samples, is_once):
    if is_once:
        samples = sorted({column: (column, at, n) for column, at, n in samples}.values())
    together, apart = SampleSpan(6), SampleSpan(6)
    columns, times, counts = (np.array([each[i] for each in samples]) for i in range(3))
    together.add(columns.astype(np.intp), times.astype(float), counts.astype(float))
    for column, at, n in samples:
        apart.first[column] = min(apart.first[column], at)
        apart.last[column] = max(apart.last[column], at)
        apart.samples[column] += n
    for name in ("first", "last", "samples"):
        np.testing.assert_array_equal(getattr(together, name), getattr(apart, name))
