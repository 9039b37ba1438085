"""The command blocks of a document, and a shell that runs them beside a test's cluster.

A block is fenced and says ``sh``. What a reader would replace (an address, a namespace) is
replaced here by an exact text; one that no command holds any more fails the test.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from tests.tools.process import Program
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
LANGUAGES = ("sh",)
_FENCE = re.compile(r"^```(\S*)\s*$")


@dataclass(frozen=True)
class Block:
    """The commands between two fences."""

    file: str
    line: int  # of the first command
    heading: str  # the nearest above
    text: str
    printed: str = ""  # what the document says it prints: the next fence, if that says text

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.heading})"


def blocks(document: Path, languages: Collection[str] = LANGUAGES) -> list[Block]:
    """Return the blocks of ``document`` in one of ``languages``, in order."""
    found: list[Block] = []
    heading, language, start = "", None, 0
    body: list[str] = []
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and language is None:
            language, start, body = fence[1], number + 1, []
        elif fence:
            if language in languages:
                found.append(Block(document.name, start, heading, "\n".join(body)))
            elif language == "text" and found:
                found[-1] = replace(found[-1], printed="\n".join(body))
            language = None
        elif language is not None:
            body.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


class Failed(AssertionError):
    """A command of a document did not end as the document says."""


class Shell:
    """Runs blocks with bash in a directory, podscale on its PATH, and kubectl for a cluster."""

    def __init__(
        self, directory: Path, kubeconfig: Path | None, replaced: Mapping[str, str]
    ) -> None:
        self.directory = directory
        self._replaced = replaced
        self._met: set[str] = set()
        self._running: list[Program] = []
        programs = directory / "bin"
        programs.mkdir()
        if kubeconfig is not None:
            (programs / "kubectl").symlink_to(require("kubectl"))
        self._environment = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig or directory / "no-cluster"),
            "KUBECACHEDIR": str(directory / "kubecache"),
            # podscale and its Python are those that the tests run with.
            "PATH": os.pathsep.join(
                (str(programs), str(Path(sys.executable).parent), os.environ["PATH"])
            ),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for program in self._running:
            program.stop()

    def run(self, block: Block, *, codes: Collection[int] = (0,), timeout_s: float = 60.0) -> str:
        """Run the block; return what it printed. Raises ``Failed`` for another exit code."""
        done = subprocess.run(
            self._command(block), cwd=self.directory, env=self._environment,
            capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
        if done.returncode not in codes:
            raise Failed(f"{block} ended with {done.returncode}\n{block.text}\n{done.stderr}")
        return done.stdout

    def start(self, block: Block) -> Program:
        """Run the block meanwhile, until the shell is closed."""
        program = Program(
            f"{block.file}:{block.line}",
            # exec: the signal that ends it must reach the program.
            [*self._command(block)[:-1], f"cd {self.directory}; exec {self._text(block)}"],
            self.directory / f"line-{block.line}.log",
            self._environment,
        )
        program.start()
        self._running.append(program)
        return program

    @property
    def unused(self) -> set[str]:
        """The replacements that no block has needed so far."""
        return set(self._replaced) - self._met

    def _command(self, block: Block) -> list[str]:
        return ["bash", "-euo", "pipefail", "-c", self._text(block)]

    def _text(self, block: Block) -> str:
        text = block.text
        for written, meant in self._replaced.items():
            if written in text:
                self._met.add(written)
                text = text.replace(written, meant)
        return text
