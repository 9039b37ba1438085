"""Whoever reads Prometheus may read MetricRules and knows the sources; who serves writes status."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.metric_rules.objects import CLUSTER_METRIC_RULES, METRIC_RULES
from tests.integration.deploy.charted import template
from tests.integration.deploy.rendered import ROOT, Manifest, granted, of_kind, rendered

pytestmark = pytest.mark.needs("helm", "kubectl")

RULES = [(each.group, each.plural) for each in (METRIC_RULES, CLUSTER_METRIC_RULES)]
READ = {(group, plural, "", verb) for group, plural in RULES for verb in ("list", "watch")}
WRITE = {(group, f"{plural}/status", "", "patch") for group, plural in RULES}
SERVERS = ("adapter", "serve", "run")


def readers(manifests: list[Manifest]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield command and pod of all that read Prometheus."""
    for each in of_kind(manifests, "Deployment"):
        pod = each["spec"]["template"]["spec"]
        words = pod["containers"][0]["args"]
        if any(word.startswith("--prometheus-url=") for word in words):
            yield words[0], pod


def check(manifests: list[Manifest], expected: set[str]) -> None:
    found = dict(readers(manifests))
    assert found.keys() == expected
    for command, pod in found.items():
        words = pod["containers"][0]["args"]
        [sources] = [each.partition("=")[2] for each in words if each.startswith("--sources=")]
        rights = granted(manifests, pod["serviceAccountName"])
        assert rights >= READ
        mounted = {each["mountPath"]: each["name"] for each in pod["containers"][0]["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["volumes"]}
        source = Path(sources)
        config = volumes[mounted[str(source.parent)]]["configMap"]["name"]
        assert any(
            source.name in each["data"]
            for each in of_kind(manifests, "ConfigMap")
            if each["metadata"]["name"] == config
        )
        if command in SERVERS:
            service = next(each for each in words if each.startswith("--service=")).split("/")[1]
            lease = ("coordination.k8s.io", "leases", f"{service}-rules")
            create = ("coordination.k8s.io", "leases", "", "create")
            assert rights >= {*WRITE, create, (*lease, "get"), (*lease, "update")}
        else:
            assert not rights & WRITE


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ([], {"adapter"}),
        (["hpa-replace"], {"adapter", "hpa"}),
        (["hpa-own"], {"adapter", "hpa"}),
        (["external", "resource", "serve-control"], {"serve", "control"}),
        (["external", "resource", "all-in-one"], {"run"}),
    ],
)
def test_with_any_composition_of_kustomize(
    tmp_path: Path, components: list[str], expected: set[str]
) -> None:
    folder = Path(os.path.relpath(ROOT / "deploy/kustomize", tmp_path))
    overlay = {
        "resources": [str(folder / "base")],
        "components": [str(folder / "components" / n) for n in (*components, "metric-rules")],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    check(rendered(str(tmp_path)), expected)


@pytest.mark.parametrize(
    ("source", "expected"), [("api", {"adapter"}), ("feed", {"adapter", "hpa"})]
)
def test_with_the_chart(tmp_path: Path, source: str, expected: set[str]) -> None:
    values = {
        "metricRules": {"enabled": True},
        "hpa": {"enabled": True, "metricsSource": source},
        "rules": {"resource": {"window": "3m"}},
    }
    check(template(tmp_path, values), expected)
