"""What `kubectl apply -k` would send, read by the real kubectl."""

import functools
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent.parent
OVERLAYS = tuple(sorted(path.name for path in (ROOT / "deploy/kustomize/overlays").iterdir()))
Manifest = Mapping[str, Any]
Grant = tuple[str, str, str, str]  # group, resource, name or "", verb
DECISIONS = frozenset({"hpa.podscale.io", "vpa.podscale.io"})


def kustomization(name: str) -> Path:
    """Return the directory of ``base`` or of an overlay."""
    folder = ROOT / "deploy" / "kustomize"
    return folder / "base" if name == "base" else folder / "overlays" / name


@functools.cache
def rendered(name: str) -> list[Manifest]:
    """Return the manifests of ``base`` or of an overlay, which nobody changes."""
    return _rendered(kustomization(name))


def extended(directory: Path, name: str, *components: str) -> list[Manifest]:
    """Return the manifests of an overlay with components on it, put together in ``directory``."""

    def relative(path: Path) -> str:
        return os.path.relpath(path, directory.resolve())

    written = {
        "resources": [relative(kustomization(name))],
        "components": [relative(ROOT / "deploy/kustomize/components" / each)
                       for each in components],
    }  # fmt: skip
    (directory / "kustomization.yaml").write_text(yaml.safe_dump(written))
    return _rendered(directory)


def _rendered(directory: Path) -> list[Manifest]:
    done = subprocess.run(
        [str(require("kubectl")), "kustomize", str(directory)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    return [each for each in manifests if each["kind"] in kinds]


def granted(manifests: list[Manifest], account: str) -> set[Grant]:
    """Return what the roles that an account is bound to allow."""
    roles = {
        (each["kind"], each["metadata"]["name"]): each["rules"]
        for each in of_kind(manifests, "Role", "ClusterRole")
    }
    return {
        (group, resource, name, verb)
        for binding in of_kind(manifests, "RoleBinding", "ClusterRoleBinding")
        if account in {each["name"] for each in binding["subjects"]}
        for rule in roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]), ())
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def verbs_on_decisions(manifests: list[Manifest]) -> dict[str, tuple[str, ...]]:
    """Return what the role ``view`` may do with decisions, by API group."""
    return {
        group: tuple(rule["verbs"])
        for role in of_kind(manifests, "ClusterRole")
        if "rbac.authorization.k8s.io/aggregate-to-view" in role["metadata"].get("labels", {})
        for rule in role["rules"]
        for group in rule["apiGroups"]
        if group in DECISIONS
    }


def containers(manifests: list[Manifest]) -> Iterator[Mapping[str, Any]]:
    """Yield the containers of all Deployments."""
    for each in of_kind(manifests, "Deployment"):
        yield from each["spec"]["template"]["spec"]["containers"]


def servers(manifests: list[Manifest]) -> Iterator[Mapping[str, Any]]:
    """Yield those that serve something: all but the watchdog."""
    return (each for each in containers(manifests) if each["args"][:2] != ["nodes", "watchdog"])
