"""How k8s.io/apiserver reads paths: its resolver of request attributes, called in process."""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from podscale.serving.request_info import RequestInfo
from tests.cluster.golang import FLAGS, Go, built_once
from tests.tools.programs import module_of

OURS = Path(__file__).parent / "go" / "requestinfo"
RUN_S = 120.0


class Told(Struct, frozen=True):
    """What the original makes of one request."""

    info: RequestInfo
    is_refused: bool  # the target is none: its server answers 400
    is_failed: bool  # the resolver knows no attributes: 500


def program() -> Path:
    """Build what answers, once for the version that the planes run; skip where there is no Go."""
    locked = module_of("kubernetes").directory
    files = [locked / "go.mod", locked / "go.sum", *OURS.iterdir()]
    sources = {file.name: file.read_bytes() for file in files}

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "executed", ".")
        return go.scratch / "executed"

    return built_once("requestinfo", sources, build)


def execute(built: Path, asked: Sequence[tuple[str, str]]) -> list[Told]:
    """Return what comes of each method and target; a character of a target is a byte."""
    lines = (
        json.dumps(
            {"method": method, "target": base64.b64encode(target.encode("latin-1")).decode()}
        )
        for method, target in asked
    )
    # Standard error says of each query that it cannot be parsed.
    done = subprocess.run(
        [built], input="\n".join(lines), timeout=RUN_S,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    told = [_told(json.loads(line)) for line in done.stdout.splitlines()]
    assert len(told) == len(asked)
    return told


def _told(found: dict[str, object]) -> Told:
    def text(value: object) -> str:
        return base64.b64decode(str(value or "")).decode(errors="replace")

    parts = found["parts"]
    info = RequestInfo(
        is_resource=bool(found["is_resource"]),
        verb=str(found["verb"]),
        parts=tuple(map(text, parts)) if isinstance(parts, list) else (),
        **{
            name: text(found[name])
            for name in ("path", "group", "version", "namespace", "resource", "subresource", "name")
        },
    )
    return Told(info, bool(found["refused"]), bool(found["failed"]))
