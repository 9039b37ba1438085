"""Programs that tests start never outlive them, and failures say what was seen."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.process import NotReadyError, Program, free_port, wait_until

ROOT = Path(__file__).parents[3]
SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
ORPHANS = """
import os, signal, sys
from pathlib import Path
from tests.tools.process import Program
program = Program("sleeper", [sys.executable, "-S", "-c", "import time; time.sleep(600)"],
                  Path(sys.argv[1]))
program.start()
print(program.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie whose parent has not asked for its status is dead enough.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_programs_end_even_when_the_tests_are_killed(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", ORPHANS, str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    pid = int(killed.stdout)
    wait_until("the orphan is gone", lambda: not is_alive(pid), deadline_s=10)


def test_a_frozen_program_can_be_stopped_and_started_again(tmp_path: Path) -> None:
    with Program("sleeper", SLEEPER, tmp_path / "log") as program:
        first = program.pid
        program.pause()
        program.stop()
        assert not is_alive(first)
        program.start()
        assert program.is_running
        assert program.pid != first
    assert not is_alive(program.pid)


def test_a_program_that_ends_while_awaited_shows_its_last_words(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "import sys; print('no such flag'); sys.exit(3)"]
    with (
        Program("speaker", words, tmp_path / "log") as program,
        pytest.raises(NotReadyError, match=r"(?s)speaker ended with 3.*no such flag"),
    ):
        wait_until("it is ready", lambda: False, 20, (program,))


def test_a_missed_deadline_says_what_was_seen_last(tmp_path: Path) -> None:
    def refused() -> bool:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(NotReadyError, match=r"it answers.*nobody listens"):
        wait_until("it answers", refused, 0.1)


def test_two_workers_are_never_given_the_same_port(monkeypatch):
    given = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        given += [free_port() for _ in range(200)]
    assert len(set(given)) == 400
    assert max(given[:200]) < min(given[200:])
