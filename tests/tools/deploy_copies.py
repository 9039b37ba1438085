"""Writes what kustomize and Helm need as copies: neither may read outside of its directory.

``python -m tests.tools.deploy_copies`` renews them; ``tests/unit/deploy`` holds them equal.
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
MONITORING = ROOT / "config" / "monitoring"
CHART = ROOT / "deploy" / "helm" / "podscale"
PARTS = ("adapter", "hpa")


def prometheus_rule(part: str) -> str:
    """Return the PrometheusRule that holds the groups of a part's alert file."""
    source = MONITORING / f"{part}-alerts.yaml"
    document = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": f"podscale-{part}",
            "namespace": "podscale",
            "labels": {
                "app.kubernetes.io/name": "podscale",
                "app.kubernetes.io/component": part,
            },
        },
        "spec": yaml.safe_load(source.read_text()),
    }
    head = f"# Written by `python -m tests.tools.deploy_copies` from {source.name}.\n"
    return head + yaml.safe_dump(document, sort_keys=False, width=1000)


def copies() -> dict[Path, str]:
    """Return every copy: where it lies and what it holds."""
    found = {
        MONITORING / "prometheusrule.yaml": prometheus_rule("adapter"),
        MONITORING / "hpa" / "prometheusrule.yaml": prometheus_rule("hpa"),
    }
    for part in ("vpa", "nodes"):
        found[MONITORING / part / "prometheusrule.yaml"] = prometheus_rule(part)
        alerts = f"{part}-alerts.yaml"
        found[CHART / "files" / alerts] = (MONITORING / alerts).read_text()
    for part in PARTS:
        for name in (f"{part}-alerts.yaml", f"{part}-dashboard.json"):
            found[CHART / "files" / name] = (MONITORING / name).read_text()
    found[CHART / "files" / "default-rules.yaml"] = _default_rules()
    crd = ROOT / "config" / "crds" / "podautoscaler.yaml"
    found[CHART / "files" / "podautoscaler.yaml"] = _kept(crd.read_text())
    crd = ROOT / "config" / "crds" / "vpa" / "vpa.yaml"
    found[CHART / "files" / "vpa-crds.yaml"] = _kept(crd.read_text())
    crd = ROOT / "config" / "crds" / "metric-rules" / "metricrules.yaml"
    found[CHART / "files" / "metricrules.yaml"] = _kept(crd.read_text())
    manifests = {"vpa": "recommender|updater|admission|vpa", "page": "page"}
    manifests["accounts"] = "nodes|updater|control|policy"
    manifests |= dict.fromkeys(("nodes", "nodes-taint", "nodes-room", "nodes-headroom"), "nodes")
    for part, names in manifests.items():
        found[CHART / "files" / f"{part}.yaml"] = _manifests(part, names)
    return found


def _kept(crds: str) -> str:
    # With a CRD all its objects go. Uninstalling, or another mode, must not take the users' away.
    keep = "  annotations:\n    helm.sh/resource-policy: keep\n"
    if "\n  annotations:\n" in crds:
        return crds.replace("\n  annotations:\n", f"\n{keep}")
    return crds.replace("\nspec:\n", f"\n{keep}spec:\n")


def _manifests(part: str, names: str) -> str:
    # The chart's release has a name and a namespace of its own, put in place of these words.
    folders = (ROOT / "deploy/kustomize/components" / part, ROOT / "config/rbac" / part)
    files = [
        path
        for folder in folders
        for path in sorted(folder.glob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]
    text = "\n---\n".join(path.read_text().strip() for path in files)
    text = text.replace("podscale/podscale-", "@NAMESPACE@/@NAME@-")
    text = text.replace("accounts-podscale", "accounts-@NAMESPACE@")
    text = text.replace("serviceaccount:podscale:podscale", "serviceaccount:@NAMESPACE@:@NAME@")
    text = text.replace("serviceaccounts:podscale", "serviceaccounts:@NAMESPACE@")
    text = re.sub(r"namespace: podscale$", "namespace: @NAMESPACE@", text, flags=re.MULTILINE)
    text = text.replace("name: podscale\n", "name: @CHART@\n")
    text = text.replace("--lease-namespace=podscale]", "--lease-namespace=@NAMESPACE@]")
    text = re.sub(rf"\bpodscale-(?={names})", "@NAME@-", text)
    head = "# Written by `python -m tests.tools.deploy_copies` from the manifests of kustomize.\n"
    return f"{head}{text}\n"


def _default_rules() -> str:
    # rules.default of prometheus-adapter's chart: the rules of its config-gen.
    from adapter.rules.config_gen import default_yaml

    text = default_yaml("5m", "")
    rules = {"rules": yaml.safe_load(text)["rules"]}
    head = "# Written by `python -m tests.tools.deploy_copies` from `podscale config-gen`.\n"
    return head + yaml.safe_dump(rules, sort_keys=False, width=1000)


def main() -> None:
    """Write the copies."""
    for path, text in copies().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
