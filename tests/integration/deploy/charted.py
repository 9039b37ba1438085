"""What the chart makes of values, rendered by the real helm."""

import json
import subprocess
from pathlib import Path

import yaml

from tests.integration.deploy.rendered import ROOT, Manifest
from tests.tools.required import require

CHART = ROOT / "deploy" / "helm" / "podscale"


def helm(tmp_path: Path, values: object, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `helm template` for the release `one` in the namespace `ns`."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    homes = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    return subprocess.run(
        [str(require("helm")), "template", "one", str(CHART), "--namespace=ns",
         f"--values={file}", *words],
        capture_output=True, text=True, check=False, env=homes,
    )  # fmt: skip


def template(tmp_path: Path, values: object) -> list[Manifest]:
    """Return the manifests of that release."""
    done = helm(tmp_path, values)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))
