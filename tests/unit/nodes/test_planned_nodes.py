"""The DaemonSets of ballast, as a node autoscaler counts them on a node that it plans."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
import yaml

from podscale.kube.objects.cluster import Node
from podscale.nodes.scheduling.objects import ScheduledPod
from podscale.nodes.scheduling.requests import requests
from tests.integration.deploy.rendered import ROOT

COMPONENT = ROOT / "deploy/kustomize/components/nodes"
POOL = {"karpenter.sh/nodepool": "default", "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "zone-a"}  # fmt: skip
THERE = POOL | {"kubernetes.io/hostname": "node-0"}


def template(name: str) -> dict[str, Any]:
    found = yaml.safe_load((COMPONENT / f"{name}.yaml").read_text())
    spec: dict[str, Any] = found["spec"]["template"]["spec"]
    return spec


def pod(spec: Mapping[str, Any]) -> ScheduledPod:
    return msgspec.convert({"metadata": {"name": "ballast"}, "spec": spec}, ScheduledPod)


def node(labels: Mapping[str, str]) -> Node:
    return msgspec.convert({"metadata": {"name": "node-0", "labels": labels}}, Node)


@pytest.mark.parametrize(
    ("name", "labels", "is_counted"),
    [
        pytest.param("ballast", THERE, True, id="ballast-of-a-node"),
        pytest.param("ballast", POOL, False, id="no-ballast-of-a-planned-node"),
        pytest.param("ballast-planned", THERE, False, id="nothing-more-of-a-node"),
        pytest.param("ballast-planned", POOL, True, id="the-least-of-a-planned-node"),
    ],
)
def test_grown_ballast_counts_on_nodes_that_are_there_only(
    name: str, labels: Mapping[str, str], is_counted: bool
) -> None:
    assert pod(template(name)).wants(node(labels)) == is_counted


def test_no_node_bears_the_label_of_the_last_term() -> None:
    # Karpenter drops the terms that a planned node does not meet, up to the last one, and looks
    # for that on the nodes that are there: what the newest has grown to is not held back on them.
    affinity = template("ballast")["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    del terms[:-1]
    alone = {"affinity": {"nodeAffinity": affinity}}
    assert not pod(alone).wants(node(THERE))


def test_what_is_planned_is_what_comes() -> None:
    ballast, planned = template("ballast"), template("ballast-planned")
    assert requests(pod(planned)) == requests(pod(ballast))
    assert planned["tolerations"] == ballast["tolerations"]
    taint = msgspec.convert({"metadata": {"name": "node-0"}, "spec": {"taints": [
        {"key": "pool", "value": "gpu", "effect": "NoSchedule"}]}}, Node).spec.taints  # fmt: skip
    assert pod(planned).untolerated(taint) is None
