"""KEDA's operator and metrics adapter, built from its own module: most scalers are left out.

Left are prometheus, cron, cpu and memory. Its other scalers, its vaults and its exporters bring
some 2,500 packages with them; ``go build -overlay`` takes them away and puts the few lines under
go/keda in their place. What is shared with Kubernetes has the versions of the tests' Kubernetes
(go/keda/go.mod), so that beside it about 120 packages are compiled.
"""

import json
import re
from pathlib import Path

from tests.cluster.golang import FLAGS, Go, built_once

MODULE = "github.com/kedacore/keda/v2"
VERSION = "v2.21.0"
OURS = Path(__file__).parent / "go" / "keda"
SCALERS = Path("pkg/scalers")
KEPT = ("scaler", "prometheus_scaler", "cron_scaler", "cpu_memory_scaler")
# Folders, and single files, of what is left out beside the scalers.
CLOUDS = ("aws", "azure", "gcp")
FILES = (
    "pkg/eventemitter/azure_event_grid_topic_handler.go",
    "pkg/metricscollector/opentelemetry.go",
    "pkg/scaling/resolver/aws_secretmanager_handler.go",
    "pkg/scaling/resolver/azure_keyvault_handler.go",
    "pkg/scaling/resolver/gcp_secretmanager_handler.go",
    "pkg/scaling/resolver/hashicorpvault_handler.go",
    "pkg/util/ginkgo_reporter.go",
)
BUILDER = "pkg/scaling/scalers_builder.go"
CONSTRUCTOR = re.compile(r"scalers\.(New\w+)\(")
NO_SCALERS = """\
package scalers

import "errors"

const externalMetricType = "External"

var errLeftOut = errors.New("this scaler is left out of the tests' build of KEDA")

"""


def programs() -> Path:
    """Return the folder of ``operator``, ``adapter`` and ``crds/``, built once."""
    sources = {str(file.relative_to(OURS)): file.read_bytes() for file in _files(OURS)}
    # What makes the overlay is part of what is built.
    return built_once("keda", {**sources, "overlay": Path(__file__).read_bytes()}, _build)


def _build(go: Go) -> Path:
    for name in ("go.mod", "go.sum"):
        (go.scratch / name).write_bytes((OURS / name).read_bytes())
    module = go.module(f"{MODULE}@{VERSION}")
    # Files in Go's module cache cannot be overlaid.
    for file in module.rglob("*.go"):
        if not file.name.endswith("_test.go"):
            copy = go.scratch / file.relative_to(module)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    overlay = go.scratch / "overlay.json"
    overlay.write_text(json.dumps({"Replace": _replaced(go.scratch)}))
    built = go.scratch / "built"
    (built / "crds").mkdir(parents=True)
    for name in ("operator", "adapter"):
        target = str(built / name)
        go.run("build", *FLAGS, "-overlay", str(overlay), "-o", target, f"./cmd/{name}")
    for file in (module / "config/crd/bases").glob("*.yaml"):
        (built / "crds" / file.name).write_bytes(file.read_bytes())
    return built


def _replaced(tree: Path) -> dict[str, str]:
    """Return each file of the tree that is replaced, and by which of ours ("": by none)."""
    scalers = [each for each in (tree / SCALERS).glob("*.go") if each.stem not in KEPT]
    clouds = [file for cloud in CLOUDS for file in (tree / SCALERS / cloud).glob("*.go")]
    gone = {str(file): "" for file in (*scalers, *clouds, *(tree / name for name in FILES))}
    ours = {str(tree / file.relative_to(OURS)): str(file) for file in _files(OURS / "pkg")}
    stubs = tree / "left_out_scalers"
    stubs.write_text(NO_SCALERS + "\n".join(_stubs(tree)))
    return {**gone, **ours, str(tree / SCALERS / "left_out.go"): str(stubs)}


def _stubs(tree: Path) -> list[str]:
    """Return a constructor that fails for each scaler that KEDA's builder knows and is left out."""
    known = sorted(set(CONSTRUCTOR.findall((tree / BUILDER).read_text())))
    kept = "".join((tree / SCALERS / f"{name}.go").read_text() for name in KEPT)
    return [
        f"func {name}(...any) (Scaler, error) {{ return nil, errLeftOut }}"
        for name in known
        if f"func {name}(" not in kept
    ]


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]
