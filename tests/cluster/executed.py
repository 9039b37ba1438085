"""kube-controller-manager's own decisions: the code as released, called in process.

The package keeps what decides to itself, so what calls it (``go/``) are tests: of a copy of its
files, which ``go`` takes from locked modules. Go's fake clock stands still in it: an age on a
border stays on the border.
"""

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.golang import FLAGS, Go, built_once
from tests.conformance.cases import Case
from tests.tools.programs import RELEASES, module_of

PACKAGE = "pkg/controller/podautoscaler"
OURS = Path(__file__).parent / "go"
# Where the versions are locked: those of the programs that the other tests run.
LOCKED = {each: module_of("kube-controller-manager", each).directory for each in RELEASES}
RUN_S = 300.0


def program(release: str) -> Path:
    """Build what executes passes, once for these versions; skip where there is no Go for it."""
    locked = [LOCKED[release] / name for name in ("go.mod", "go.sum")]
    ours = sorted([*OURS.glob("*.go"), *(OURS / release).glob("*.go")])

    def build(go: Go) -> Path:
        for file in locked:
            (go.scratch / file.name).write_bytes(file.read_bytes())
        original = [
            file
            for file in (go.module("k8s.io/kubernetes") / PACKAGE).glob("*.go")
            if not file.name.endswith("_test.go")
        ]
        copy = go.scratch / "podautoscaler"
        copy.mkdir()
        for file in (*original, *ours):
            (copy / file.name).write_bytes(file.read_bytes())
        go.run("test", "-c", *FLAGS, "-o", "executed", "./podautoscaler")
        return go.scratch / "executed"

    sources = {file.name: file.read_bytes() for file in (*locked, *ours)}
    return built_once(release, sources, build)


def execute(built: Path, passes: Sequence[Case]) -> list[list[Case]]:
    """Return what each pass comes to, and those ``then``, of the same controller.

    That is the ``expected`` of a case of kind ``reconcile``.
    """
    text = _told(built, "TestExecuted", passes)
    # The original names them in the order of a map.
    text = re.sub(r"(HPAs: |HPA \(e\.g\. )\[([^\]]*)\]", _sorted, text)
    found = [json.loads(line) for line in text.splitlines()]
    assert list(map(len, found)) == [1 + len(each["then"]) for each in passes]
    return found


def timed(built: Path, passes: Sequence[Case]) -> tuple[list[float], list[int]]:
    """Return CPU seconds of each round of decisions, and the sum of the sizes that they desire.

    A round is one pass of each HPA; all have as many passes. Nothing else is timed.
    """
    told = json.loads(_told(built, "TestTimed", passes))
    return told["cpu_s"], told["desired"]


def _told(built: Path, test: str, passes: Sequence[Case]) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        asked, told = Path(scratch) / "asked", Path(scratch) / "told"
        asked.write_text("".join(json.dumps(each) + "\n" for each in passes))
        done = subprocess.run(
            [built, "-test.run", f"^{test}$", "-test.timeout", f"{RUN_S}s"],
            env={**os.environ, "PODSCALE_ASKED": str(asked), "PODSCALE_TOLD": str(told)},
            timeout=RUN_S + 10, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return told.read_text()


def _sorted(found: re.Match[str]) -> str:
    return f"{found[1]}[{' '.join(sorted(found[2].split()))}]"
