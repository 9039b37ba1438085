"""Samples in columns are the mapping they stand for."""

import gc
import math
import operator
from array import array
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from podscale.core.metrics import PodSamples, Sample
from podscale.core.samplecolumns import SampleColumns

ROWS = st.dictionaries(
    st.text(max_size=5),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.floats(0, 2e9)),
    max_size=6,
)
Rows = Mapping[str, tuple[int, float | None]]


def columns(rows: Rows, window_s: float | None = 30.0) -> SampleColumns:
    values = array("q", [value for value, _ in rows.values()])
    times = array("d", [math.nan if at is None else at for _, at in rows.values()])
    return SampleColumns(tuple(rows), values.tobytes(), times.tobytes(), window_s)


@given(ROWS)
def test_they_are_equal_to_the_dict_of_samples(rows: Rows) -> None:
    found = columns(rows)
    plain = {name: Sample(value, at, 30.0) for name, (value, at) in rows.items()}
    assert found == plain
    assert plain == found
    assert PodSamples(found, 1.0) == PodSamples(plain, 1.0)
    assert (list(found), list(found.items()), list(found.values())) == (
        list(plain), list(plain.items()), list(plain.values()),
    )  # fmt: skip
    assert {name: found[name] for name in found} == plain
    assert found.get("not there at all") is None
    assert "not there at all" not in found
    assert found.values_milli == [value for value, _ in rows.values()]


def test_other_values_times_or_windows_are_not_equal() -> None:
    rows: Rows = {"web-0": (1, 5.0)}
    assert not operator.ne(columns(rows), columns(rows))
    assert columns(rows) != columns({"web-0": (2, 5.0)})
    assert columns(rows) != columns({"web-0": (1, None)})
    assert columns(rows) != columns({"web-1": (1, 5.0)})
    assert columns(rows) != columns(rows, None)


def test_the_collector_does_not_look_at_them() -> None:
    assert not gc.is_tracked(columns({"web-0": (1, 5.0)}))


@given(ROWS, ROWS)
def test_they_may_be_a_part_of_longer_columns(before: Rows, rows: Rows) -> None:
    longer = [*before.values(), *rows.values(), (0, 1.0), (0, 2.0)]
    values = array("q", [value for value, _ in longer])
    times = array("d", [math.nan if at is None else at for _, at in longer])
    found = SampleColumns(
        tuple(rows), values.tobytes(), times.tobytes(), 30.0, start=8 * len(before)
    )
    alone = columns(rows)
    assert found == alone
    assert (found.values_raw, found.times_raw) == (alone.values_raw, alone.times_raw)
    assert found.total_milli == sum(value for value, _ in rows.values())


@given(ROWS, st.integers(0, 3), st.none() | st.floats(0, 2e9))
def test_one_time_may_be_that_of_all(rows: Rows, before: int, at: float | None) -> None:
    same = {name: (value, at) for name, (value, _) in rows.items()}
    values = array("q", [7] * before + [value for value, _ in rows.values()])
    time = array("d", [math.nan if at is None else at])
    found = SampleColumns(tuple(rows), values.tobytes(), time.tobytes(), 30.0, start=8 * before)
    assert found == columns(same)
    assert found.times_raw == columns(same).times_raw


@given(ROWS)
def test_the_oldest_is_that_of_the_known_times(rows: Rows) -> None:
    known = [at for _, at in rows.values() if at is not None]
    found = columns(rows).oldest_s
    assert math.isnan(found) if not known else found == min(known)
