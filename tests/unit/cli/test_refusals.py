"""What must be changed first is told before any server is asked, in one form by every part."""

import subprocess
import sys
from pathlib import Path

import pytest

NOWHERE = "http://127.0.0.1:1"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"


def podscale(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podscale", *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("part", ["adapter", "hpa", "recommender", "control", "run"])
def test_a_rules_file_that_is_none_ends_with_2_and_its_first_line(part: str, tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_text(POD)
    feed = [] if part == "adapter" else ["--metrics-source=feed"]
    done = podscale(part, f"--config={file}", f"--prometheus-url={NOWHERE}", *feed)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}:1:1: unknown key 'apiVersion'")
    assert "TaskGroup" not in done.stderr


@pytest.mark.parametrize("part", ["adapter", "hpa", "control"])
def test_a_rules_file_that_cannot_be_read_says_why(part: str, tmp_path: Path):
    feed = [] if part == "adapter" else ["--metrics-source=feed"]
    for file, why in ((tmp_path / "none", "no such file"), (tmp_path, "it is a directory")):
        done = podscale(part, f"--config={file}", f"--prometheus-url={NOWHERE}", *feed)
        assert (done.returncode, done.stderr) == (2, f"{file}: cannot be read: {why}\n")


def test_a_binary_rules_file_is_told_without_words_of_the_parser(tmp_path: Path):
    file = tmp_path / "rules.yaml"
    file.write_bytes(b"\x0e\x01\xff\x00")
    done = podscale("hpa", f"--config={file}", f"--prometheus-url={NOWHERE}")
    assert done.returncode == 2
    assert done.stderr.startswith(f"{file}: not YAML: ")
    assert "unicode string" not in done.stderr


def test_without_a_command_the_help_keeps_its_lines():
    done = podscale()
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: podscale")
    assert len(done.stderr.splitlines()) > 15
    assert podscale("help").stdout == podscale("--help").stdout
    assert podscale("version").stdout == podscale("--version").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "foo"], "--server foo: not an http or https URL"),
        (["--kubeconfig", "EMPTY"], "is empty"),
        (["--server", NOWHERE, "--at", "bogus"], "--at=bogus is neither an age"),
    ],
)
def test_a_cluster_or_a_time_that_is_none_ends_with_2(words: list[str], said: str, tmp_path: Path):
    empty = tmp_path / "config"
    empty.write_text("")
    done = podscale("explain", "hpa/web", *(str(empty) if w == "EMPTY" else w for w in words))
    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["hpa", ""], "eval"),
        (["hpa", "--mo"], "--mode"),
        (["hpa", "eval", "--ob"], "--observation"),
    ],
)
def test_hpa_offers_eval_and_the_flags(words: list[str], offered: str):
    from podscale.cli.completion import kubectl

    assert offered in [line.partition("\t")[0] for line in kubectl(words).splitlines()]
