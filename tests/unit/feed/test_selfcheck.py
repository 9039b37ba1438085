"""What the self-check compares where stale series were taken out of the batch."""

import pytest

from podscale.feed.queries.refresh import _is_equal_but_stale
from tests.unit.adapter.world import reading

OWN = reading(series=[({"queue": "a"}, 1.0), ({"queue": "b"}, 2.0)])


@pytest.mark.parametrize(("left", "is_equal"), [
    ([({"queue": "a"}, 1.0)], True),
    ([({"queue": "a"}, 7.0)], False),  # another value
    ([], False),  # one that is not stale is missing
    ([({"queue": "a"}, 1.0), ({"queue": "c"}, 3.0)], False),  # one that is nowhere
])  # fmt: skip
def test_a_stale_series_hides_no_difference_of_the_others(left, is_equal):
    batch = reading(series=left, stale={"b": 400.0})
    assert _is_equal_but_stale(OWN, ["a", "b"], batch) is is_equal


def test_where_everything_is_stale_nothing_else_may_be_served():
    nothing = reading(stale={"": 400.0})
    assert _is_equal_but_stale(OWN, ["", ""], nothing)
    other = reading(series=[({"queue": "c"}, 0.0)], stale={"": 400.0})
    assert not _is_equal_but_stale(OWN, ["", ""], other)
