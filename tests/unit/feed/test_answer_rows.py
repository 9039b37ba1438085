"""Answers as readings."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.prover.proof import Default
from podscale.feed.queries.answer_rows import AnswerRows, Collector, add_own, reading, stamps_of

T = 1_700_000_000.0


def plan(api="custom", namespace="namespace", name="pod", container=""):
    return QueryPlan(api, "r", "m", KeyLabels(namespace, name, container), lambda _, __: "")


def answer(*rows):
    metrics, values = [dict(labels) for labels, _ in rows], [value for _, value in rows]
    return InstantAnswer("vector", metrics, values, [T] * len(rows))


def row(value, **labels):
    return labels, value


def objects(made):
    return {name: float(made.values[place]) for name, place in made.objects.items()}


def read(given, of=None, namespaces=("n1", "n2"), stamps=None, *, carries=False):
    of = of or plan()
    found = Collector(of, T, namespaces, carries_namespace=carries)
    for page in given.pages(rows=2):
        found.add(page)
    if stamps is not None:
        found.expect_stamps()
        found.stamp(stamps)
    return found.rows


def read_one(given, of=None):
    rows = AnswerRows(T)
    for page in given.pages(rows=1):
        add_own(rows, page, of or plan())
    return rows


def test_rows_go_to_their_namespace_and_empty_ones_are_known_to_be_empty():
    found = read(
        answer(
            row(1.0, namespace="n1", pod="a"),
            row(2.0, namespace="n2", pod="a"),
            row(3.0, namespace="elsewhere", pod="a"),
        ),
        namespaces=("n1", "n2", "n3"),
    )
    made = {name: objects(reading(rows, plan(), 300)) for name, rows in found.items()}
    assert made == {"n1": {"a": 1.0}, "n2": {"a": 2.0}, "n3": {}}


def test_a_row_without_object_label_is_no_object():
    found = read(answer(row(1.0, namespace="n1"), row(2.0, namespace="n1", pod="")))
    assert objects(reading(found["n1"], plan(), 300)) == {}


@pytest.mark.parametrize(("api", "value"), [("custom", 2.0), ("node", 1.0)])
def test_of_duplicates_the_last_wins_and_of_nodes_the_first(api, value):
    of = plan(api, namespace="", name="node")
    rows = read_one(answer(row(1.0, node="a"), row(2.0, node="a", z="1")), of)
    assert objects(reading(rows, of, 300)) == {"a": value}
    assert rows.duplicated == {"a"}


def test_equal_duplicates_and_nan_are_no_conflict():
    rows = read_one(
        answer(row(1.0, pod="a"), row(1.0, pod="a", z="1"), row(math.nan, pod="b"),
               row(math.nan, pod="b", z="1")),
    )  # fmt: skip
    assert rows.duplicated == set()


def test_containers_have_a_row_each_and_conflict_only_with_themselves():
    of = plan("container", container="container")
    rows = read_one(
        answer(row(1.0, pod="a", container="x"), row(2.0, pod="a", container="y"),
               row(3.0, pod="a"), row(4.0, pod="b", container="x"),
               row(5.0, pod="b", container="x", z="1")),
        of,
    )  # fmt: skip
    made = reading(rows, of, 300)
    values = {key: float(made.values[place]) for key, place in made.containers.items()}
    assert values == {("a", "x"): 1.0, ("a", "y"): 2.0, ("a", ""): 3.0, ("b", "x"): 5.0}
    assert rows.duplicated == {"b"}


@pytest.mark.parametrize(
    ("carries", "labels"), [(False, {"queue": "q"}), (True, {"namespace": "n1", "queue": "q"})]
)
def test_external_labels_are_those_of_the_requests_own_answer(carries, labels):
    of = plan("external", name="")
    found = read(answer(row(1.0, namespace="n1", queue="q")), of, carries=carries)
    assert reading(found["n1"], of, 300).labels == (labels,)


@pytest.mark.parametrize(
    ("when", "rows", "values"),
    [
        ("no sample", [], [7.0]),
        ("no sample", [row(1.0, namespace="n1", queue="q")], [1.0]),
        ("no sample with an empty label set", [], [7.0]),
        ("no sample with an empty label set", [row(1.0, namespace="n1")], [1.0]),
        ("no sample with an empty label set", [row(1.0, namespace="n1", __name__="m")], [1.0]),
        ("no sample with an empty label set", [row(1.0, namespace="n1", queue="q")], [1.0, 7.0]),
    ],
)
def test_the_default_is_appended_as_prometheus_would(when, rows, values):
    of = plan("external", name="")
    found = read(answer(*rows), of)
    made = reading(found["n1"], of, 300, Default(7.0, when))
    assert made.values.tolist() == values
    assert len(made.labels) == len(values)


def test_stale_rows_are_taken_out_and_the_others_keep_their_place():
    given = answer(*(row(float(i), namespace="n1", pod=f"p{i}") for i in range(5)))
    times = answer(
        row(T - 10, namespace="n1", pod="p0"),
        row(T - 301, namespace="n1", pod="p2"),
        row(T - 300, namespace="n1", pod="p4"),
        row(T - 1, namespace="n2", pod="p1"),
    )
    made = reading(read(given, stamps=stamps_of(times, plan().labels))["n1"], plan(), 300)
    assert objects(made) == {"p0": 0.0, "p4": 4.0}
    assert made.stale == {"p1": math.inf, "p2": 301.0, "p3": math.inf}
    assert made.time_s.tolist() == [T - 10, T - 300]


def test_names_read_in_several_queries_make_one_reading():
    first = read(answer(row(1.0, namespace="n1", pod="a")), stamps={("n1", "a"): T - 1})["n1"]
    second = read(answer(row(2.0, namespace="n1", pod="b")), stamps={("n1", "b"): T - 2})["n1"]
    first.extend(second)
    made = reading(first, plan(), 300)
    assert objects(made) == {"a": 1.0, "b": 2.0}
    assert made.time_s.tolist() == [T - 1, T - 2]
    third = replace(second, stamps=None)
    first.extend(third)
    assert np.isnan(reading(first, plan(), 300).time_s).all()


def test_a_scalar_is_one_row_without_labels():
    rows = read_one(InstantAnswer("scalar", [{}], [2.0], [T]), plan("external", name=""))
    made = reading(rows, plan("external", name=""), 300)
    assert (made.is_scalar, made.labels, made.values.tolist()) == (True, ({},), [2.0])


def test_a_time_that_the_source_wrote_itself_is_kept():
    given = InstantAnswer("vector", [{"pod": "a"}, {"pod": "b"}], [1.0, 2.0], [T, T - 7])
    made = reading(read_one(given), plan(), 300)
    assert math.isnan(made.time_s[0])
    assert made.time_s[1] == T - 7


def test_rows_without_object_label_are_counted_and_a_wide_reading_says_it_is_one():
    own = read_one(answer(row(1.0, service="x"), row(2.0, pod="a")))
    assert (own.nameless, reading(own, plan(), 300).nameless) == (1, 1)
    found = Collector(plan(), T, ("n1",), carries_namespace=True, is_by_name=True)
    found.add(answer(row(1.0, namespace="n1", pod="a")))
    assert reading(found.rows["n1"], plan(), 300).is_by_name
