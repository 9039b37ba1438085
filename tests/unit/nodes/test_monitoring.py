"""Every metric that the alerts about nodes name is one that the part exposes."""

import re
from importlib.resources import files

import yaml
from prometheus_client import CollectorRegistry, generate_latest

from podscale.nodes.decide.ballast import Reason
from podscale.nodes.selfmetrics import NodesMetrics


def test_every_metric_named_is_exposed_with_the_labels_that_are_asked_for() -> None:
    registry = CollectorRegistry()
    metrics = NodesMetrics(registry)
    for reason in Reason:
        metrics.reasons.labels(reason.token)
    metrics.rounds.labels("decided")
    metrics.headroom_rounds.labels("failed")
    lines = generate_latest(registry).decode().splitlines()
    groups = yaml.safe_load((files("config") / "monitoring" / "nodes-alerts.yaml").read_text())
    asked = [
        found
        for group in groups["groups"]
        for rule in group["rules"]
        for found in re.findall(r'podscale_nodes_\w+\{\w+="\w+"\}', rule["expr"])
    ]
    assert len(set(asked)) == len(groups["groups"][0]["rules"])
    for each in asked:
        assert [line for line in lines if line.startswith(each)], each
