"""What people read and type: explain's text, its arguments, and hpa eval on files."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from podscale.cli.commands.explain import lines, print_explanation, print_list
from podscale.cli.entry import cli

HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics:
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}
"""
SEEN = """
scale: {replicas: 2, selector: app=web}
pods:
- {name: web-0, requests: {app: {cpu: 100m}}}
- {name: web-1, requests: {app: {cpu: 100m}}}
metrics:
- pods: {web-0: 100m, web-1: 100m}
"""


def test_eval_decides_once_from_two_files(tmp_path: Path) -> None:
    hpa, seen = tmp_path / "hpa.yaml", tmp_path / "seen.yaml"
    hpa.write_text(HPA)
    seen.write_text(SEEN)
    words = ["hpa", "eval", "-f", str(hpa), "--observation", str(seen)]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "shop/web → Deployment/web: 4 replicas" in shown.output
    assert "What would change it:" in shown.output
    assert "MetricAboveTarget" in shown.output
    as_json = CliRunner().invoke(cli, [*words, "-o", "json"])
    assert '"first_reason": "MetricAboveTarget"' in as_json.output


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        ("scale: {replicas: two}", "scale.replicas"),
        ("scale: {size: 2}", "unknown field"),
        ("scale: {replicas: 2}\nmetrics: [{}]", "needs pods, value, values or error"),
        ("scale: [", "the observation"),
    ],
)
def test_eval_names_the_field_that_is_wrong(tmp_path: Path, seen: str, words: str) -> None:
    hpa, file = tmp_path / "hpa.yaml", tmp_path / "seen.yaml"
    hpa.write_text(HPA)
    file.write_text(seen)
    shown = CliRunner().invoke(cli, ["hpa", "eval", "-f", str(hpa), "--observation", str(file)])
    assert shown.exit_code == 2
    assert words in shown.output


@pytest.mark.parametrize("what", ["web", "hpa/", "cronjob/web", "cronjobs"])
def test_explain_says_how_to_name_what_is_meant(what: str) -> None:
    shown = CliRunner().invoke(cli, ["explain", what])
    assert shown.exit_code == 2
    assert "KIND/NAME" in shown.output


def test_without_a_name_decisions_are_listed_as_kubectl_lists(capsys) -> None:
    body = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}},
        "status": {"replicas": 4, "first_reason": "MetricAboveTarget", "time": "now",
                   "why": "It is twice as much.", "sentences": ["It is so.", "It changes."]},
    }  # fmt: skip
    print_list([body], is_wide=True)
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "TARGET", "REPLICAS", "REASON", "TIME", "WHY"]
    assert line.split()[:5] == ["shop", "web", "Deployment/web", "4", "MetricAboveTarget"]
    assert line.endswith("It is twice as much.")
    print_list([], is_wide=False)
    assert "No decisions" in capsys.readouterr().err


HOSTILE = "\x1b]0;owned\x07\x9b2J\u202eload\nshop/api → Deployment/api: 9 replicas"


def test_what_the_cluster_says_cannot_command_the_terminal(capsys) -> None:
    body = {
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"scaleTargetRef": {"kind": HOSTILE, "name": "web"}},
        "status": {"replicas": 4, "first_reason": HOSTILE, "time": HOSTILE, "change": HOSTILE,
                   "also": [HOSTILE], "why": HOSTILE, "sentences": [f"Metric {HOSTILE} is 4."],
                   "conditions": [{"type": "X", "status": "True", "message": HOSTILE}]},
    }  # fmt: skip
    print_explanation(body)
    print_list([body], is_wide=True)
    shown = capsys.readouterr().out
    assert all(each.isprintable() for each in shown.replace("\n", ""))
    assert len(shown.splitlines()) == 7  # nothing forges a line of its own
    assert "\\x1b]0;owned\\x07\\x9b2J\\u202eload shop/api" in shown


@pytest.mark.parametrize(
    ("age_s", "told"),
    [(15.0, ""), (-3600.0, ""), (600.0, " (10 min ago)"), (10_800.0, " (3 h ago)")],
)
def test_a_decision_that_is_not_of_now_is_told_with_its_age(age_s: float, told: str) -> None:
    at = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)
    body = {
        "metadata": {"namespace": "shop", "name": "web"},
        "status": {"time": "2026-11-23T02:00:00Z", "first_reason": "WithinTolerance"},
    }
    (title, _) = lines(body, now=at.timestamp() + age_s)
    assert title == f"shop/web, 2026-11-23T02:00:00Z{told}"
