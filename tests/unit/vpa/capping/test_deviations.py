"""Where capping leaves upstream on purpose."""

from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import LimitRangeItem, Vpa, decode
from tests.pods import pod_of
from vpa.admission.patches.resources import ResourcesUnavailable, pod_resources
from vpa.capping import LimitRanges, cap_for_pod
from vpa.model.amounts import of, wire


def pod(*containers: tuple[str, str]) -> PodView:
    return pod_of(
        {
            "spec": {
                "containers": [
                    {
                        "name": name,
                        "resources": {"requests": {"memory": size}, "limits": {"memory": size}},
                    }
                    for name, size in containers
                ]
            }
        }
    )


def vpa(recommended: dict[str, str], off: tuple[str, ...] = ()) -> Vpa:
    return decode(
        {
            "spec": {
                "resourcePolicy": {
                    "containerPolicies": [{"containerName": n, "mode": "Off"} for n in off]
                }
            },
            "status": {
                "recommendation": {
                    "containerRecommendations": [
                        {
                            "containerName": name,
                            "target": {"memory": size} if size else {},
                            "lowerBound": {"memory": size} if size else {},
                            "upperBound": {"memory": size} if size else {},
                        }
                        for name, size in recommended.items()
                    ]
                }
            },
        },
        Vpa,
    )


def memory_sum(subject: PodView, of_vpa: Vpa, item: dict[str, dict[str, str]]) -> int:
    ranges = LimitRanges(pod=decode(item, LimitRangeItem))
    found = pod_resources(subject, of_vpa, ranges)
    assert not isinstance(found, ResourcesUnavailable)
    return sum(of(entry.limits, "memory").value for entry in found.containers)


def test_memory_reaches_the_minimum_of_a_pod() -> None:
    subject = pod(("a", "50M"), ("b", "50M"))
    total = memory_sum(subject, vpa({"a": "1Gi", "b": "2Gi"}), {"min": {"memory": "4Gi"}})
    assert total >= 4 * 2**30


def test_a_container_without_recommendation_takes_its_share_of_the_pod() -> None:
    subject = pod(("a", "100Mi"), ("b", "300Mi"))
    ranges = LimitRanges(pod=decode({"max": {"memory": "800Mi"}}, LimitRangeItem))
    capped = cap_for_pod(vpa({"a": "900Mi"}), subject, ranges).recommendation
    assert capped is not None
    entries = capped.container_recommendations or ()
    targets = {entry.container_name: wire(entry.target or {}) for entry in entries}
    assert targets == {"a": {"memory": "600Mi"}, "b": {"memory": "200Mi"}}
    assert [entry.upper_bound for entry in entries][1] is None, "no bound is invented"


def test_a_container_with_mode_off_counts_and_keeps_what_it_has() -> None:
    subject = pod(("a", "100Mi"), ("b", "300Mi"))
    ranges = LimitRanges(pod=decode({"max": {"memory": "800Mi"}}, LimitRangeItem))
    capped = cap_for_pod(vpa({"a": "900Mi", "b": "700Mi"}, off=("b",)), subject, ranges)
    assert capped.recommendation is not None
    entries = capped.recommendation.container_recommendations or ()
    assert [(e.container_name, wire(e.target or {})) for e in entries] == [
        ("a", {"memory": "600Mi"})
    ]


def test_a_container_of_which_nothing_is_controlled_counts_and_keeps_what_it_has() -> None:
    subject = pod(("a", "100Mi"), ("b", "300Mi"))
    ranges = LimitRanges(pod=decode({"max": {"memory": "800Mi"}}, LimitRangeItem))
    capped = cap_for_pod(vpa({"a": "900Mi", "b": ""}), subject, ranges).recommendation
    assert capped is not None
    entries = capped.container_recommendations or ()
    targets = {entry.container_name: wire(entry.target or {}) for entry in entries}
    assert targets == {"a": {"memory": "600Mi"}, "b": {}}
