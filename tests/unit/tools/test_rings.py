"""The runner of the rings counts what really passed, and calls an empty ring red."""

import sys
from pathlib import Path

import pytest

from tests.outcome import Failure, Outcome, told
from tests.rings import RINGS, Ring, built_meanwhile, left_to_the_long_form, run
from tests.tools.process import wait_until
from tests.tools.programs import module_of


def _ring(tmp_path: Path, text: str, *, is_timed: bool = False) -> Ring:
    (tmp_path / "test_it.py").write_text(text)
    return Ring("it", (str(tmp_path),), 60, is_timed=is_timed)


def test_a_ring_without_tests_is_red(tmp_path):
    outcome = run(_ring(tmp_path, ""))
    assert (outcome.passed, outcome.is_green) == (0, False)
    assert "pytest ended with 5" in list(told([outcome]))[-3]


def test_a_failure_in_an_untimed_ring_is_not_tried_again(tmp_path):
    outcome = run(_ring(tmp_path, _FAILS_ONCE.format(mark=str(tmp_path / "mark"))))
    assert (outcome.passed, len(outcome.failed), outcome.flaky) == (1, 1, ())


def test_what_passes_when_tried_once_more_is_flaky_and_counted_once(tmp_path):
    ring = _ring(tmp_path, _FAILS_ONCE.format(mark=str(tmp_path / "mark")), is_timed=True)
    outcome = run(ring)
    assert (outcome.passed, outcome.failed) == (2, ())
    assert [failure.test.split("::")[-1] for failure in outcome.flaky] == ["test_second_time"]


def test_what_fails_twice_has_failed(tmp_path):
    outcome = run(_ring(tmp_path, "def test_no():\n    assert False\n", is_timed=True))
    assert (outcome.passed, len(outcome.failed), outcome.flaky) == (0, 1, ())


def test_a_file_that_cannot_be_collected_is_red(tmp_path):
    outcome = run(_ring(tmp_path, "import nothing_of_this_name\n", is_timed=True))
    assert not outcome.is_green


def test_the_last_line_says_what_passed_only_when_tried_once_more():
    first = Outcome("faults", 5, (), (), 9.0, (Failure("a::b", "AssertionError: late"),))
    second = Outcome("unit", 3, (), ("c::d: no kubectl",), 1.0, waited=170.0)
    lines = list(told([first, second]))
    assert lines[0].split() == [
        "ring",
        "passed",
        "failed",
        "skipped",
        "seconds",
        "waited",
        "for",
        "programs",
    ]
    assert ["unit", "3", "0", "1", "1", "170"] in map(str.split, lines)
    assert "\nall of it took 3 minutes" in lines
    assert lines[-1] == "8 passed (1 only when tried once more), 0 failed, 1 skipped"
    assert "        AssertionError: late" in lines
    assert list(told([second]))[-1] == "3 passed, 0 failed, 1 skipped"


def test_after_the_table_every_failure_says_what_was_raised_and_where(tmp_path):
    outcome = run(_ring(tmp_path, _FAILS_LOUDLY))
    lines = list(told([outcome]))
    began = next(at for at, line in enumerate(lines) if line.startswith("\nFAILED"))
    said = lines[began:]
    assert said[0].endswith("test_it::test_loud (it)")
    assert said[1].startswith("    ValueError: line 0 xxx")
    assert any(line.endswith("test_it.py:5: ValueError") for line in said)
    assert len(said) == 1 + 12 + 2  # its name, its lines, the line that counts
    assert max(map(len, said)) <= 204
    assert lines[-1] == "0 passed, 1 failed, 0 skipped"


def test_what_fails_twice_is_told_in_the_second_times_words(tmp_path):
    mark = tmp_path / "mark"
    outcome = run(_ring(tmp_path, _FAILS_TWICE.format(mark=str(mark)), is_timed=True))
    assert [failure.message.split("\n")[0] for failure in outcome.failed] == [
        "ValueError: attempt 2"
    ]


def test_a_skip_is_listed_with_its_reason(tmp_path):
    text = "import pytest\ndef test_skipped():\n    pytest.skip('no such program')\n"
    outcome = run(_ring(tmp_path, text + "def test_passes():\n    pass\n"))
    assert (outcome.passed, outcome.failed, len(outcome.skipped)) == (1, (), 1)
    assert "no such program" in outcome.skipped[0]


def test_the_budgets_and_a_cold_build_fit_into_an_hour_and_a_half(monkeypatch):
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    short = [ring for ring in RINGS if not ring.kubernetes]
    modules = {module for ring in short for module in ring.modules}
    builds = sum(module_of(module).cold_build_s for module in modules)
    assert builds + sum(ring.budget_s for ring in short) < 90 * 60


def test_the_short_form_leaves_an_older_kubernetes_to_the_long_one(monkeypatch):
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    assert left_to_the_long_form() == ["cluster-1.36"]
    monkeypatch.setenv("PODSCALE_SHORT", "")
    assert left_to_the_long_form() == []


def test_what_the_long_form_alone_runs_is_not_built_for_the_short_one(monkeypatch):
    ring = next(ring for ring in RINGS if ring.name == "cluster")
    monkeypatch.setenv("PODSCALE_SHORT", "")
    long = ring.modules
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    assert set(long) - set(ring.modules) == {"karpenter"}


def test_an_older_kubernetes_needs_its_own_programs_and_the_newest_kubectl():
    ring = next(ring for ring in RINGS if ring.name == "cluster-1.36")
    assert {"kubernetes", "kubernetes-1.36"} <= set(ring.modules)
    assert ring.environment["PODSCALE_KUBERNETES"] == "1.36"
    assert not [each.name for each in RINGS if "kubernetes-1.36" in each.modules and each != ring]


def test_programs_are_built_beside_the_first_rings_by_a_builder_that_ends_with_them(tmp_path):
    asked = tmp_path / "asked"
    script = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(sys.argv[2:]));"
    builder = (sys.executable, "-c", script + "time.sleep(600)", str(asked))
    rings = [ring for ring in RINGS if ring.name in ("browser", "conformance", "unit")]
    with built_meanwhile(rings, builder):  # waits for the builder's end, ten minutes or now
        wait_until("the builder was started", lambda: asked.exists() and asked.read_text(), 30)
    assert asked.read_text() == "['prometheus', 'kubernetes', 'helm']"


def test_what_needs_no_program_runs_before_what_waits_for_one():
    waits = [bool(ring.modules) for ring in RINGS]
    assert waits == sorted(waits)


def test_the_long_form_may_take_longer(monkeypatch):
    ring = Ring("it", (), 60, long_s=600)
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    assert (ring.allowed_s, Ring("it", (), 60).allowed_s) == (60, 60)
    monkeypatch.setenv("PODSCALE_SHORT", "")  # as the Makefile exports it
    assert (ring.allowed_s, Ring("it", (), 60).allowed_s) == (600, 60)


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

_FAILS_LOUDLY = """
def test_loud():
    lines = [f"line {n} " + "x" * 300 for n in range(40)]
    if lines:
        raise ValueError("\\n".join(lines))
"""

_FAILS_TWICE = """
from pathlib import Path

MARK = Path({mark!r})

def test_no():
    was_there = MARK.exists()
    MARK.touch()
    raise ValueError(f"attempt {{1 + was_there}}")
"""
