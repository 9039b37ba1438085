"""The ``podscale`` program in a process forked from one that has loaded every command.

It has files, an environment and an end of its own, as for a user; that nothing is imported anew
makes it twenty times cheaper. What starting or ending an interpreter adds is tested with one
(``test_gone_readers``, ``test_entry``).
"""

import contextlib
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess

from podscale.cli import entry

# What the modules behind the commands import late: the client's library alone takes 0.25 s of CPU.
_LATE = (
    "kubernetes_asyncio.config.kube_config", "uvloop", "podscale.cli.page", "podscale.cli.parts",
    "podscale.cli.doctor.run", "podscale.cli.replay.run", "podscale.cli.report.run",
)  # fmt: skip
_LOADED = [__name__, *(each.module for each in entry.COMMANDS.values()), *_LATE]


def podscale(
    *words: str,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    longest_s: float = 60.0,
) -> CompletedProcess[str]:
    """Run a command; ``env`` is its whole environment. Raises TimeoutError after ``longest_s``."""
    with tempfile.TemporaryDirectory() as scratch:
        files = [Path(scratch, name) for name in ("in", "out", "err")]
        files[0].write_text(stdin)
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_LOADED)
        environment = dict(os.environ if env is None else env)
        process = context.Process(target=_run, args=(words, environment, [*map(str, files)]))
        process.start()
        process.join(longest_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"podscale {' '.join(words)}: {files[2].read_text()}")
        out, err = (file.read_text(errors="replace") for file in files[1:])
        return CompletedProcess(words, process.exitcode, out, err)


def _run(words: Sequence[str], environment: Mapping[str, str], files: Sequence[str]) -> None:
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(environment)
    try:
        entry.main(["podscale", *words])
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
