"""Writes that take turns."""

import numpy as np

from vpa.model.groups import paced

AGE_S, PASS_S = 600.0, 60.0


def test_what_was_written_together_is_spread_and_nothing_is_late() -> None:
    written_at = np.zeros(1003)
    counts = []
    for number in range(1, 41):
        now = number * PASS_S
        assert (now - written_at).max() <= AGE_S
        chosen = paced(now - written_at, written_at.size, AGE_S, PASS_S)
        written_at[chosen] = now
        counts.append(chosen.size)
    assert max(counts) <= 101
    assert sum(counts) <= 41 * 101


def test_few_wait_until_they_are_old() -> None:
    assert paced(np.array([540.0]), 100, AGE_S, PASS_S).size == 0
    assert paced(np.array([540.0, 600.0, 0.0]), 100, AGE_S, PASS_S).tolist() == [1]


def test_without_an_age_everything_is_written() -> None:
    assert sorted(paced(np.zeros(5), 5, 0.0, PASS_S)) == [0, 1, 2, 3, 4]
    assert paced(np.empty(0), 0, AGE_S, PASS_S).size == 0
