"""What each ring imports of another is asserted on with pytest's own words, in any order."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_rings_that_share_modules_are_collected_in_one_run():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-qq", "tests",
         "--ignore=tests/unit", "--ignore=tests/property", "--ignore=tests/browser",
         "-p", "no:cacheprovider"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert "tests/cluster/test_hpa_executed.py" in done.stdout
    assert "tests/conformance/test_hpa.py" in done.stdout
