"""Writes what kustomize and Helm need as copies: neither may read outside of its directory.

``python -m tests.tools.deploy_copies`` renews them; ``tests/unit/deploy`` holds them equal.
"""

from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent.parent
MONITORING = ROOT / "config" / "monitoring"
CHART = ROOT / "deploy" / "helm" / "podscale"
PARTS = ("adapter", "hpa")


def prometheus_rules() -> str:
    """Return the PrometheusRules that hold the groups of the alert files."""
    documents = [
        {
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
            "spec": yaml.safe_load((MONITORING / f"{part}-alerts.yaml").read_text()),
        }
        for part in PARTS
    ]
    head = "# Written by `python -m tests.tools.deploy_copies` from the alert files beside it.\n"
    return head + yaml.safe_dump_all(documents, sort_keys=False, width=1000)


def copies() -> dict[Path, str]:
    """Return every copy: where it lies and what it holds."""
    found = {MONITORING / "prometheusrules.yaml": prometheus_rules()}
    for part in PARTS:
        for name in (f"{part}-alerts.yaml", f"{part}-dashboard.json"):
            found[CHART / "files" / name] = (MONITORING / name).read_text()
    found[CHART / "files" / "default-rules.yaml"] = _default_rules()
    crd = ROOT / "config" / "crds" / "podautoscaler.yaml"
    found[CHART / "files" / "podautoscaler.yaml"] = crd.read_text()
    return found


def _default_rules() -> str:
    # rules.default of prometheus-adapter's chart: the rules of its config-gen.
    from adapter.config_gen import default_yaml

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
