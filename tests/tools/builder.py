"""Builds the Go modules under ``go/`` into the cache, each at most once.

The ordinary Go client with the user's own proxy and checksum settings does the
work; a directory appears under its final name only when it is complete.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tools.cache import built, cache_directory, find, go_version, source_key
from tests.tools.programs import MODULES, GoModule, module_of, wanted

STILL_BUILDING_S = 30.0

NO_GO = """\
Go is missing, and {names} can only be built with it (1.26 or newer; 1.21 and newer fetch 1.26 \
by themselves).
Install it with `apt-get install golang-go` (Debian 13 or newer) or from https://go.dev/dl/, \
then run: make tools"""


class BuildError(Exception):
    """A module could not be built; the text says what to do."""


def build(names: Sequence[str] = ()) -> None:
    """Build the named modules (or the modules of the named programs); all when empty."""
    named = {module_of(name).name for name in names}
    modules = [module for module in MODULES if module.name in named] if named else wanted()
    missing = [module for module in modules if not _satisfied(module)]
    if missing and go_version() is None:
        raise BuildError(NO_GO.format(names=", ".join(module.name for module in missing)))
    for module in modules:
        if module in missing:
            _build_once(module)
        else:
            _say(f"{module.name}: ready")


def _satisfied(module: GoModule) -> bool:
    return built(module) is not None or all(
        module_of(program) == module and find(program) is not None for program in module.programs
    )


def _build_once(module: GoModule) -> None:
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{module.name}.lock", module.name):
        if built(module):  # another process did, while we waited for the lock
            _say(f"{module.name}: ready")
            return
        _say(
            f"{module.name}: building {', '.join(module.programs)}"
            f" (about {module.cold_build_s} s on 2 cores when nothing is cached)"
        )
        started = time.monotonic()
        unfinished = Path(tempfile.mkdtemp(prefix=f".{module.name}-", dir=cache))
        try:
            _go_build(module, unfinished)
            unfinished.chmod(0o755)
            target = cache / f"{module.name}-{source_key(module)}-{go_version()}"
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        _say(f"{module.name}: built in {time.monotonic() - started:.0f} s")


def _go_build(module: GoModule, target: Path) -> None:
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",  # no C compiler needed
        "GOWORK": "off",
    }
    for program, package in module.programs.items():
        # One at a time: linking kube-apiserver takes 2 GB, and the second program
        # finds nearly all its packages in Go's own build cache.
        command = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", module.ldflags]
        command += ["-o", str(target / program), package]
        _run(command, module, program, environment)


def _run(
    command: Sequence[str], module: GoModule, program: str, environment: dict[str, str]
) -> None:
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=module.directory, env=environment)
    try:
        while True:
            try:
                code = process.wait(STILL_BUILDING_S)
                break
            except subprocess.TimeoutExpired:
                _say(f"{module.name}: {program}, {time.monotonic() - started:.0f} s")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if code:
        raise BuildError(
            f"{module.name}: `{' '.join(command)}` in {module.directory} ended with {code};"
            " Go's own message stands above"
        )


@contextlib.contextmanager
def _locked(path: Path, name: str) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"{name}: another process is building it, waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield  # closing the file releases the lock


def _say(line: str) -> None:
    print(f"tools: {line}", file=sys.stderr, flush=True)
