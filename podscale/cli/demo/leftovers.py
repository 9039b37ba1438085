"""The demo's directory: locked while it lives, so that the next start knows a dead one's.

A demo killed with SIGKILL cannot clean up. Its lock is gone with it (the kernel's promise),
so the next start removes the directory and ends the Prometheus that still writes into it.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "podscale-demo-"
LOCK, CHILD = "lock", "prometheus.pid"
_YOUNG_S = 60.0  # a directory without lock may be one that is just being made


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory of our own while the block runs; raises ``OSError``."""
    made = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (made / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def sweep() -> list[Path]:
    """Remove what dead demos of this user have left; return what was removed."""
    removed = []
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if left.stat().st_uid == os.getuid() and _is_dead(left):
                _end_child(left)
                shutil.rmtree(left, ignore_errors=True)
                removed.append(left)
    return removed


def note_child(directory: Path, pid: int) -> None:
    """Write down which process works for the demo."""
    (directory / CHILD).write_text(str(pid))


def _is_dead(left: Path) -> bool:
    lock = left / LOCK
    if not lock.exists():
        return time.time() - left.stat().st_mtime > _YOUNG_S
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _end_child(left: Path) -> None:
    try:
        pid = int((left / CHILD).read_text())
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    # The number may be another process's by now; ours names the directory.
    if os.fsencode(left) in command:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
