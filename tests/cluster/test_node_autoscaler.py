"""What cluster autoscaler would make of a pod, by two of its checks, reproduced.

Its module cannot be built here. The checks run the scheduler's own packages, as it does, in the
order of its source: pods that fit on a node that is there are dropped from the scale-up
(``filterOutSchedulable``), and the others bring a node if they fit on one made of a pool's
template, on which of all pods only those of DaemonSets, as in their templates, and mirror pods
are (``SanitizedTemplateNodeInfoFromNodeInfo``).
"""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import pytest
import yaml

from podscale.nodes.decide.ballast import NodeColumns, needed
from podscale.nodes.explain import explain
from tests.cluster.nodes_stack import ROOT
from tests.cluster.scheduler_executed import Json, execute, program
from tests.cluster.test_scheduler_executed import cluster_of
from tests.tools.programs import release
from tests.unit.nodes.explain.situations import node, pod

pytestmark = pytest.mark.timeout(1200)  # the first time, Go builds what executes

BALLAST = yaml.safe_load((ROOT / "deploy/kustomize/components/nodes/ballast.yaml").read_text())
CAPACITY, ALLOCATABLE, REQUESTED, USED = 10_000, 9_900, 2_000, 7_000  # thousandths of a core
THETA = 0.8
SIZES = range(250, 9_750, 250)


def ballast(milli: int) -> Json:
    """Return the ballast pod of the node that is hot, resized to so much CPU."""
    made = deepcopy(BALLAST["spec"]["template"])
    made["metadata"] |= {"name": "ballast", "namespace": "podscale-ballast", "ownerReferences": [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": BALLAST["metadata"]["name"],
         "uid": "1", "controller": True}
    ]}  # fmt: skip
    made["spec"]["nodeName"] = "hot"
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{milli}m"
    return made


def held() -> int:
    """Return what the node's load asks its ballast for."""
    sizes = [np.array([[cpu], [2.0**36]]) for cpu in (CAPACITY, ALLOCATABLE, USED, 0, REQUESTED)]
    columns = NodeColumns(*(np.asarray(each, np.float64) for each in sizes))
    return int(needed(columns, np.array([[THETA], [1.0]]))[0, 0])


def situation(pending: Json, *there: Json) -> Json:
    """Return the pod and the hot node, with what runs there."""
    amounts = {"cpu": f"{ALLOCATABLE}m", "memory": "64Gi", "pods": "110"}
    hot = node("hot")
    hot["status"] = {"capacity": amounts | {"cpu": f"{CAPACITY}m"}, "allocatable": amounts}
    pods = [each | {"metadata": each["metadata"] | {"uid": each["metadata"]["name"]}}
            for each in (pending, *there)]  # fmt: skip
    return {"pod": pods[0], "nodes": [hot], "pods": pods[1:], "claims": [], "volumes": [],
            "classes": [], "namespaces": []}  # fmt: skip


def on_template(asked: Json) -> Json:
    """Return the same pod and a new node like the one that is there."""
    kept = [deepcopy(each) for each in asked["pods"] if _is_of_every_node(each)]
    for each in kept:
        each["spec"]["containers"] = BALLAST["spec"]["template"]["spec"]["containers"]
    return asked | {"pods": kept}


def _is_of_every_node(found: Json) -> bool:
    owners = found["metadata"].get("ownerReferences", ())
    is_mirror = "kubernetes.io/config.mirror" in found["metadata"].get("annotations", {})
    return is_mirror or any(each["kind"] == "DaemonSet" for each in owners)


def fits(asked: Sequence[Json]) -> list[bool]:
    told = execute(program(release()), asked)
    assert not [each["failed"] for each in told if "failed" in each]
    return [each["nodes"]["hot"] is None for each in told]


def adds_a_node(asked: Sequence[Json]) -> list[bool]:
    """Return for which of these pods cluster autoscaler would add a node."""
    there, new = fits(asked), fits([on_template(each) for each in asked])
    return [not is_there and is_new for is_there, is_new in zip(there, new, strict=True)]


def pending(milli: int) -> Json:
    return pod("pending", f"{milli}m")


BASE = pod("base", f"{REQUESTED}m", at="hot")


def test_a_node_is_added_for_load_only_where_ballast_holds_the_node() -> None:
    held_by_load = [situation(pending(size), BASE, ballast(held())) for size in SIZES]
    bare = [situation(pending(size), BASE, ballast(1)) for size in SIZES]
    by_load = [USED + size > THETA * CAPACITY for size in SIZES]
    assert adds_a_node(held_by_load) == by_load
    assert adds_a_node(bare) == [REQUESTED + 1 + size > ALLOCATABLE for size in SIZES]
    # And so says ``podscale explain pod``.
    said = [explain(*cluster_of(each), now=0.0).autoscaler[0] for each in held_by_load]
    assert [each.startswith("adds a node") for each in said] == by_load
    print(f"cluster autoscaler's checks: {sum(by_load)} of {len(SIZES)} sizes of pods bring a "
          f"node with ballast of {held()}m, {sum(adds_a_node(bare))} without")  # fmt: skip


def test_a_new_node_is_as_large_as_its_template_says() -> None:
    # A pool whose only node is hot: what ballast holds there is nothing of a new one.
    whole = pending(ALLOCATABLE - 1)
    asked = situation(whole, BASE, ballast(held()))
    assert adds_a_node([asked]) == [True]
    bare = ballast(held())
    del bare["metadata"]["ownerReferences"]
    assert on_template(situation(whole, BASE, bare))["pods"] == []
    # One thousandth more fits on no node of the pool, because of the ballast pod's least.
    assert adds_a_node([situation(pending(ALLOCATABLE), BASE, ballast(held()))]) == [False]
