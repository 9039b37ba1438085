"""The runner of the rings counts what really passed, and calls an empty ring red."""

from pathlib import Path

import pytest

from tests.rings import RINGS, Ring, run


def _ring(tmp_path: Path, text: str, *, is_timed: bool = False) -> Ring:
    (tmp_path / "test_it.py").write_text(text)
    return Ring("it", (str(tmp_path),), 60, is_timed=is_timed)


def test_a_ring_without_tests_is_red(tmp_path):
    outcome = run(_ring(tmp_path, ""))
    assert (outcome.passed, outcome.is_green) == (0, False)


def test_a_failure_in_an_untimed_ring_is_not_tried_again(tmp_path):
    outcome = run(_ring(tmp_path, _FAILS_ONCE.format(mark=str(tmp_path / "mark"))))
    assert (outcome.passed, outcome.failed, outcome.flaky) == (1, 1, ())


def test_what_passes_when_tried_once_more_is_flaky_and_counted_once(tmp_path):
    ring = _ring(tmp_path, _FAILS_ONCE.format(mark=str(tmp_path / "mark")), is_timed=True)
    outcome = run(ring)
    assert (outcome.passed, outcome.failed) == (2, 0)
    assert [name.split("::")[-1] for name in outcome.flaky] == ["test_second_time"]


def test_what_fails_twice_has_failed(tmp_path):
    outcome = run(_ring(tmp_path, "def test_no():\n    assert False\n", is_timed=True))
    assert (outcome.passed, outcome.failed, outcome.flaky) == (0, 1, ())


def test_a_file_that_cannot_be_collected_is_red(tmp_path):
    outcome = run(_ring(tmp_path, "import nothing_of_this_name\n", is_timed=True))
    assert not outcome.is_green


def test_a_skip_is_listed_with_its_reason(tmp_path):
    text = "import pytest\ndef test_skipped():\n    pytest.skip('no such program')\n"
    outcome = run(_ring(tmp_path, text + "def test_passes():\n    pass\n"))
    assert (outcome.passed, outcome.failed, len(outcome.skipped)) == (1, 0, 1)
    assert "no such program" in outcome.skipped[0]


def test_the_budgets_fit_into_an_hour():
    assert sum(ring.budget_s for ring in RINGS) < 3600


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_every_ring_has_a_target(ring):
    makefile = Path(__file__).parents[3] / "Makefile"
    named = makefile.read_text()
    assert ring.name in named


_FAILS_ONCE = """
from pathlib import Path

MARK = Path({mark!r})

def test_first():
    pass

def test_second_time():
    was_there = MARK.exists()
    MARK.touch()
    assert was_there
"""
