"""Every metric that the alerts about the VPA name is one that its parts expose."""

import re
from importlib.resources import files

import yaml
from prometheus_client import CollectorRegistry, generate_latest

from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.updater.selfmetrics import UpdaterMetrics

_NAMES = re.compile(r"\b(?:podscale_vpa|vpa_recommender|vpa_updater)_[a-z_]+")


def test_every_metric_named_is_exposed_with_the_labels_that_are_asked_for() -> None:
    registry = CollectorRegistry()
    recommender, updater = RecommenderMetrics(registry), UpdaterMetrics(registry)
    with recommender.step("total"), updater.step("total"):
        recommender.answered(is_error=True, client="api")
    recommender.wrote("status", "error")
    updater.admission_invalid.labels("invalid").inc()
    lines = generate_latest(registry).decode().splitlines()
    groups = yaml.safe_load((files("config") / "monitoring" / "vpa-alerts.yaml").read_text())
    rules = [rule["expr"] for group in groups["groups"] for rule in group["rules"]]
    asked = [
        (name, re.findall(r'\w+="\w+"', expr.partition(f"{name}{{")[2].partition("}")[0]))
        for expr in rules
        for name in _NAMES.findall(expr)
    ]
    assert len({name for name, _ in asked}) == 5
    for name, labels in asked:
        found = [line for line in lines if re.match(rf"{name}[{{ ]", line)]
        assert [line for line in found if all(label in line for label in labels)], name
