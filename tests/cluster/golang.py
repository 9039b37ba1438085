"""Go programs of ours around an original's packages, built once for each of their versions."""

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.tools import cache
from tests.tools.required import absent

# Which of the locked modules a program needs is for Go to say; go.sum holds all of them.
FLAGS = ("-mod=mod", "-trimpath", "-buildvcs=false")
BUILD_S = 600.0


class Go:
    """The toolchain, in a directory that holds go.mod and go.sum."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        self._environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}

    def run(self, *arguments: str) -> str:
        """Return what ``go`` prints."""
        done = subprocess.run(
            ["go", *arguments],
            cwd=self.scratch, env=self._environment, timeout=BUILD_S,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def module(self, name: str) -> Path:
        """Return where the locked version of a module lies, read-only."""
        return Path(json.loads(self.run("mod", "download", "-json", name))["Dir"])


def built_once(name: str, sources: Mapping[str, bytes], build: Callable[[Go], Path]) -> Path:
    """Return the program that ``build`` makes of ``sources``; skip where there is no Go for it."""
    digest = hashlib.sha256(repr((sorted(sources.items()), FLAGS)).encode())
    stem = f"{name}-{digest.hexdigest()[:16]}-{cache.go_version()}"
    program = cache.cache_directory() / "executed" / stem
    if not program.exists():
        if cache.go_version() is None:
            absent("Go is missing, which builds what is executed here; apt-get install golang-go")
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            build(Go(Path(scratch))).rename(program)
    return program
