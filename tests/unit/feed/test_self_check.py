"""What the self-check compares, also where stale series were taken out of the batch."""

import pytest

from podscale.feed.queries.group import NamespaceRead
from podscale.feed.queries.self_check import agrees
from tests.unit.adapter.world import reading

OWN = reading(series=[({"queue": "a"}, 1.0), ({"queue": "b"}, 2.0)])


@pytest.mark.parametrize(("left", "is_equal"), [
    ([({"queue": "a"}, 1.0)], True),
    ([({"queue": "a"}, 7.0)], False),  # another value
    ([], False),  # one that is not stale is missing
    ([({"queue": "a"}, 1.0), ({"queue": "c"}, 3.0)], False),  # one that is nowhere
])  # fmt: skip
def test_a_stale_series_hides_no_difference_of_the_others(left, is_equal):
    batch = NamespaceRead(reading(series=left, stale={"b": 400.0}), None)
    assert agrees(batch, OWN, ["a", "b"], ()) is is_equal


@pytest.mark.parametrize(("left", "is_equal"), [
    ([({"queue": "b"}, 2.0), ({"queue": "a"}, 1.0 + 1e-12)], True),
    ([({"queue": "a"}, 1.0)], False),
    ([({"queue": "a"}, 1.0), ({"queue": "b"}, 2.0), ({"queue": "c"}, 2.0)], False),
    ([({"queue": "a"}, 2.0), ({"queue": "b"}, 1.0)], False),
])  # fmt: skip
def test_without_stale_series_all_have_to_be_there_in_any_order(left, is_equal):
    assert agrees(NamespaceRead(reading(series=left), None), OWN, ["", ""], ()) is is_equal


def test_where_everything_is_stale_nothing_else_may_be_served():
    nothing = NamespaceRead(reading(stale={"": 400.0}), None)
    assert agrees(nothing, OWN, ["", ""], ())
    other = NamespaceRead(reading(series=[({"queue": "c"}, 0.0)], stale={"": 400.0}), None)
    assert not agrees(other, OWN, ["", ""], ())
