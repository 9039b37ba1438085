"""What the reason PodMinimum names: the pod's minimum, and how many containers share it."""

import pytest

from podscale.kube.objects.vpa import Vpa, decode
from vpa.explain.recommendation import AmountQuestion, MeasuredBasis, TargetState, explain_amount
from vpa.model.estimation.recommendation import (
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    recommend,
)

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


@pytest.mark.parametrize(("containers", "cpu", "memory"), [
    (1, 25, 262144000), (2, 12, 131072000), (3, 8, 87381333),
])  # fmt: skip
def test_the_minimum_is_the_pods_and_the_amount_is_the_containers_share(containers, cpu, memory):
    idle = ResourceUsage((0.001, 0.001, 0.001), 10.0)
    usages = [
        RecommendedUsage(f"c{place}", {"cpu": idle, "memory": idle}) for place in range(containers)
    ]
    trace = recommend(usages, RecommenderSettings())
    vpa = decode({"metadata": {"name": "web"}, "spec": {"targetRef": TARGET}}, Vpa)
    for resource, share, least in (("cpu", cpu, 25), ("memory", memory, 262144000)):
        found = explain_amount(
            AmountQuestion("c0", resource, "target"), vpa, target=TargetState(found=True),
            recommender="default", pods_matched=True, trace=trace, measured=MeasuredBasis(),
        )  # fmt: skip
        assert found.first_reason == "PodMinimum"
        assert found.decision["amount"] == share
        assert (found.facts["minimum"], found.facts["containers"]) == (least, containers)
