"""The files that a report writes: patches."""

from pathlib import Path

import yaml

from podscale.cli.inputs import WrongInput, write
from podscale.cli.output import printable
from podscale.replay.fleet.patches import PatchForm, WorkloadPatch, file_name


def write_patches(folder: str, patches: list[WorkloadPatch], form: PatchForm) -> None:
    """Write one file for each patch, and for kustomize the list of them; raises ``WrongInput``."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise WrongInput(f"--patches {folder}: there are files already; say an empty folder")
    except OSError as error:
        raise WrongInput(f"--patches {folder}: {error.strerror}") from None
    names = []
    for number, patch in enumerate(patches, 1):
        names.append(file_name(number, patch))
        body = yaml.safe_dump(patch.body, sort_keys=False, allow_unicode=True)
        write(str(path / names[-1]), f"# {printable(patch.says)}\n{body}")
    if form == "kustomize":
        kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                "patches": [{"path": each} for each in names]}  # fmt: skip
        write(str(path / "kustomization.yaml"), yaml.safe_dump(kind, sort_keys=False))
