"""The runner of the rings counts what really passed, and calls an empty ring red."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import outcome as outcomes_kept
from tests.outcome import Failure, Outcome, keep, summary
from tests.rings import RINGS, ROOT, Ring, built_meanwhile, chosen, elsewhere, run
from tests.tools.needs import WITH, WITHOUT
from tests.tools.process import wait_until
from tests.tools.programs import module_of


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of these runs is a process, whose start is mostly that of plugins it does not use.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def _ring(tmp_path: Path, text: str, *, is_timed: bool = False) -> Ring:
    (tmp_path / "test_it.py").write_text(text)
    return Ring("it", (str(tmp_path),), test_s=60, real_s=60, is_timed=is_timed)


def test_a_ring_without_tests_is_red(tmp_path):
    outcome = run(_ring(tmp_path, ""))
    assert (outcome.passed, outcome.is_green) == (0, False)
    assert "pytest ended with 5" in list(summary([outcome]))[-3]


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


def test_the_last_line_counts_and_the_lines_before_say_what_is_not_in_it():
    first = Outcome("faults", 5, (), (), 9.0, (Failure("a::b", "AssertionError: late"),))
    second = Outcome("unit", 3, (), ("c::d: no shell",), 1.0, waited=170.0, left_out=("kubectl",))
    lines = list(summary([first, second], ["left out: something"]))
    assert lines[0].split() == [
        "ring", "passed", "failed", "skipped", "left", "out", "seconds", "waited", "for", "programs"
    ]  # fmt: skip
    assert ["unit", "3", "0", "1", "1", "1", "170"] in map(str.split, lines)
    assert "        AssertionError: late" in lines
    assert lines[-4:] == [
        "\nall of it took 3 minutes",
        "1 passed only when tried once more",
        "left out: something",
        "8 passed, 0 failed",
    ]
    assert list(summary([second]))[-2:] == ["\nall of it took 3 minutes", "3 passed, 0 failed"]


def test_both_commands_of_ci_have_one_end(tmp_path, monkeypatch, capsys):
    kept = tmp_path / "kept"
    monkeypatch.setenv(outcomes_kept.KEPT_IN, str(kept))
    failure = Failure("a::b", "AssertionError: late", "the way")
    keep([Outcome("unit", 5, (failure,), (), 9.0, left_out=("helm",))], ["left out: helm"])
    keep([Outcome("cluster", 3, (), ("c::d: why",), 9.0)], ["left out: the long forms"])
    assert outcomes_kept.main(str(kept), 2) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "FAILED a::b (unit)" in lines
    assert lines[-2:] == ["left out: the long forms", "8 passed, 1 failed"]


def test_a_command_that_ended_before_its_first_test_has_failed(tmp_path, monkeypatch, capsys):
    kept = tmp_path / "kept"
    monkeypatch.setenv(outcomes_kept.KEPT_IN, str(kept))
    keep([Outcome("unit", 5, (), (), 9.0)], [])
    assert outcomes_kept.main(str(kept), 0) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 0 failed"
    assert outcomes_kept.main(str(kept), 2) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 1 failed"


def test_after_the_table_every_failure_says_what_was_raised_and_where(tmp_path):
    outcome = run(_ring(tmp_path, _FAILS_LOUDLY))
    lines = list(summary([outcome]))
    began = next(at for at, line in enumerate(lines) if line.startswith("\nFAILED"))
    said = lines[began:]
    assert said[0].endswith("test_it::test_loud (it)")
    assert said[1].startswith("    ValueError: line 0 xxx")
    assert any(line.endswith("test_it.py:5: ValueError") for line in said)
    assert len(said) == 1 + 12 + 2  # its name, its lines, the line that counts
    assert max(map(len, said)) <= 204
    assert lines[-1] == "0 passed, 1 failed"


def test_what_fails_twice_is_told_in_the_second_times_words(tmp_path):
    mark = tmp_path / "mark"
    outcome = run(_ring(tmp_path, _FAILS_TWICE.format(mark=str(mark)), is_timed=True))
    assert [failure.message.split("\n")[0] for failure in outcome.failed] == [
        "ValueError: attempt 2"
    ]


def test_a_ring_that_runs_out_of_time_says_so_and_counts_what_passed_until_then(tmp_path):
    text = "import time\ndef test_a():\n    pass\ndef test_b():\n    time.sleep(60)\n"
    ring = replace(_ring(tmp_path, text), test_s=3, real_s=0, long_s=3)
    outcome = run(ring)
    assert (outcome.passed, outcome.is_green) == (1, False)
    assert "3 s were over" in outcome.failed[-1].message


def test_what_a_ring_did_that_wrote_no_report_is_not_known(tmp_path):
    text = "import os\ndef test_a():\n    pass\ndef test_b():\n    os._exit(3)\n"
    lines = list(summary([run(_ring(tmp_path, text)), Outcome("unit", 3, (), (), 1.0)]))
    assert lines[1].split()[:3] == ["it", "?", "1"]
    assert lines[-1] == "at least 3 passed, 1 failed"


def test_a_skip_is_listed_with_its_reason(tmp_path):
    text = "import pytest\ndef test_skipped():\n    pytest.skip('no such program')\n"
    outcome = run(_ring(tmp_path, text + "def test_passes():\n    pass\n"))
    assert (outcome.passed, outcome.failed, len(outcome.skipped)) == (1, (), 1)
    assert "no such program" in outcome.skipped[0]


def test_each_test_runs_in_one_of_both_commands_and_is_counted_by_its_program(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.tools.needs import choose as pytest_collection_modifyitems\n"
    )
    ring = _ring(tmp_path, _NEEDS_PROGRAMS)
    test, real, full = (run(ring.part(form)) for form in ("test", "real", "full"))
    assert (test.passed, test.left_out, test.skipped) == (1, ("kubectl", "go, helm"), ())
    assert (real.passed, real.left_out) == (2, ())
    assert full.passed == 3
    line, *_ = elsewhere("test", [test])
    assert line.startswith("left out: 2 tests that run go, helm, kubectl; and the rings ")
    assert line.endswith(": make test-real")


def test_a_ring_that_test_real_does_not_run_has_no_test_of_programs(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.tools.needs import choose as pytest_collection_modifyitems\n"
    )
    ring = replace(_ring(tmp_path, _NEEDS_PROGRAMS), real_s=0)
    (failure,) = run(ring.part("test")).failed
    assert "go, helm, kubectl" in failure.message


def test_a_program_that_a_test_does_not_name_fails_it_where_programs_are_left_out(tmp_path):
    text = "from tests.tools.required import require\ndef test_it():\n    require('kubectl')\n"
    (failure,) = run(_ring(tmp_path, text).part("test")).failed
    assert "needs('kubectl')" in failure.message


def test_every_ring_runs_whole_in_both_commands_together():
    test = {ring.name: ring.programs for ring in chosen(["test"]) if ring}
    real = {ring.name: ring.programs for ring in chosen(["real"]) if ring}
    assert set(test) | set(real) == {ring.name for ring in RINGS if not ring.kubernetes}
    assert set(test.values()) == {WITHOUT}
    assert {name for name, programs in real.items() if programs == WITH} == set(test) & set(real)


def test_the_parts_of_a_command_fit_into_its_time(monkeypatch):
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    assert sum(ring.test_s for ring in RINGS) < 20 * 60  # what stops a ring is twice its time
    modules = {module for ring in chosen(["real"]) if ring for module in ring.modules}
    builds = sum(module_of(module).cold_build_s for module in modules)
    assert builds + sum(ring.real_s for ring in RINGS if not ring.kubernetes) < 70 * 60


def test_a_room_is_checked_by_its_own_tests():
    lint, *rings = chosen(["check", "hpa"])
    assert lint is None
    assert [ring.paths for ring in rings if ring] == [("tests/unit/hpa",), ("tests/property/hpa",)]
    with pytest.raises(KeyError, match="hpaa"):
        chosen(["check", "hpaa"])


def test_ci_builds_what_test_real_runs(monkeypatch):
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    built = re.search(r"tests\.tools build ([a-z ]+)", (ROOT / ".ci/run").read_text())
    assert built
    modules = {module for ring in chosen(["real"]) if ring for module in ring.modules}
    assert set(built[1].split()) == modules


def test_the_short_form_leaves_an_older_kubernetes_to_the_long_one():
    assert elsewhere("real", []) == [
        "left out: the long forms, and the rings cluster-1.36: make test-full"
    ]
    assert "cluster-1.36" in {ring.name for ring in chosen(["full"]) if ring}


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
    rings = [ring for ring in RINGS if ring.name in ("browser", "conformance", "docs")]
    with built_meanwhile(rings, builder):  # waits for the builder's end, ten minutes or now
        wait_until("the builder was started", lambda: asked.exists() and asked.read_text(), 30)
    assert asked.read_text() == "['prometheus', 'kubernetes', 'helm']"


def test_what_needs_no_program_runs_before_what_waits_for_one():
    waits = [bool(ring.modules) for ring in chosen(["real"])]
    assert waits == sorted(waits)


def test_the_long_form_may_take_longer(monkeypatch):
    ring = Ring("it", (), test_s=60, real_s=10, long_s=600)
    monkeypatch.setenv("PODSCALE_SHORT", "1")
    assert [ring.part(form).allowed_s for form in ("test", "real", "full")] == [60, 10, 70]
    monkeypatch.setenv("PODSCALE_SHORT", "")  # as the Makefile exports it
    assert ring.allowed_s == 600


@pytest.mark.parametrize("ring", RINGS, ids=lambda ring: ring.name)
def test_every_ring_has_a_target(ring):
    assert ring.name in (ROOT / "Makefile").read_text()


_NEEDS_PROGRAMS = """
import pytest

def test_none():
    pass

@pytest.fixture
def kubectl():
    return 1

def test_fixture(kubectl):
    pass

@pytest.mark.needs("helm", "go")
def test_marker():
    pass
"""

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
