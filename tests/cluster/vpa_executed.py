"""The VPA's own decisions: the code as released, called in process.

The module is copied out of Go's module cache with its own locked versions; what calls it
(``go/vpa``, laid into its ``pkg``) answers in the form of the case files.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.golang import FLAGS, Go, built_once
from tests.conformance.cases import Case
from tests.tools.programs import module_of

MODULE = "k8s.io/autoscaler/vertical-pod-autoscaler"
OURS = Path(__file__).parent / "go" / "vpa"
RUN_S = 300.0


def program() -> Path:
    """Build what answers cases, once for this version; skip where there is no Go for it."""
    locked = [module_of("vpa").directory / name for name in ("go.mod", "go.sum")]
    ours = {str(file.relative_to(OURS)): file.read_bytes() for file in OURS.rglob("*.go")}

    def build(go: Go) -> Path:
        for file in locked:
            (go.scratch / file.name).write_bytes(file.read_bytes())
        copy = go.scratch / "copy"
        shutil.copytree(go.module(MODULE), copy, copy_function=shutil.copyfile)
        for directory in (copy, *filter(Path.is_dir, copy.rglob("*"))):
            directory.chmod(0o755)
        for name, content in ours.items():
            (copy / "pkg" / name).parent.mkdir(exist_ok=True)
            (copy / "pkg" / name).write_bytes(content)
        inside = Go(copy)
        inside.run("build", *FLAGS, "-o", str(go.scratch / "executed"), "./pkg/podscale")
        return go.scratch / "executed"

    return built_once("vpa", {file.name: file.read_bytes() for file in locked} | ours, build)


def execute(built: Path, asked: Sequence[Case]) -> list[Case]:
    """Return what the original comes to for each case's ``kind`` and ``inputs``: its ``expected``.

    ``upstream_panics`` says what it died of, ``error`` what it refused.
    """
    done = subprocess.run(
        [built],
        input="".join(json.dumps(each, default=str) + "\n" for each in asked),
        timeout=RUN_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(asked)
    return told
