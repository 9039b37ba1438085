"""A program that is told to end while it starts ends, whatever it waits for."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.tools.process import LOOPBACK, Program


@pytest.fixture
def silence() -> Iterator[socket.socket]:
    """An API server that takes connections and says nothing."""
    with socket.create_server((LOOPBACK, 0)) as server:
        server.settimeout(30.0)
        yield server


@pytest.mark.parametrize("command", ["adapter", "hpa", "updater", "run"])
def test_sigterm_ends_a_program_whose_cluster_does_not_answer(
    silence: socket.socket, tmp_path: Path, command: str
) -> None:
    kubeconfig, rules = tmp_path / "kubeconfig", tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    where = {"server": f"http://{LOOPBACK}:{silence.getsockname()[1]}"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "one",
                "contexts": [{"name": "one", "context": {"cluster": "one", "user": ""}}],
                "clusters": [{"name": "one", "cluster": where}],
            }
        )
    )
    named = "--lister-kubeconfig" if command == "adapter" else "--kubeconfig"
    flags = [f"{named}={kubeconfig}"]
    if command != "updater":
        flags += [f"--config={rules}", f"--cert-dir={tmp_path}", "--prometheus-url=http://unasked"]
    log = tmp_path / "log"
    with Program(command, [sys.executable, "-m", "podscale", command, *flags], log) as program:
        asking, _ = silence.accept()
        with asking:
            program.stop(grace_s=5.0)
    assert program.exit_code == 0, log.read_text()
    assert "never awaited" not in log.read_text()
