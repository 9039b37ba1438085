"""Pods with thousands of containers, and thousands of VPAs on one workload: all is linear."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import (
    EvictionRequirement,
    LimitRangeItem,
    Vpa,
    decode,
    resource_list,
)
from tests.pods import pod_of
from vpa.admission.patches.resources import container_resources
from vpa.capping import LimitRanges, cap_for_pod
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.recommender.pod_feed import from_last_state
from vpa.recommender.publishing.published import with_kept
from vpa.updater.decide.priority import UpdaterSettings, due, unmet

FEW, MANY = 100, 1_000  # policies of a VPA, at most
AMOUNTS = {"cpu": "250m", "memory": "200Mi"}


def pod_and_vpa(count: int) -> tuple[PodView, Vpa]:
    names = [f"c{number}" for number in range(count)]
    killed = {"reason": "OOMKilled", "finishedAt": "2026-03-02T00:00:00Z"}
    running: dict[str, Any] = {
        "phase": "Running",
        "containerStatuses": [
            {"name": n, "resources": {"requests": AMOUNTS}, "lastState": {"terminated": killed}}
            for n in names
        ],
    }
    known = [{"containerName": name, "target": AMOUNTS, "lowerBound": AMOUNTS} for name in names]
    pod = {"spec": {"containers": [{"name": name} for name in names]}, "status": running}
    policies = [{"containerName": name, "minAllowed": AMOUNTS} for name in names]
    vpa = {
        "metadata": {"name": "web"},
        "spec": {"resourcePolicy": {"containerPolicies": policies}},
        "status": {"recommendation": {"containerRecommendations": known}},
    }
    return pod_of(pod), decode(vpa, Vpa)


def capping(pod: PodView, vpa: Vpa) -> object:
    item = LimitRangeItem(max=resource_list({"cpu": "1000"}))
    return cap_for_pod(vpa, pod, LimitRanges(item, item))


def resources(pod: PodView, vpa: Vpa) -> object:
    policy, known = vpa.spec.resource_policy, vpa.status.recommendation
    return container_resources(pod, policy, known, None, include_unrecommended=True)


def priority(pod: PodView, vpa: Vpa) -> object:
    return due(pod, vpa, vpa.status.recommendation, UpdaterSettings(), 2e9)


def requirements(pod: PodView, vpa: Vpa) -> object:
    grows = EvictionRequirement(("cpu",), "TargetHigherThanRequests")
    return unmet(pod, vpa.status.recommendation, [grows])


def ooms(pod: PodView, vpa: Vpa) -> object:
    return from_last_state(pod)


def publishing(pod: PodView, vpa: Vpa) -> object:
    before = vpa.status.recommendation
    assert before is not None
    trace = RecommendationTrace(before, {}, (), 0)
    return with_kept(trace, before, vpa.spec.resource_policy, is_young=True)


@pytest.mark.parametrize("step", [capping, resources, priority, requirements, ooms, publishing])
def test_what_is_done_for_a_pod_is_linear_in_its_containers(
    step: Callable[[PodView, Vpa], object],
):
    def cost(count: int) -> float:
        taken = []
        for _ in range(3):
            pod, vpa = pod_and_vpa(count)
            begun = time.process_time()
            step(pod, vpa)
            taken.append(time.process_time() - begun)
        return min(taken) / count

    # Quadratic is ten times as much for a container; the collector of garbage adds a little.
    assert cost(MANY) < 4 * cost(FEW)
