"""Public reports about traces: `podscale replay --trace` and times that no load can have."""

from pathlib import Path

import pytest

from tests.kit.commands import podscale

REPORTS = Path(__file__).parent / "reports"
EXPECTED = {
    "trace-in-milliseconds": ":2: 1793491200000 is a time in the year 58803: milliseconds? "
    "divide by 1000",
    "trace-with-a-stray-first-line": ":2: the times span 57 years (at most 5); the largest "
    "gap is before line 3: remove what is on one side of it",
}


@pytest.mark.parametrize("folder", EXPECTED)
def test_a_trace_with_times_of_another_kind_is_refused_with_its_line(folder: str) -> None:
    trace, hpa = REPORTS / folder / "load.csv", REPORTS / folder / "hpa.yaml"
    done = podscale("replay", "--trace", str(trace), "--hpa", str(hpa))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{trace}{EXPECTED[folder]}" in done.stderr
