"""A program that a test runs: started, watched, paused, killed, and surely gone after.

Everything goes by pid. A guard process ends what is left when the test process
itself is killed, which no fixture survives.
"""

import atexit
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

LOOPBACK = "127.0.0.1"
POLL_S = 0.05
_FIRST_PORT, _PORTS, _WORKERS = 18000, 2000, 6  # ports for each worker of a run
_given: set[int] = set()

# Reads "+PID" and "-PID" lines; the end of input means that the tests are gone.
_GUARD = """
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class _Guard:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def tell(self, line: str) -> None:
        if self._process is None or self._owner != os.getpid():
            # Its own session: Ctrl-C on the terminal must not reach it first.
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", _GUARD],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
            self._owner = os.getpid()
            atexit.register(self._end, self._process)
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    @staticmethod
    def _end(process: subprocess.Popen[str]) -> None:
        process.communicate(timeout=10)


_guard = _Guard()


class NotReadyError(Exception):
    """A program ended or missed its deadline; the text holds the end of its log."""


class Program:
    """One operating-system process with its output in a file; restarts with the same command."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = [str(word) for word in command]
        self.log = log
        self._environment = dict(environment) if environment is not None else None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it; the log is appended to. A running program is left as it is."""
        if self.is_running:
            return
        with self.log.open("ab") as log:
            # Its own session, so that Ctrl-C lets the fixtures stop programs in order.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        _guard.tell(f"+{self._process.pid}")

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once."""
        self._signal(signal.SIGTERM)

    def stop(self, grace_s: float = 15.0) -> None:
        """End it with SIGTERM, after ``grace_s`` with SIGKILL, and return when it is gone."""
        self.resume()  # a frozen process does not take SIGTERM
        self._signal(signal.SIGTERM)
        self._wait_or_kill(grace_s)

    def kill(self) -> None:
        """End it with SIGKILL and return when it is gone."""
        self._signal(signal.SIGKILL)
        self._wait_or_kill(10.0)

    def pause(self) -> None:
        """Freeze it with SIGSTOP: its sockets stay open and nothing answers."""
        self._signal(signal.SIGSTOP)
        # The signal is taken when a thread next enters the kernel: until all have, it answers.
        while self.is_running and not self._is_stopped():
            time.sleep(0.001)

    def _is_stopped(self) -> bool:
        try:
            tasks = [task.read_text() for task in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        except FileNotFoundError:  # a thread has just ended
            return False
        return all(text.rpartition(")")[2].split()[0] == "T" for text in tasks)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self, lines: int = 30) -> str:
        """Return the end of its log."""
        if not self.log.exists():
            return f"--- {self.name}: no log"
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 400 * lines))
            end = log.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join([f"--- {self.name}, end of {self.log}:", *end])

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _wait_or_kill(self, grace_s: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _guard.tell(f"-{self._process.pid}")


def wait_until(
    claim: str,
    probe: Callable[[], object],
    deadline_s: float,
    programs: Iterable[Program] = (),
) -> None:
    """Return when ``probe`` is true; a probe that raises OSError is not true yet.

    Raises NotReadyError with the ends of the programs' logs when the deadline passes
    or one of ``programs`` has ended.
    """
    programs = list(programs)
    end = time.monotonic() + deadline_s
    last: object = None
    while True:
        dead = [program for program in programs if not program.is_running]
        try:
            last = probe()
        except OSError as refused:
            last = refused
        else:
            if last:
                return
        if dead:
            what = ", ".join(f"{program.name} ended with {program.exit_code}" for program in dead)
            raise NotReadyError("\n".join([f"{claim}: {what}", *(p.tail() for p in dead)]))
        if time.monotonic() > end:
            logs = [program.tail() for program in programs]
            raise NotReadyError(
                "\n".join([f"not within {deadline_s:g} s: {claim} (saw {last!r})", *logs])
            )
        time.sleep(POLL_S)


def free_port() -> int:
    """Return a loopback port that is free now and that no outgoing connection will take.

    Below the kernel's ephemeral range, so a server can be restarted on its old port. No port
    is soon returned twice, and each worker of a run has its own: until its server listens, a port
    looks free to everybody.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % _WORKERS
    first = _FIRST_PORT + worker * _PORTS
    chooser = random.SystemRandom()
    if len(_given) > _PORTS // 2:
        _given.clear()
    while True:
        port = chooser.randrange(first, first + _PORTS)
        if port in _given:
            continue
        with socket.socket() as probe:
            # As a listening server would: a port in TIME_WAIT is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _given.add(port)
        return port
