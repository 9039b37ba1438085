"""kube-scheduler's own filters: the packages as released, called in process.

The versions are locked by the modules that build the scheduler of the other tests.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.golang import FLAGS, Go, built_once
from tests.tools.programs import Release, module_of

OURS = Path(__file__).parent / "go" / "scheduler" / "main.go"
RUN_S = 600.0

Json = Any


def program(release: Release) -> Path:
    """Build what answers, once for these versions; skip where there is no Go for it."""
    directory = module_of("kube-scheduler", release).directory
    sources = {file.name: file.read_bytes()
               for file in (directory / "go.mod", directory / "go.sum", OURS)}  # fmt: skip

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "executed", "main.go")
        return go.scratch / "executed"

    return built_once(f"scheduler-{release}", sources, build)


def execute(built: Path, asked: Sequence[Json]) -> list[Json]:
    """Return the verdicts over each pod and its cluster."""
    done = subprocess.run(
        [built],
        input="".join(json.dumps(each) + "\n" for each in asked),
        timeout=RUN_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(asked)
    return told
