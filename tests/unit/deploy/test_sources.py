"""What deploy/ holds, as far as it needs neither kubectl nor helm to be read."""

import json
from typing import Any

import yaml

from adapter.rules import config_gen
from tests.integration.deploy.charted import CHART
from tests.integration.deploy.rendered import OVERLAYS, ROOT
from tests.tools.deploy_copies import copies


def test_copies_for_kustomize_and_helm_are_those_of_their_sources() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in copies().items()
        if not path.exists() or path.read_text() != text
    ]
    assert stale == [], "run: python -m tests.tools.deploy_copies"


def test_the_charts_default_rules_are_those_of_config_gen() -> None:
    text = (ROOT / "deploy/helm/podscale/files/default-rules.yaml").read_text()
    assert yaml.safe_load(text)["rules"] == yaml.safe_load(config_gen.default_yaml())["rules"]
    assert len(yaml.safe_load(text)["rules"]) == 6


def test_another_releases_policy_is_no_reason_to_leave_ours_out() -> None:
    lines = (CHART / "templates/_manifests.tpl").read_text().splitlines()
    (place,) = (number for number, line in enumerate(lines) if ":= lookup " in line)
    conditions = [line for line in lines[:place] if line.startswith("{{- if ")]
    assert conditions[-1] == '{{- if eq $each.kind "MutatingWebhookConfiguration" }}'


def test_every_overlay_of_the_issue_is_there() -> None:
    assert {
        "external", "resource", "monitoring", "hpa-replace", "hpa-shadow", "hpa-own", "ha",
        "cert-manager", "vpa", "nodes", "nodes-full", "all-in-one", "serve-control",
    } <= set(OVERLAYS)  # fmt: skip


def test_every_value_has_a_schema_and_a_comment_or_a_telling_name() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def unknown(found: Any, described: Any, path: str) -> list[str]:
        properties = described.get("properties")
        if not isinstance(found, dict) or properties is None:
            return []
        return [
            each
            for key, value in found.items()
            for each in (
                unknown(value, properties[key], f"{path}/{key}")
                if key in properties
                else [f"{path}/{key}"]
            )
        ]

    assert unknown(values, schema, "") == []
