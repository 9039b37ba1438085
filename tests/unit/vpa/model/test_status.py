"""The status as it is written, and its conditions."""

from podscale.kube.objects.vpa import VpaStatus, decode
from tests.unit.vpa.model.worlds import NOW
from vpa.model.estimation.recommendation import (
    NodeShape,
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    recommend,
)
from vpa.model.estimation.status import conditions, node_caps, says_the_same, status_wire

LARGE = ResourceUsage((4.0, 5.0, 6.0), 7.0)
SMALL = ResourceUsage((0.1, 0.2, 0.3), 7.0)


def test_a_status_read_back_says_the_same() -> None:
    usages = [
        RecommendedUsage("app", {"cpu": SMALL, "memory": ResourceUsage((1e8, 2e8, 3e8), 7.0)})
    ]
    trace = recommend(usages, RecommenderSettings())
    found = conditions([], NOW, has_recommendation=True, pods_matched=True)
    wanted = status_wire(trace.recommendation, found, 3)
    assert says_the_same(decode(wanted, VpaStatus), wanted)
    assert not says_the_same(VpaStatus(), wanted)


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    first = conditions([], NOW, has_recommendation=False, pods_matched=True, no_samples=("app",))
    assert (first[0].reason, "app" in first[0].message) == ("NoSamples", True)
    later = conditions(first, NOW + 60, has_recommendation=False, pods_matched=True)
    assert later[0].last_transition_time == NOW
    turned = conditions(later, NOW + 120, has_recommendation=True, pods_matched=True)
    assert turned[0].last_transition_time == NOW + 120


def test_conditions_of_others_stay_and_are_sorted() -> None:
    other = decode({"conditions": [{"type": "Zeta", "status": "True"}]}, VpaStatus).conditions
    found = conditions(other or (), NOW, has_recommendation=False, pods_matched=False)
    assert [entry.type for entry in found] == ["NoPodsMatched", "RecommendationProvided", "Zeta"]


def test_a_pod_is_cut_as_a_whole_and_the_status_says_so() -> None:
    shape = NodeShape("4-core", 4000, 2**34, daemonsets_cpu_milli=300)
    usages = [RecommendedUsage("app", {"cpu": LARGE}), RecommendedUsage("side", {"cpu": LARGE})]
    trace = recommend(usages, RecommenderSettings(), shapes=[shape])
    entries = trace.recommendation.container_recommendations or ()
    assert sum((entry.target or {})["cpu"].milli for entry in entries) <= 3700
    assert all((entry.uncapped_target or {})["cpu"].milli == 5750 for entry in entries)
    assert len(node_caps(trace)) == 2
    assert "4-core" in node_caps(trace)[0]
