"""However a batch's series come, go, repeat and change places, what is remembered of their
order never misplaces a value: every answer is served as if it were the first one.

In the small: ``RowLayout`` against ``snapshot``, both fed the same bytes.
"""

import json
import math
from collections.abc import Mapping, Sequence

from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from podscale.feed.decoding.wire import InstantAnswer, VectorReader
from podscale.feed.plan import Api, KeyLabels, QueryPlan, Reading
from podscale.feed.queries.answer_rows import Collector, RowLayout, laying_out, reading, stamps_of
from tests.unit.feed.test_layout import ended

T = 1_700_000_000.0
MAX_AGE_S = 300.0
ASKED = ("n1", "n2", "empty")
Key = tuple[str, str, str, str]  # namespace, pod, container, another label

KEYS = st.tuples(
    st.sampled_from(["n1", "n2", "other"]),
    st.sampled_from(["a", "b", "c", "d", ""]),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "", "", "1"]),
)
VALUES = st.sampled_from([0.0, -1.0, 2.5, math.nan, math.inf]) | st.floats(0, 1e6)
AGES = st.sampled_from([0.0, 5.0, 299.0, 300.0, 301.0, math.nan])
CHANGES = st.sampled_from(
    ["same", "same", "same", "swap", "drop", "add", "again", "times-swap", "times-drop"]
)


def plan(api: Api) -> QueryPlan:
    labels = KeyLabels("namespace", "pod", "container" if api == "container" else "")
    return QueryPlan(api, "rules[0]", "load", labels, lambda _matchers, _values: "load")


def raw(rows: Sequence[tuple[Mapping[str, str], float]], cut: int) -> InstantAnswer:
    """Return the rows as they come over the wire, ``cut`` of them on the first page."""
    entries = [{"metric": metric, "value": [T, repr(value)]} for metric, value in rows]
    reader = VectorReader(is_raw=True)
    reader.page(json.dumps(entries[:cut]).encode())
    data = {"resultType": "vector", "result": entries[cut:]}
    return reader.end(json.dumps({"status": "success", "data": data}).encode())


def metric(key: Key, *, with_container: bool) -> dict[str, str]:
    namespace, pod, container, other = key
    labels = {"namespace": namespace, "pod": pod, "z": other}
    if with_container:
        labels["container"] = container
    return {name: value for name, value in labels.items() if value}


def scratch(
    of: QueryPlan, answer: InstantAnswer, stamps: InstantAnswer | None
) -> tuple[dict[str, Reading], RowLayout | None]:
    """Sort everything out anew, a few rows a page; also return how."""
    collector = Collector(of, T, ASKED, carries_namespace=True, is_by_name=True)
    metrics, known = [], []
    for page in answer.pages(rows=3):
        decoded = page.labelled()
        metrics += decoded.metrics
        collector.add(decoded)
    if stamps is not None:
        collector.expect_stamps()
        for page in stamps.pages(rows=3):
            decoded = page.labelled()
            known += decoded.metrics
            collector.stamp(stamps_of(decoded, of.labels))
    steps = laying_out(answer, stamps, of, collector.rows, metrics, known)
    layout = ended(steps)
    made = {name: reading(rows, of, MAX_AGE_S) for name, rows in collector.rows.items()}
    return made, layout


def told(found: Reading) -> object:
    """Return what each object and container is served, comparable with NaN in it."""

    def row(place: int) -> tuple[str, str]:
        return repr(float(found.values[place])), repr(float(found.time_s[place]))

    return (
        {name: row(place) for name, place in found.objects.items()},
        {key: row(place) for key, place in found.containers.items()},
        dict(found.stale),
        found.is_by_name,
        found.nameless,
        len(found.values),
    )


def changed(data: DataObject, keys: list[Key], change: str) -> list[Key]:
    if change == "add":
        key = data.draw(KEYS)
        place = data.draw(st.integers(0, len(keys)))
        return [*keys[:place], key, *keys[place:]]
    if not keys:
        return keys
    place = data.draw(st.integers(0, len(keys) - 1))
    if change == "drop":
        return keys[:place] + keys[place + 1 :]
    if change == "again":
        return [*keys, keys[place]]
    if change == "swap":
        return [*keys[place:], *keys[:place]]
    return keys


@settings(max_examples=600, deadline=None)
@given(st.data(), st.sampled_from(["custom", "container", "node"]), st.booleans())
def test_every_answer_is_served_as_if_it_were_the_first(
    data: DataObject, api: Api, with_times: bool
) -> None:
    of = plan(api)
    keys = data.draw(st.lists(KEYS, max_size=6, unique=True))
    timed = sorted({key[:2] for key in keys})
    layout: RowLayout | None = None
    for _ in range(data.draw(st.integers(2, 7))):
        change = data.draw(CHANGES)
        keys = changed(data, keys, change)
        if change in ("add", "again"):
            timed = sorted({key[:2] for key in keys})
        elif change == "times-swap":
            timed = timed[::-1]
        elif change == "times-drop":
            timed = timed[1:]
        rows = [(metric(key, with_container=api == "container"), data.draw(VALUES)) for key in keys]
        answer = raw(rows, data.draw(st.integers(0, len(rows))))
        stamps = None
        if with_times:
            times = [
                ({"namespace": ns, **({"pod": pod} if pod else {})}, T - data.draw(AGES))
                for ns, pod in timed
            ]
            stamps = raw(times, data.draw(st.integers(0, len(times))))
        expected, fresh = scratch(of, answer, stamps)
        placed = None if layout is None else layout.readings(answer, stamps, T, MAX_AGE_S)
        if placed is not None:
            event("placed by what is remembered")
        else:
            layout = fresh
            placed = None if fresh is None else fresh.readings(answer, stamps, T, MAX_AGE_S)
            if placed is None:
                continue
            event("placed by what was sorted out just now")
        assert {name: told(made) for name, made in placed} == {
            name: told(made) for name, made in expected.items()
        }
