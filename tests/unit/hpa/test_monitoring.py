"""Every metric that our alerts and dashboard name is one that the HPA exposes."""

import json
import re
from importlib.resources import files

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from hpa.decide.decision import Labels, MetricLabels
from hpa.selfmetrics import HpaMetrics

_NAMES = re.compile(r"\b(?:podscale_hpa|horizontal_pod_autoscaler_controller)_[a-z_]+")
MONITORING = files("config") / "monitoring"


def exposed() -> str:
    registry = CollectorRegistry()
    metrics = HpaMetrics()
    registry.register(metrics)
    metrics.passed(Labels("none", "none", (MetricLabels("Pods", "none", "none"),)), 0.01)
    metrics.decisions["WithinTolerance",] += 1
    metrics.writes["scale", "ok"] += 1
    for tally in (metrics.tick_lag, metrics.gap, metrics.data_age):
        tally.add((), 0.5)
    metrics.read.replicas = lambda: [("shop", "web", 3)]
    metrics.read.unsaved_s = lambda: 12.5
    metrics.read.unread_s = lambda: 75.0
    metrics.read.events_dropped = lambda: 7
    return generate_latest(registry).decode()


def names_in(expressions: list[str]) -> set[str]:
    return {name for each in expressions for name in _NAMES.findall(each)}


def test_the_exposition_has_upstreams_names_and_labels() -> None:
    text = exposed()
    prefix = "horizontal_pod_autoscaler_controller_"
    for name, labels, value in (
        (prefix + "reconciliations_total", 'action="none",error="none"', 1),
        (
            prefix + "metric_computation_total",
            'action="none",error="none",metric_type="Pods"',
            1,
        ),
        (prefix + "desired_replicas", 'hpa_name="web",namespace="shop"', 3),
        (
            prefix + "reconciliation_duration_seconds_bucket",
            'action="none",error="none",le="0.016"',
            1,
        ),
        ("podscale_hpa_decisions_total", 'reason="WithinTolerance"', 1),
    ):
        line = f"{name}{{{labels}}} {value}.0"
        assert line in text.splitlines()
    assert "podscale_hpa_history_unsaved_seconds 12.5" in text.splitlines()
    assert "podscale_hpa_history_unread_seconds 75.0" in text.splitlines()
    assert "podscale_hpa_events_dropped_total 7.0" in text.splitlines()


@pytest.mark.parametrize("kind", ["alerts", "dashboard"])
def test_every_metric_named_is_exposed(kind: str) -> None:
    if kind == "alerts":
        groups = yaml.safe_load((MONITORING / "hpa-alerts.yaml").read_text())["groups"]
        expressions = [rule["expr"] for group in groups for rule in group["rules"]]
    else:
        board = json.loads((MONITORING / "hpa-dashboard.json").read_text())
        expressions = [t["expr"] for panel in board["panels"] for t in panel["targets"]]
        expressions += [v["query"] for v in board["templating"]["list"]]
    named = names_in(expressions)
    assert len(named) >= 6
    series = {line.partition("{")[0].partition(" ")[0] for line in exposed().splitlines()}
    assert named <= series
