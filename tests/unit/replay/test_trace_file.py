"""A file of samples is read whole or refused with its line."""

import math

import pytest

from podscale.replay.inputs import ReplayError, TraceInvalid, read_trace, with_columns_of
from tests.unit.hpa.simulate.loads import web


@pytest.mark.parametrize(
    "first",
    ["1700000000", "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14T23:13:20+01:00"],
)
def test_times_are_read_in_every_form(first):
    load, notes = read_trace(f"ts,value\n{first},1\n1700000060,2\n")
    assert load.time_s.tolist() == [1_700_000_000.0, 1_700_000_060.0]
    assert notes == []


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        pytest.param("", 1, "header", id="empty"),
        pytest.param("ts\n1\n2\n", 1, "header", id="no-value"),
        pytest.param("1700000000,3\n1700000060,4\n", 1, "name the columns", id="no-header"),
        pytest.param("ts,a,a\n1,2,3\n", 1, "twice", id="column-twice"),
        pytest.param("ts,a\n1,2\n2\n", 3, "1 columns", id="too-few-cells"),
        pytest.param("ts,a\n1,2\n2,3,4\n", 3, "3 columns", id="too-many-cells"),
        pytest.param("ts,a\n1,2\nnoon,3\n", 3, "'noon' is no time", id="no-time"),
        pytest.param("ts,a\n1,2\nnan,3\n", 3, "no time", id="time-nan"),
        pytest.param("ts,a\n1,2\n2,many\n", 3, "a: 'many' is no number", id="no-number"),
        pytest.param("ts,a\n1,2\n2,-1\n", 3, "below zero", id="negative"),
        pytest.param("ts,a\n2,2\n1,3\n", 3, "sort by time", id="backwards"),
        pytest.param("ts,a\n1,2\n", 2, "two lines", id="one-sample"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named(text, line, words):
    with pytest.raises(TraceInvalid, match=words) as refused:
        read_trace(text)
    assert refused.value.line == line


NOON = 1_793_491_200


@pytest.mark.parametrize(("parts", "words"), [
    (10**3, "is a time in the year 58803: milliseconds\\? divide by 1000$"),
    (10**6, "year 56835443: microseconds\\? divide by 1000000$"),
    (10**9, "nanoseconds\\? divide by 1000000000$"),
])  # fmt: skip
def test_times_finer_than_seconds_are_refused_with_their_unit(parts, words):
    with pytest.raises(TraceInvalid, match=words) as refused:
        read_trace(f"time,rps\n{NOON * parts},1\n{(NOON + 60) * parts},2\n")
    assert refused.value.line == 2


@pytest.mark.parametrize(("stray", "line"), [
    ("1970-01-01T00:00:00Z", 2), ("0", 2), ("0001-01-01T00:00:00Z", 2),
    ("9999-12-31T23:59:59Z", 13),
])  # fmt: skip
def test_a_time_years_from_the_others_is_refused_with_its_line(stray, line):
    rows = [f"{NOON + 60 * minute},1" for minute in range(11)]
    rows.insert(0 if line == 2 else 11, f"{stray},0")
    with pytest.raises(TraceInvalid, match=r"span .* years .* before line (3|13)") as refused:
        read_trace("\n".join(["time,rps", *rows]))
    assert refused.value.line == line


def test_a_year_without_samples_is_a_gap_and_no_mistake():
    load, _ = read_trace(f"time,rps\n{NOON - 31_556_952},1\n{NOON},1\n{NOON + 60},1\n")
    assert len(load.time_s) == 3


def test_values_that_are_none_are_unknown_and_said():
    load, notes = read_trace("ts,a\n1,2\n2,\n3,NaN\n4,inf\n5,1\n")
    assert [math.isnan(each) for each in load.columns["a"]] == [False, True, True, True, False]
    assert "3 lines" in notes[0]


def test_of_a_time_that_is_there_twice_the_last_line_counts():
    load, notes = read_trace("ts,a\n1,2\n1,3\n2,4\n")
    assert load.columns["a"].tolist() == [3.0, 4.0]
    assert "more than once" in notes[0]


def test_one_column_is_that_of_the_only_metric_and_more_go_by_name():
    one, _ = read_trace("ts,value\n1,2\n2,3\n")
    assert list(with_columns_of(one, [web()]).columns) == ["http_requests"]
    two, _ = read_trace("ts,value,other\n1,2,3\n2,3,4\n")
    with pytest.raises(ReplayError, match=r"http_requests.*there are: value, other"):
        with_columns_of(two, [web()])
