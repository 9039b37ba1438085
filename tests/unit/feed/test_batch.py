"""What goes into one query."""

import pytest

from podscale.feed.queries.group import Batch, BatchLimits, NamespaceRequest, Shape, is_wide, pack

SHAPE = Shape(static=50, per_namespace=2, per_name=1)


def wants(count, names=(), series=10):
    return [NamespaceRequest(f"n{place:03}", tuple(names), series) for place in range(count)]


def test_batches_fill_in_order_of_namespaces_whatever_the_order_of_demand():
    batches = pack(reversed(wants(150)), SHAPE, BatchLimits())
    assert [len(batch.namespaces) for batch in batches] == [100, 50]
    assert batches[0].namespaces == tuple(f"n{place:03}" for place in range(100))


def test_expected_series_bound_a_batch():
    assert [
        len(b.namespaces) for b in pack(wants(10, series=300), SHAPE, BatchLimits(series=1000))
    ] == [
        3,
        3,
        3,
        1,
    ]


def test_a_namespace_over_the_limit_goes_alone():
    many = [
        NamespaceRequest("a", (), 10),
        NamespaceRequest("b", (), 5000),
        NamespaceRequest("c", (), 10),
    ]
    assert [b.namespaces for b in pack(many, SHAPE, BatchLimits())] == [("a",), ("b",), ("c",)]


def test_wide_and_named_do_not_mix():
    batches = pack(
        [
            NamespaceRequest("a", (), 3),
            NamespaceRequest("b", ("p",), 1),
            NamespaceRequest("c", (), 3),
        ],
        SHAPE,
        BatchLimits(),
    )
    assert batches == [Batch(("a", "c")), Batch(("b",), ("p",))]


def test_equal_names_of_several_namespaces_are_listed_once():
    (batch,) = pack(
        wants(80, names=[f"web-{i}" for i in range(150)]), SHAPE, BatchLimits(series=10**6)
    )
    assert len(batch.names) == 150


def test_names_bound_a_batch():
    each = [
        NamespaceRequest(f"n{n}", tuple(f"n{n}-{i:02}" for i in range(80)), 80) for n in range(4)
    ]
    assert [len(batch.names) for batch in pack(each, SHAPE, BatchLimits())] == [160, 160]


@pytest.mark.parametrize("selectors", [1, 3])
def test_text_bounds_a_batch_once_per_selector(selectors):
    shape = Shape(static=100, per_namespace=selectors)
    batches = pack(
        [NamespaceRequest("n" * 50 + f"{i:03}", (), 1) for i in range(100)], shape, BatchLimits()
    )
    assert len(batches) == (1 if selectors == 1 else 3)


def test_beyond_the_hard_limit_the_names_of_one_namespace_are_split():
    names = tuple(f"a-rather-long-name-of-a-pod-{i:05}" for i in range(2000))
    batches = pack([NamespaceRequest("n", names, 2000)], SHAPE, BatchLimits())
    assert len(batches) == 5
    assert all(sum(len(name) + 1 for name in batch.names) < 16_000 for batch in batches)
    assert sorted(name for batch in batches for name in batch.names) == list(names)


def test_halves_are_of_namespaces_and_of_names_only_without_namespaces():
    batch = Batch(("a", "b", "c"), ("p", "q"))
    assert batch.halves() == (Batch(("a",), ("p", "q")), Batch(("b", "c"), ("p", "q")))
    assert Batch(("a",), ("p", "q")).halves() is None
    assert Batch(("",), ("p", "q", "r")).halves() == (
        Batch(("",), ("p",)),
        Batch(("",), ("q", "r")),
    )
    assert Batch(("",), ("p",)).halves() is None


@pytest.mark.parametrize(
    ("wanted", "known", "expected"), [(1, 3, True), (1, 4, False), (5, 5, True), (5, None, False)]
)
def test_wide_where_most_of_a_namespace_is_wanted(wanted, known, expected):
    assert is_wide(wanted, known) == expected
