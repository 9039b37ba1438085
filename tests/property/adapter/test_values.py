"""Any float is a number of thousandths that an int64 holds, or none."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from adapter.queries import readings

FLOATS = st.floats(width=64, allow_nan=True, allow_infinity=True)


@given(FLOATS)
def test_a_float_becomes_an_int64_or_nothing(value):
    got = readings.milli(value)
    assert got is None or -(2**63) <= got < 2**63
    assert got is not None or not math.isfinite(value) or abs(value) >= 2**63 / 1000


@given(st.lists(FLOATS, max_size=5))
def test_many_are_read_as_one_by_one(found):
    together, alone = (
        readings.all_milli(np.array(found)),
        [readings.milli(value) for value in found],
    )
    assert (together is None) == (None in alone)
    assert together is None or together.tolist() == alone
