"""The files of today under other ids, in another order: the same counts."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance import altered

HERE = Path(__file__).parent
RUNNERS = [
    HERE / f"test_{name}.py"
    for name in ("adapter", "hpa", "vpa", "explain", "doctor", "coalescing", "deviations")
]


def pytest_says(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
         *words, *map(str, RUNNERS)],
        cwd=HERE.parent.parent, env={**os.environ, **environment}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def counted(said: str, word: str) -> int:
    found = re.search(rf"(\d+) {word}", said)
    return int(found[1]) if found else 0


@pytest.mark.timeout(300)
@pytest.mark.skipif("PODSCALE_CASES" in os.environ, reason="these are other files already")
def test_other_ids_and_another_order_change_no_count(tmp_path, record_property):
    altered.write(tmp_path)
    ours = counted(pytest_says("--collect-only"), "tests collected")
    said = pytest_says(PODSCALE_CASES=str(tmp_path))
    passed, skipped = counted(said, "passed"), counted(said, "skipped")
    print(f"{ours} cases; renamed and reordered: {passed} passed, {skipped} skipped")
    assert not counted(said, "failed"), said[-4000:]
    assert passed + skipped == ours > 2000, said[-2000:]
    deviations = [line for line in said.splitlines() if line.startswith("deviations of")]
    assert len(deviations) == 4
    assert not any("NONE" in line for line in deviations), deviations
