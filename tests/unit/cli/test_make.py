"""What `make demo` says to somebody who has just cloned this."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_first_make_says_that_it_installs_and_how_long_that_takes():
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    told = next(at for at, line in enumerate(lines) if "a minute or two" in line)
    assert "Installing" in lines[told]
    assert told < next(at for at, line in enumerate(lines) if "pip install" in line)


def test_make_alone_names_every_target_that_the_readme_uses():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = set(done.stdout.split())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"make ([a-z-]+)", readme))
    assert {"demo", "test", "lint", "bench-hpa"} <= used
    assert used <= listed, used - listed
