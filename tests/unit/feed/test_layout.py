"""A remembered layout serves what sorting the rows out again would."""

import json
import math
from collections.abc import Generator, Mapping, Sequence

import pytest

from podscale.feed.decoding.wire import InstantAnswer, VectorReader
from podscale.feed.plan import KeyLabels, QueryPlan, Reading
from podscale.feed.queries.answer_rows import (
    AnswerRows,
    Collector,
    RowLayout,
    laying_out,
    reading,
    stamps_of,
)

T = 1_700_000_000.0
MAX_AGE_S = 300.0
NAMESPACES = ("ns-0", "ns-1", "empty")
LABELS = KeyLabels("namespace", "pod")
PLAN = QueryPlan("custom", "rules[0]", "load", LABELS, lambda _matchers, _values: "load")
Row = tuple[str, str, float]  # namespace, pod, value

STEADY: Sequence[Row] = (("ns-0", "a", 1.0), ("ns-1", "b", 2.0), ("ns-0", "c", 3.0))
TIMES: Sequence[Row] = (("ns-1", "b", T - 5), ("ns-0", "c", T - 6), ("ns-0", "a", T - 7))


def raw(rows: Sequence[Row], *, at: float = T) -> InstantAnswer:
    """Return the rows as they come over the wire, label sets undecoded."""
    reader = VectorReader(is_raw=True)
    entries = [
        {"metric": _metric(namespace, pod), "value": [at, repr(value)]}
        for namespace, pod, value in rows
    ]
    middle = len(entries) // 2
    reader.page(json.dumps(entries[:middle]).encode())
    data = {"resultType": "vector", "result": entries[middle:]}
    return reader.end(json.dumps({"status": "success", "data": data}).encode())


def _metric(namespace: str, pod: str) -> Mapping[str, str]:
    return {"namespace": namespace, **({"pod": pod} if pod else {})}


def sorted_out(
    answer: InstantAnswer, stamps: InstantAnswer | None
) -> tuple[dict[str, AnswerRows], RowLayout | None]:
    """Sort the rows out one by one, and remember how."""
    collector = Collector(PLAN, T, NAMESPACES, carries_namespace=True)
    decoded = answer.labelled()
    collector.add(decoded)
    known = [] if stamps is None else stamps.labelled().metrics
    if stamps is not None:
        collector.expect_stamps()
        collector.stamp(stamps_of(stamps.labelled(), LABELS))
    steps = laying_out(answer, stamps, PLAN, collector.rows, decoded.metrics, known)
    return collector.rows, ended(steps)


def ended(steps: Generator[None, None, RowLayout | None]) -> RowLayout | None:
    """Return what the steps end with."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            layout: RowLayout | None = end.value
            return layout


def told(found: Reading) -> object:
    return (
        found.asked_s,
        {
            name: (found.values[row], None if math.isnan(found.time_s[row]) else found.time_s[row])
            for name, row in found.objects.items()
        },
        found.stale,
    )


@pytest.mark.parametrize("stamps", [TIMES, None], ids=["with-times", "without-times"])
def test_the_same_labels_again_are_served_as_if_sorted_out_again(
    stamps: Sequence[Row] | None,
) -> None:
    _, layout = sorted_out(raw(STEADY), None if stamps is None else raw(stamps))
    assert layout is not None
    later = raw([(namespace, pod, value * 10) for namespace, pod, value in STEADY])
    times = None if stamps is None else raw([(ns, pod, at + 2) for ns, pod, at in stamps])
    rows, _ = sorted_out(later, times)
    placed = layout.readings(later, times, T, MAX_AGE_S)
    assert placed is not None
    assert {namespace: told(found) for namespace, found in placed} == {
        namespace: told(reading(each, PLAN, MAX_AGE_S)) for namespace, each in rows.items()
    }


@pytest.mark.parametrize(
    ("answer", "stamps"),
    [
        pytest.param(raw(STEADY[:2]), raw(TIMES), id="a-row-less"),
        pytest.param(raw(STEADY[::-1]), raw(TIMES), id="another-order"),
        pytest.param(raw(STEADY), raw(TIMES[:2]), id="a-time-less"),
        pytest.param(raw(STEADY), None, id="no-times"),
        pytest.param(raw(STEADY, at=T - 9), raw(TIMES), id="the-sources-own-time"),
        pytest.param(raw(STEADY), raw([*TIMES[:2], ("ns-0", "a", T - 301)]), id="a-stale-sample"),
        pytest.param(raw(STEADY), raw([*TIMES[:2], ("ns-0", "a", math.nan)]), id="a-time-of-nan"),
    ],
)
def test_whatever_is_out_of_the_ordinary_is_sorted_out_again(
    answer: InstantAnswer, stamps: InstantAnswer | None
) -> None:
    _, layout = sorted_out(raw(STEADY), raw(TIMES))
    assert layout is not None
    assert layout.readings(answer, stamps, T, MAX_AGE_S) is None


@pytest.mark.parametrize(
    ("rows", "times"),
    [
        pytest.param([*STEADY, ("ns-0", "a", 1.0)], TIMES, id="duplicate"),
        pytest.param([*STEADY, ("ns-0", "", 1.0)], TIMES, id="without-object"),
        pytest.param(STEADY, TIMES[:2], id="without-time"),
    ],
)
def test_rows_that_are_not_plain_leave_no_layout(rows: Sequence[Row], times: Sequence[Row]) -> None:
    assert sorted_out(raw(rows), raw(times))[1] is None


def test_labels_are_told_apart_by_content_not_by_paging() -> None:
    assert raw(STEADY).digest == raw(STEADY).digest != raw(TIMES).digest
    assert raw(STEADY).labelled().metrics == [dict(_metric(ns, pod)) for ns, pod, _ in STEADY]


def test_rows_that_another_batch_adds_to_a_namespace_are_not_remembered_as_its_own() -> None:
    rows, layout = sorted_out(raw(STEADY), None)
    assert layout is not None
    other, _ = sorted_out(raw([("ns-0", "d", 4.0)]), None)
    rows["ns-0"].extend(other["ns-0"])
    placed = layout.readings(raw(STEADY), None, T, MAX_AGE_S)
    assert placed is not None
    assert dict(placed)["ns-0"].objects.keys() == {"a", "c"}
