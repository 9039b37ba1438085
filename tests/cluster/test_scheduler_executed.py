"""Why a pod has no node, beside kube-scheduler's own filters called in process."""

import os
from collections import Counter

import msgspec
import pytest

from podscale.kube.client.wire import PartialObjectMetadata, decode
from podscale.kube.objects.cluster import Node
from podscale.nodes.explain import message
from podscale.nodes.scheduling.cluster_view import ClusterView, PodRefusal
from podscale.nodes.scheduling.objects import (
    PersistentVolume,
    ScheduledPod,
    StorageClass,
    VolumeClaim,
)
from podscale.nodes.scheduling.predicates import verdicts
from tests.cluster.scheduler_draws import question
from tests.cluster.scheduler_executed import Json, execute, program
from tests.tools.programs import OLDER, release

pytestmark = pytest.mark.timeout(1200)  # the first time, Go builds what executes

SHORT, LONG = 400, 2_000
_OF_RESIZES = ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources")

# Every filter that is followed has to be the first to refuse now and then.
FOLLOWED = {
    "NodeUnschedulable", "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit",
    "VolumeRestrictions", "VolumeBinding", "VolumeZone", "PodTopologySpread", "InterPodAffinity",
    "SchedulingGates",
}  # fmt: skip


def cluster_of(asked: Json) -> tuple[ScheduledPod, ClusterView]:
    """Return the pod and the cluster of a question as the product reads them."""
    wire = msgspec.json.encode

    def all_of(name: str, kind: type) -> tuple[Json, ...]:
        return tuple(decode(wire(each), kind) for each in asked[name])

    cluster = ClusterView(
        all_of("nodes", Node), all_of("pods", ScheduledPod), all_of("claims", VolumeClaim),
        all_of("volumes", PersistentVolume), all_of("classes", StorageClass),
        all_of("namespaces", PartialObjectMetadata),
    )  # fmt: skip
    return decode(wire(asked["pod"]), ScheduledPod), cluster


def ours(asked: Json) -> Json:
    """Return what explains the pod, in the form of what the original tells."""
    pod, cluster = cluster_of(asked)
    found = verdicts(pod, cluster)
    text = message(found, len(cluster.nodes))
    if isinstance(found, PodRefusal):
        refused = {"plugin": found.plugin, "messages": [found.message]}
        return {"refused": refused, "nodes": None, "message": text}
    nodes = {
        name: refusal and {"plugin": refusal.plugin, "messages": list(refusal.messages)}
        for name, refusal in found.items()
    }
    return without_order({"nodes": nodes, "message": text})


def without_order(told: Json) -> Json:
    """Return what was told: several resources come in the order of a map, and where a node has
    room nothing is written about the others."""
    nodes = (told["nodes"] or {}).values()
    for refusal in nodes:
        if refusal is not None:
            refusal["messages"].sort()
    if any(refusal is None for refusal in nodes):
        told["message"] = ""
    return told


def settled(asked: Json) -> None:
    """Take the resizes under way out of a question: 1.36 takes the larger size of each container,
    1.37 that of all containers of a pod, and ours is 1.37's."""
    for pod in asked["pods"]:
        for key in (
            "containerStatuses",
            "initContainerStatuses",
            "resources",
            "allocatedResources",
        ):
            pod.get("status", {}).pop(key, None)


def test_every_node_has_the_verdict_of_the_scheduler() -> None:
    count = SHORT if os.environ.get("PODSCALE_SHORT") else LONG
    start = int(os.environ.get("PODSCALE_SEED", "0"))
    asked = [question(seed) for seed in range(start, start + count)]
    if release() == OLDER:
        for each in asked:
            settled(each)
    differing, first, nodes = [], Counter[str](), 0
    for seed, (each, told) in enumerate(
        zip(asked, execute(program(release()), asked), strict=True)
    ):
        expected, got = without_order(told), ours(each)
        first.update(
            "none" if refusal is None else refusal["plugin"]
            for refusal in [told.get("refused"), *(told["nodes"] or {}).values()]
            if refusal is not None or told["nodes"]
        )
        nodes += len(told["nodes"] or ())
        if got != expected:
            differing.append(f"seed {start + seed}:\n  {expected}\n  {got}")
    print(
        f"{release()}: {count} clusters from seed {start}, {nodes} nodes, "
        f"{len(differing)} differ; first refusals {dict(first.most_common())}"
    )
    assert not differing, "\n".join(differing[:10])
    assert first.keys() >= FOLLOWED
