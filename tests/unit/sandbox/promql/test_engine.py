"""What random comparison with a real Prometheus cannot reach: staleness, refusals, bounds."""

import math
import struct

import pytest

from podscale.sandbox.promql import server
from podscale.sandbox.promql.evaluation import Evaluation
from podscale.sandbox.promql.series import (
    NAME,
    STALE,
    BadData,
    PromqlError,
    SeriesColumns,
    SeriesHead,
    Unanswerable,
    label_set,
)

MINUTE = 60_000


def head(*values, name="m", every_ms=MINUTE, **labels):
    found = SeriesHead()
    for place, value in enumerate(values):
        found.append(label_set({NAME: name, **labels}), place * every_ms, value)
    return found


def ask(found, query, at_ms):
    value = Evaluation(found).at(server.query(query), at_ms)
    return [sample.value for sample in value] if isinstance(value, list) else value


def test_a_series_is_gone_at_its_marker_and_not_five_minutes_later():
    found = head(1.0, 2.0, STALE)
    assert ask(found, "m", 2 * MINUTE - 1) == [2.0]
    assert ask(found, "m", 2 * MINUTE) == []


def test_a_series_without_marker_lives_for_less_than_five_minutes():
    found = head(1.0)
    assert ask(found, "m", 5 * MINUTE - 1) == [1.0]
    assert ask(found, "m", 5 * MINUTE) == []


def test_the_timestamp_of_a_selector_is_when_its_newest_sample_was_scraped():
    found = head(5.0, 6.0, pod="a")
    assert ask(found, "timestamp(m)", 3 * MINUTE) == [60.0]
    assert ask(found, "max by (pod) (timestamp(m offset 1m))", MINUTE + 1) == [0.0]


def test_a_window_holds_no_marker():
    found = head(1.0, STALE, 5.0)
    assert ask(found, "count_over_time(m[5m])", 2 * MINUTE) == [2.0]
    assert ask(found, "delta(m[1m])", 2 * MINUTE) == []


def test_a_window_is_open_on_the_left():
    found = head(1.0, 2.0, 3.0)
    assert ask(found, "count_over_time(m[2m])", 2 * MINUTE) == [2.0]


def test_only_the_marker_is_the_marker():
    columns = SeriesColumns()
    columns.append(0, math.nan)
    columns.append(1, STALE)
    marker = struct.pack("<d", STALE)
    assert [struct.pack("<d", value) == marker for value in columns.values] == [False, True]


def test_samples_that_are_not_newer_are_dropped():
    found = head(1.0)
    found.append(label_set({NAME: "m"}), 0, 7.0)
    assert ask(found, "m", 0) == [1.0]


def test_columns_grow_and_forget():
    columns = SeriesColumns()
    for time in range(1000):
        columns.append(time, float(time))
    columns.forget(900)
    for time in range(1000, 1100):
        columns.append(time, float(time))
    assert columns.times.tolist() == list(range(900, 1100))
    assert columns.values.tolist() == [float(time) for time in range(900, 1100)]


def test_series_whose_samples_retention_has_passed_are_gone():
    found = SeriesHead(retention_ms=MINUTE)
    found.append(label_set({NAME: "old"}), 0, 1.0)
    found.append(label_set({NAME: "new"}), 10 * MINUTE, 1.0)
    found.forget(10 * MINUTE)
    assert found.series([(None, ())], -1, 10**12) == [label_set({NAME: "new"})]


@pytest.mark.parametrize(
    ("query", "error", "named"),
    [
        ("sort_by_label(m, 'a')", Unanswerable, "sort_by_label"),
        ("limitk(1, m)", Unanswerable, "limitk"),
        ("histogram_count(m)", Unanswerable, "histogram_count"),
        ("histogram_quantile(0.9, m)", Unanswerable, "histogram_quantile"),
        ("predict_linear(m[5m], 60)", Unanswerable, "predict_linear"),
        ("quantile(0.9, m)", Unanswerable, "quantile"),
        ("timestamp(m + 1)", Unanswerable, "timestamp of anything but a selector"),
        ("max_over_time((m + 1)[5m:1m])", Unanswerable, "subquery"),
        ("m @ 60", Unanswerable, "@"),
        ('{a="b" or c="d"}', Unanswerable, "or"),
        ("+".join(["a"] * 600), Unanswerable, "more than 500 operators"),
        ("rate(m)", BadData, "rate"),
        ("sum(", BadData, "query"),
        ("m{a=~'('}", PromqlError, "regex|regexp|query"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused_by_name(query, error, named):
    with pytest.raises(error, match=named):
        ask(head(1.0), query, 0)


def test_two_elements_of_the_same_labels_are_refused():
    found = head(1.0, name="a", pod="x")
    found.append(label_set({NAME: "b", "pod": "x"}), 0, 2.0)
    with pytest.raises(Unanswerable, match="same labelset"):
        ask(found, "abs({pod='x'})", 0)


def test_many_to_many_is_refused():
    found = head(1.0, name="a", pod="x")
    found.append(label_set({NAME: "a", "pod": "y"}), 0, 2.0)
    with pytest.raises(Unanswerable, match="many-to-many"):
        ask(found, "a * on() a", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("15", 15_000), ("0.5", 500), ("1h30m", 5_400_000), ("250ms", 250)],
)
def test_durations(text, expected):
    assert server.duration_ms(text, "step") == expected


@pytest.mark.parametrize("text", ["", "x", "5 m", "inf"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(BadData, match="step"):
        server.duration_ms(text, "step")


def test_times_are_seconds_or_rfc3339():
    assert server.time_ms("1700000000.5", "time") == 1_700_000_000_500
    assert server.time_ms("2023-11-14T22:13:20Z", "time") == 1_700_000_000_000


def test_a_range_of_too_many_steps_is_refused():
    assert len(server.steps(0, 11_000, 1)) == 11_001
    with pytest.raises(BadData, match="11,000"):
        server.steps(0, 11_001, 1)
