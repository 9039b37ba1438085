"""Every metric that the alerts about the VPA name is one that its parts expose, and means it."""

import re
from importlib.resources import files

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from tests.unit.vpa.recommender.test_loop import recommender
from tests.unit.vpa.updater.test_loop import Webhook, updater
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.updater.selfmetrics import UpdaterMetrics

_NAMES = re.compile(r"\b(?:podscale_vpa|vpa_recommender|vpa_updater)_[a-z_]+")


def test_every_metric_named_is_exposed_with_the_labels_that_are_asked_for() -> None:
    registry = CollectorRegistry()
    recommender, updater = RecommenderMetrics(registry), UpdaterMetrics(registry)
    with recommender.step("GarbageCollect"), updater.step("EvictPods"):
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


def count_of(alert: str) -> tuple[str, dict[str, str]]:
    """Return the series whose standing still is told by ``alert``: its name and labels."""
    groups = yaml.safe_load((files("config") / "monitoring" / "vpa-alerts.yaml").read_text())
    [expr] = [
        r["expr"] for group in groups["groups"] for r in group["rules"] if r["alert"] == alert
    ]
    [(name, step)] = re.findall(r'(\w+)\{step="(\w+)"\}', expr)
    return name, {"step": step}


async def test_a_loop_counts_as_one_only_where_pods_had_their_turn() -> None:
    name, labels = count_of("PodscaleVpaUpdaterStopped")
    registry = CollectorRegistry()
    part = updater(Webhook(0.0), registry, 60.0)
    is_current = part._stores.is_current
    part._stores.is_current = lambda: False  # type: ignore[method-assign]
    await part.once()
    assert not registry.get_sample_value(name, labels)
    part._stores.is_current = is_current  # type: ignore[method-assign]
    await part.once()
    assert registry.get_sample_value(name, labels) == 1


async def test_a_pass_that_fails_does_not_count_as_ended() -> None:
    name, labels = count_of("PodscaleVpaRecommenderStopped")
    made = recommender(0)
    registry = CollectorRegistry()
    made._metrics = RecommenderMetrics(registry)

    async def fails() -> None:
        raise RuntimeError

    async def nothing(*_: object) -> None:
        pass

    made._load_metrics = fails  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        await made.once()
    assert not registry.get_sample_value(name, labels)
    made._load_metrics = made._update_vpas = nothing  # type: ignore[method-assign]
    await made.once()
    assert registry.get_sample_value(name, labels) == 1
