"""Samples and policies as they should not be: none shrinks anything or stops anybody."""

import math

import numpy as np
import pytest

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from tests.unit.vpa.model.worlds import NOW, WEB, counts, usage, vpa, web
from vpa.model.amounts import Windows
from vpa.model.cluster import ClusterModel
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.membership import VpaKey

NAN = math.nan
DAY = 86400.0


def targets(cluster: ClusterModel, key: VpaKey = WEB) -> dict[str, int]:
    """Milli-cores and bytes of the first container; what is not recommended is absent."""
    reader = RecommendationReader(cluster)
    trace = reader.recommendation(reader.read(), key)
    entries = trace.recommendation.container_recommendations or ()
    target = (entries[0].target if entries else None) or {}
    units = {"cpu": lambda q: q.milli, "memory": lambda q: q.value}
    return {name: units[name](value) for name, value in target.items()}


def fed(cores: float = 0.2, memory: float = 3e8, hours: int = 24) -> ClusterModel:
    cluster = ClusterModel()
    web(cluster, "web-0")
    for minute in range(0, hours * 60, 5):
        cluster.take(usage(NOW + minute * 60.0, cores, memory))
    return cluster


def test_without_a_sample_nothing_is_recommended() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    assert targets(cluster) == {}


@pytest.mark.parametrize(
    ("cores", "memory", "present"),
    [(0.2, NAN, {"cpu"}), (NAN, 3e8, {"memory"}), (NAN, NAN, set())],
    ids=["cpu-only", "memory-only", "neither"],
)
def test_a_resource_that_is_not_measured_is_not_recommended(
    cores: float, memory: float, present: set[str]
) -> None:
    assert set(targets(fed(cores, memory))) == present


def test_memory_alone_has_finite_bounds() -> None:
    reader = RecommendationReader(fed(NAN, 3e8, hours=48))
    trace = reader.recommendation(reader.read(), WEB)
    (entry,) = trace.recommendation.container_recommendations or ()
    assert (entry.upper_bound or {})["memory"].value < 1e10


def test_a_measured_zero_is_a_sample_and_gives_the_least() -> None:
    # 25 m and 250 MiB are the smallest pod that there is (--pod-recommendation-min-*).
    assert targets(fed(0.0, 0.0)) == {"cpu": 25, "memory": 250 * 2**20}


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf, -1.0], ids=str)
def test_what_is_no_usage_changes_nothing(bad: float) -> None:
    cluster = fed()
    before = targets(cluster), counts(cluster)
    for minute in range(600):
        cluster.take(usage(NOW + DAY + minute * 60.0, bad, bad))
    assert (targets(cluster), counts(cluster)) == before


def test_a_container_that_occurs_twice_counts_once() -> None:
    cluster = ClusterModel()
    web(cluster, "web-0")
    twice = ContainerColumns(
        ["shop"] * 2, ["web-0"] * 2, ["app"] * 2,
        np.array([0.2, 9.0]), np.array([3e8, 9e9]), np.full(2, NOW), NOW,
    )  # fmt: skip
    cluster.take(twice)
    assert counts(cluster) == (1, 1)
    assert targets(cluster)["cpu"] == 247


def test_a_clock_that_goes_back_is_refused_and_one_that_jumps_ahead_harms_nothing() -> None:
    cluster = fed()
    before, taken = targets(cluster), counts(cluster)
    cluster.take(usage(NOW - DAY, 9.0, NAN))
    assert counts(cluster) == taken
    # An hour ahead once, and then right again: the right ones wait until they are newer.
    cluster.take(usage(NOW + DAY + 3600.0, 0.2, 3e8))
    for minute in range(120):
        cluster.take(usage(NOW + DAY + minute * 60.0, 0.2, 3e8))
    assert targets(cluster) == before


def test_containers_nobody_knows_are_not_guessed() -> None:
    cluster = fed()
    before = targets(cluster), counts(cluster)
    cluster.take(usage(NOW + DAY, 9.0, 9e9, pods=("stranger",)))
    assert (targets(cluster), counts(cluster)) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("oomBumpUpRatio", "much"),
        ("oomBumpUpRatio", "0.5"),
        ("oomMinBumpUp", "-1"),
        ("memoryAggregationIntervalSeconds", -5),
        ("memoryAggregationIntervalCount", 0),
    ],
)
def test_a_gated_field_that_cannot_be_used_is_told_and_the_flag_counts(
    field: str, value: object
) -> None:
    cluster = ClusterModel(per_vpa_config=True)
    broken = vpa("broken", resourcePolicy={"containerPolicies": [
        {"containerName": "*", field: value}]})  # fmt: skip
    entry = cluster.put_vpa(broken, selector.parse("app=broken"), NOW)
    cluster.put_pod("shop", "broken-0", {"app": "broken"}, ["app"], NOW)
    web(cluster, "web-0")
    cluster.take(usage(NOW, 0.2, 3e8, pods=("web-0",)))
    assert targets(cluster)["cpu"] == 247
    (mistake,) = entry.mistakes
    assert field in mistake.annotation
    assert cluster._windows(entry, "app") == Windows()
