"""A log that cannot be written is dropped and counted; the program goes on."""

import http.client
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_joined import Joined, joined_in
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

PROGRAMS = ("adapter", "hpa", "recommender", "updater", "admission", "serve", "control", "run")
PLAIN = ("recommender", "updater", "admission")  # their metrics are served over HTTP
UNWRITABLE = {
    "full-disk": "exec \"$@\" >/dev/full 2>&1",
    "pipe-without-a-reader": "exec \"$@\" > >(exec true) 2>&1",
    "none-at-all": "exec \"$@\" <&- >&- 2>&-",
}  # fmt: skip


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    with joined_in(tmp_path_factory.mktemp("joined")) as made:
        yield made


def _words(joined: Joined, program: str, port: int) -> list[str]:
    words = [word for word in joined.words(program) if not word.startswith("--secure-port")]
    if program in ("updater", "admission"):
        words = [word for word in words if not word.startswith(("--config", "--prometheus"))]
    if program in ("admission", "serve", "run"):
        prefix = "" if program == "admission" else "admission."
        words += [f"--{prefix}port=0", "--register-webhook=false"]
    listening = f"--secure-port={port}"
    if program in PLAIN:
        listening = f"--address={LOOPBACK}:{port}"
    return [*words, listening, "-v=4"]


def _got(joined: Joined, program: str, port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=10)
    if program not in PLAIN:
        tls = ssl._create_unverified_context()  # noqa: S323 - a certificate of its own making
        connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=10, context=tls)
    try:
        token = {"Authorization": f"Bearer {joined.sandbox.token}"}
        connection.request("GET", path, headers=token)
        answer = connection.getresponse()
        body = answer.read()
        return body if answer.status == 200 else b""
    finally:
        connection.close()


def _lost(joined: Joined, program: str, port: int) -> float:
    for line in _got(joined, program, port, "/metrics").decode().splitlines():
        if line.startswith("podscale_log_lines_lost_total "):
            return float(line.split()[1])
    return 0.0


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "where"),
    [
        *((program, "full-disk") for program in PROGRAMS),
        ("adapter", "pipe-without-a-reader"),
        ("adapter", "none-at-all"),
    ],
)
def test_a_log_that_cannot_be_written_ends_no_program(
    joined: Joined, program: str, where: str, tmp_path: Path
) -> None:
    port = free_port()
    words = _words(joined, program, port)
    command = ["bash", "-c", UNWRITABLE[where], "bash", *words]
    with Program(program, command, tmp_path / "log") as running:
        wait_until("it lives", lambda: _got(joined, program, port, "/metrics"), 60.0, (running,))
        if where != "none-at-all":
            wait_until("it counts", lambda: _lost(joined, program, port) > 0, 30.0, (running,))
        running.stop()
    assert running.exit_code == 0, (tmp_path / "log").read_text()


@pytest.mark.parametrize("where", UNWRITABLE)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("nonsense",), 2),
        (("adapter", "--nonsense"), 2),
        (("adapter", "--lister-kubeconfig=/nonexistent", "--prometheus-url=http://unasked"), 2),
        (("explain", "--kubeconfig=/nonexistent", "hpa/web"), 2),
        (("doctor", "--kubeconfig=/nonexistent"), 2),
    ],
)
def test_what_cannot_be_said_changes_no_exit_code(
    where: str, words: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "podscale", *words]
    only_errors = UNWRITABLE[where].replace(">/dev/full 2>&1", "2>/dev/full")
    only_errors = only_errors.replace("> >(exec true) 2>&1", "2> >(exec true)")
    program = Program("podscale", ["bash", "-c", only_errors, "bash", *command], tmp_path / "log")
    with program:
        wait_until("it ends", lambda: not program.is_running, 30.0)
        assert program.exit_code == code, (tmp_path / "log").read_text()
