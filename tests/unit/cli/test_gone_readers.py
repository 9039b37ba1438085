"""Who reads our output may go, or never have been there: that is no failure to talk about."""

import subprocess
import sys
from pathlib import Path

import pytest

SOUND = """\
rules:
- seriesQuery: requests_total
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
COMMANDS = [
    ["--help"],
    ["config-gen"],
    # Of commands with Kubernetes' flags, of those with options, and of those with commands.
    *([name, "--help"] for name in ("adapter", "explain", "nodes")),
    ["migrate", "RULES"],
    ["doctor", "--no-cluster", "--config", "RULES"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("shell", "codes"),
    [
        ('"$@" | :; exit ${PIPESTATUS[0]}', (0, 141)),
        ('"$@" >&-', (0,)),
        ('"$@" >/dev/full', (1,)),
    ],
)
def test_output_that_nobody_reads_ends_quietly(shell, codes, words, tmp_path: Path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(SOUND)
    command = [str(rules) if word == "RULES" else word for word in words]
    done = subprocess.run(
        ["bash", "-c", shell, "-", sys.executable, "-m", "podscale", *command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode in codes, done
    assert not any(word in done.stderr for word in ("NoneType", "Errno", "Broken pipe")), done
