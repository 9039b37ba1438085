"""prometheus-adapter's own names, labels and queries: its released packages, called in process."""

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from podscale.kube.client.resource import Resource
from tests.cluster.golang import FLAGS, Go, built_once

OURS = Path(__file__).parent / "go" / "adapter"
RUN_S = 300.0

Json = Any


class Told(Struct, frozen=True):
    """What the original makes of a rule and a question; empty reasons where it makes something."""

    text: str
    kept: bool
    resources: list[str] | None
    namespaced: bool
    file: Json = None
    refused: str = ""  # the rule
    failed: str = ""  # the question


def program() -> Path:
    """Build what answers, once for this version; skip where there is no Go for it."""
    sources = {file.name: file.read_bytes() for file in OURS.iterdir()}

    def build(go: Go) -> Path:
        for name, content in sources.items():
            (go.scratch / name).write_bytes(content)
        go.run("build", *FLAGS, "-o", "executed", ".")
        return go.scratch / "executed"

    return built_once("adapter", sources, build)


def execute(built: Path, served: Iterable[Resource], asked: Sequence[Json]) -> list[Told]:
    """Return what comes of each question, in a cluster that serves these resources."""
    lists: dict[str, list[Json]] = {}
    for each in served:
        lists.setdefault(each.api_version, []).append(
            {
                "name": each.plural,
                "singularName": each.singular,
                "kind": each.kind,
                "namespaced": each.namespaced,
            }
        )
    found = [{"groupVersion": version, "resources": each} for version, each in lists.items()]
    done = subprocess.run(
        [built],
        input="".join(json.dumps(each) + "\n" for each in (found, *asked)),
        timeout=RUN_S, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    told = [Told(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(told) == len(asked)
    return told
