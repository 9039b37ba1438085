"""What ``vpa_quality_*`` says about samples and recommendations."""

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest

from vpa.recommender.selfmetrics import Kind, Quality

ALL = ("Auto", "2")
KINDS = [Kind("Auto", 2), Kind("Off", 0)]


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"vpa_quality_{name}", labels)


def test_samples_are_compared_with_what_was_recommended() -> None:
    registry = CollectorRegistry()
    quality = Quality(registry)
    usage, recommended = np.array([0.5, 1.5, 2.0]), np.array([1.0, 1.0, 0.0])
    quality.observe("cpu", usage, recommended, np.array([0, 0, 1]), KINDS)
    auto = {"update_mode": "Auto", "is_oom": "false", "vpa_size_log2": "2"}
    assert value(registry, "cpu_recommendation_over_usage_diffs_cores_sum", **auto) == 0.5
    assert value(registry, "cpu_recommendation_lower_equal_usage_diffs_cores_sum", **auto) == 0.5
    assert value(registry, "cpu_recommendations_cores_count", **auto) == 2.0
    relative = {**auto, "resource": "cpu"}
    name = "usage_recommendation_relative_diffs"
    assert value(registry, f"{name}_count", **relative) == 2.0
    assert value(registry, f"{name}_bucket", le="-0.5", **relative) == 1.0
    assert value(registry, f"{name}_bucket", le="0.25", **relative) == 1.0
    assert value(registry, f"{name}_bucket", le="0.5", **relative) == 2.0
    missing = {"update_mode": "Off", "is_oom": "false", "vpa_size_log2": "0", "resource": "cpu"}
    assert value(registry, "usage_sample_missing_recommendation_count", **missing) == 1.0


def test_changes_count_where_there_was_a_recommendation_before() -> None:
    registry = CollectorRegistry()
    quality = Quality(registry)
    quality.changed("memory", np.array([1e9, 0.0]), np.array([1.5e9, 1e9]), np.array([0, 0]), KINDS)
    labels = {"update_mode": "Auto", "resource": "memory", "vpa_size_log2": "2"}
    assert value(registry, "relative_recommendation_changes_count", **labels) == 1.0
    assert value(registry, "relative_recommendation_changes_sum", **labels) == 0.5


def test_the_exposition_has_upstreams_names() -> None:
    registry = CollectorRegistry()
    quality = Quality(registry)
    one = np.array([1.0])
    for resource in ("cpu", "memory"):
        quality.observe(resource, one, one, np.array([0]), KINDS)
    text = generate_latest(registry).decode()
    for name in (
        "usage_recommendation_relative_diffs_bucket", "mem_recommendations_bytes_bucket",
        "mem_recommendation_lower_equal_usage_diffs_bytes_sum", "cpu_recommendations_cores_count",
    ):  # fmt: skip
        assert f"vpa_quality_{name}{{" in text
    assert "# TYPE vpa_quality_relative_recommendation_changes histogram" in text
    assert "# TYPE vpa_quality_usage_sample_missing_recommendation_count" in text
