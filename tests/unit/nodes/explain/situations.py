"""Situations of a pod without a node: what there is, and the reason that must come first.

The messages are those of the scheduler's plugins, Kubernetes 1.37, read in its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
AFFINITY = "node(s) didn't match Pod's node affinity/selector"
TAINT = "node(s) had untolerated taint(s)"
SPREAD = "node(s) didn't match pod topology spread constraints"


@dataclass(frozen=True)
class Situation:
    """A pod, what it meets, and what is said first."""

    name: str
    pod: Object
    nodes: Sequence[Object]
    reason: str  # the plugin; "Fits"
    message: str  # without "0/N nodes are available: "
    pods: Sequence[Object] = ()
    others: Sequence[Object] = field(default=())  # claims, volumes, classes


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str = "110",
    labels: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    return {
        "metadata": {"name": name, "labels": all_labels},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Object:
    return {"key": key, "value": value, "effect": effect}


def pod(
    name: str = "web",
    cpu: str = "100m",
    *,
    at: str = "",
    labels: Mapping[str, str] | None = None,
    ports: Sequence[Object] = (),
    requests: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    wanted = {"cpu": cpu, **(requests or {})} if cpu else dict(requests or {})
    # Extended resources cannot be had beyond their limit, so the API server wants one.
    limits = {key: amount for key, amount in wanted.items() if "/" in key}
    resources = {"requests": wanted, "limits": limits}
    container = {"name": "app", "image": "pretend", "resources": resources, "ports": list(ports)}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {})},
        "spec": {
            "containers": [container], "terminationGracePeriodSeconds": 0, **spec,
            **({"nodeName": at} if at else {}),
        },
    }  # fmt: skip


def wants(*terms: Object) -> Object:
    """Return a required node affinity."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def label(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator: str, *values: str) -> Object:
    expression = {"key": "metadata.name", "operator": operator, "values": list(values)}
    return {"matchFields": [expression]}


def by_pods(kind: str, app: str, key: str = "kubernetes.io/hostname", **more: Any) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def spread(key: str = "zone", skew: int = 1, **more: Any) -> Object:
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}}, **more}  # fmt: skip


def claim(name: str, volume: str = "", storage_class: str = "") -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": storage_class, "volumeName": volume}  # fmt: skip
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}  # fmt: skip


def volume_of(claimed: str) -> Object:
    return {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}


A, B, C = node("a"), node("b"), node("c")
WEB = {"app": "web"}
ZONES = [node(name, labels={"zone": zone}) for name, zone in (("a", "x"), ("b", "x"), ("c", "y"))]
GONE = "node.kubernetes.io/unschedulable"
PORT = {"containerPort": 80, "hostPort": 8080}

SITUATIONS: Sequence[Situation] = (
    Situation("cpu", pod(cpu="5"), [A, B], "NodeResourcesFit", "2 Insufficient cpu"),
    Situation("memory", pod(requests={"memory": "9Gi"}), [A], "NodeResourcesFit",
              "1 Insufficient memory"),
    Situation("cpu-and-memory-on-one-node", pod(cpu="5", requests={"memory": "9Gi"}), [A],
              "NodeResourcesFit", "1 Insufficient cpu, 1 Insufficient memory"),
    Situation("cpu-taken-by-others", pod(cpu="2"), [A], "NodeResourcesFit", "1 Insufficient cpu",
              [pod("one", "1500m", at="a"), pod("two", "1", at="a")]),
    Situation("what-is-left-exactly-fits", pod(cpu="1500m"), [A], "Fits", "",
              [pod("one", "2500m", at="a")]),
    Situation("cpu-taken-by-ballast", pod(cpu="2"), [A], "NodeResourcesFit", "1 Insufficient cpu",
              [pod("ballast", "3", at="a", labels={"app.kubernetes.io/component": "ballast"})]),
    Situation("an-extended-resource", pod(requests={"example.com/gpu": "2"}),
              [node("a", more={"example.com/gpu": "1"}), B], "NodeResourcesFit",
              "2 Insufficient example.com/gpu"),
    Situation("ephemeral-storage", pod(requests={"ephemeral-storage": "10Gi"}),
              [node("a", more={"ephemeral-storage": "5Gi"})], "NodeResourcesFit",
              "1 Insufficient ephemeral-storage"),
    Situation("too-many-pods", pod(), [node("a", pods="1")], "NodeResourcesFit", "1 Too many pods",
              [pod("one", at="a")]),
    Situation("too-many-pods-though-nothing-is-requested", pod(cpu=""), [node("a", pods="1")],
              "NodeResourcesFit", "1 Too many pods", [pod("one", at="a")]),
    Situation("an-init-container-that-needs-more", pod(initContainers=[
        {"name": "init", "image": "pretend", "resources": {"requests": {"cpu": "5"}}}]),
        [A], "NodeResourcesFit", "1 Insufficient cpu"),
    Situation("sidecars-beside-the-containers", pod(cpu="2", initContainers=[
        {"name": "side", "image": "pretend", "restartPolicy": "Always",
         "resources": {"requests": {"cpu": "3"}}}]), [A], "NodeResourcesFit",
        "1 Insufficient cpu"),
    Situation("sidecars-before-an-init-container", pod(cpu="1", initContainers=[
        {"name": "side", "image": "pretend", "restartPolicy": "Always",
         "resources": {"requests": {"cpu": "2"}}},
        {"name": "init", "image": "pretend", "resources": {"requests": {"cpu": "2500m"}}}]),
        [A], "NodeResourcesFit", "1 Insufficient cpu"),
    Situation("cordoned", pod(), [node("a", unschedulable=True)], "NodeUnschedulable",
              "1 node(s) were unschedulable"),
    Situation("cordoned-and-tolerated", pod(tolerations=[
        {"key": GONE, "operator": "Exists", "effect": "NoSchedule"}]),
        [node("a", unschedulable=True)], "Fits", ""),
    Situation("a-taint", pod(), [node("a", taints=[taint("dedicated", value="gpu")])],
              "TaintToleration", f"1 {TAINT}"),
    Situation("a-taint-that-executes", pod(), [node("a", taints=[taint("gone", "NoExecute")])],
              "TaintToleration", f"1 {TAINT}"),
    Situation("a-taint-that-only-prefers", pod(),
              [node("a", taints=[taint("slow", "PreferNoSchedule")])], "Fits", ""),
    Situation("a-toleration-of-another-value", pod(tolerations=[
        {"key": "dedicated", "operator": "Equal", "value": "web", "effect": "NoSchedule"}]),
        [node("a", taints=[taint("dedicated", value="gpu")])], "TaintToleration", f"1 {TAINT}"),
    Situation("a-toleration-of-another-effect", pod(tolerations=[
        {"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}]),
        [node("a", taints=[taint("dedicated")])], "TaintToleration", f"1 {TAINT}"),
    Situation("a-toleration-of-everything", pod(tolerations=[{"operator": "Exists"}]),
              [node("a", taints=[taint("dedicated"), taint("gone", "NoExecute")])], "Fits", ""),
    Situation("two-taints-of-which-one-is-tolerated", pod(tolerations=[
        {"key": "dedicated", "operator": "Exists"}]),
        [node("a", taints=[taint("dedicated"), taint("other")])], "TaintToleration",
        f"1 {TAINT}"),
    Situation("a-node-selector", pod(nodeSelector={"disk": "ssd"}), [A, node(
        "b", labels={"disk": "hdd"})], "NodeAffinity", f"2 {AFFINITY}"),
    Situation("an-affinity-in", pod(affinity=wants(label("disk", "In", "ssd", "nvme"))),
              [A, node("b", labels={"disk": "hdd"})], "NodeAffinity", f"2 {AFFINITY}"),
    Situation("an-affinity-not-in-holds-without-the-label",
              pod(affinity=wants(label("disk", "NotIn", "hdd"))), [A], "Fits", ""),
    Situation("an-affinity-exists", pod(affinity=wants(label("disk", "Exists"))), [A],
              "NodeAffinity", f"1 {AFFINITY}"),
    Situation("an-affinity-does-not-exist", pod(affinity=wants(label("disk", "DoesNotExist"))),
              [node("a", labels={"disk": "ssd"})], "NodeAffinity", f"1 {AFFINITY}"),
    Situation("an-affinity-greater-than", pod(affinity=wants(label("gen", "Gt", "5"))),
              [node("a", labels={"gen": "5"}), node("b", labels={"gen": "old"}), C],
              "NodeAffinity", f"3 {AFFINITY}"),
    Situation("one-of-two-terms-holds", pod(affinity=wants(
        label("disk", "In", "ssd"), label("gen", "Lt", "9"))),
        [node("a", labels={"gen": "8"})], "Fits", ""),
    Situation("selector-and-affinity-both-have-to-hold", pod(
        nodeSelector={"disk": "ssd"}, affinity=wants(label("gen", "In", "9"))),
        [node("a", labels={"disk": "ssd"}), node("b", labels={"gen": "9"})], "NodeAffinity",
        f"2 {AFFINITY}"),
    Situation("a-node-by-name-that-is-full", pod(cpu="5", affinity=wants(named("In", "b"))),
              [A, B, C], "NodeAffinity",
              "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]"),
    Situation("a-node-by-a-name-that-is-not", pod(affinity=wants(named("NotIn", "a"))), [A],
              "NodeAffinity", f"1 {AFFINITY}"),
    Situation("a-port-that-is-taken", pod(ports=[PORT]), [A], "NodePorts",
              "1 node(s) didn't have free ports for the requested pod ports",
              [pod("one", at="a", ports=[PORT])]),
    Situation("a-port-on-another-address", pod(ports=[{**PORT, "hostIP": "127.0.0.1"}]), [A],
              "Fits", "", [pod("one", at="a", ports=[{**PORT, "hostIP": "127.0.0.2"}])]),
    Situation("a-port-on-every-address", pod(ports=[PORT]), [A], "NodePorts",
              "1 node(s) didn't have free ports for the requested pod ports",
              [pod("one", at="a", ports=[{**PORT, "hostIP": "127.0.0.2"}])]),
    Situation("a-port-of-another-protocol", pod(ports=[{**PORT, "protocol": "UDP"}]), [A], "Fits",
              "", [pod("one", at="a", ports=[PORT])]),
    Situation("spread-over-zones", pod(labels=WEB, cpu="2", topologySpreadConstraints=[spread()]),
              [*ZONES[:2], node("c", labels={"zone": "y"}, cpu="1")], "PodTopologySpread",
              f"1 Insufficient cpu, 2 {SPREAD}", [pod("one", at="a", labels=WEB)]),
    Situation("spread-without-the-label", pod(labels=WEB, topologySpreadConstraints=[
        spread("rack")]), [A], "PodTopologySpread", f"1 {SPREAD} (missing required label)"),
    Situation("spread-with-more-domains-than-there-are", pod(
        labels=WEB, topologySpreadConstraints=[spread(minDomains=3)]), ZONES,
        "PodTopologySpread", f"3 {SPREAD}",
        [pod("one", at="a", labels=WEB), pod("two", at="c", labels=WEB)]),
    Situation("spread-that-only-prefers", pod(labels=WEB, topologySpreadConstraints=[
        {**spread(), "whenUnsatisfiable": "ScheduleAnyway"}]), ZONES, "Fits", "",
        [pod("one", at="a", labels=WEB)]),
    Situation("spread-over-nodes-that-are-wanted", pod(
        labels=WEB, nodeSelector={"zone": "x"}, topologySpreadConstraints=[spread()]), ZONES,
        "Fits", "", [pod("one", at="a", labels=WEB)]),
    Situation("spread-over-tainted-nodes-too", pod(
        labels=WEB, topologySpreadConstraints=[spread()]),
        [ZONES[0], node("c", labels={"zone": "y"}, taints=[taint("dedicated")])],
        "TaintToleration", f"1 {SPREAD}, 1 {TAINT}", [pod("one", at="a", labels=WEB)]),
    Situation("spread-over-untainted-nodes-only", pod(labels=WEB, topologySpreadConstraints=[
        spread(nodeTaintsPolicy="Honor")]),
        [ZONES[0], node("c", labels={"zone": "y"}, taints=[taint("dedicated")])], "Fits", "",
        [pod("one", at="a", labels=WEB)]),
    Situation("near-a-pod-that-is-not-there", pod(affinity=by_pods("podAffinity", "db")), [A],
              "InterPodAffinity", "1 node(s) didn't match pod affinity rules"),
    Situation("near-a-pod-of-the-zone", pod(cpu="1", affinity=by_pods("podAffinity", "db", "zone")),
              ZONES, "Fits", "", [pod("db", at="a", labels={"app": "db"})]),
    Situation("near-its-own-kind-as-the-first", pod(
        labels=WEB, affinity=by_pods("podAffinity", "web")), [A], "Fits", ""),
    Situation("near-pods-of-another-namespace", pod(affinity=by_pods(
        "podAffinity", "db", namespaces=["kube-system"])), [A], "InterPodAffinity",
        "1 node(s) didn't match pod affinity rules", [pod("db", at="a", labels={"app": "db"})]),
    Situation("away-from-a-pod", pod(affinity=by_pods("podAntiAffinity", "db")), [A],
              "InterPodAffinity", "1 node(s) didn't match pod anti-affinity rules",
              [pod("db", at="a", labels={"app": "db"})]),
    Situation("away-from-a-zone", pod(affinity=by_pods("podAntiAffinity", "db", "zone")), ZONES,
              "InterPodAffinity", "3 node(s) didn't match pod anti-affinity rules",
              [pod("d1", at="b", labels={"app": "db"}), pod("d2", at="c", labels={"app": "db"})]),
    Situation("kept-away-by-who-is-there", pod(labels=WEB), [A], "InterPodAffinity",
              "1 node(s) didn't satisfy existing pods anti-affinity rules",
              [pod("shy", at="a", affinity=by_pods("podAntiAffinity", "web"))]),
    Situation("a-claim-that-is-not-there", pod(volumes=[volume_of("data")]), [A, B],
              "VolumeRestrictions", 'persistentvolumeclaim "data" not found'),
    Situation("a-claim-that-is-not-bound", pod(volumes=[volume_of("data")]), [A], "VolumeBinding",
              "pod has unbound immediate PersistentVolumeClaims", (), [claim("data")]),
    Situation("spread-over-everything-counts-nobody", pod(
        labels=WEB, topologySpreadConstraints=[spread(labelSelector={})]), ZONES, "Fits", "",
        [pod("one", at="a", labels=WEB), pod("two", at="a", labels=WEB)]),
    Situation("spread-with-pods-of-the-same-version", pod(
        labels={**WEB, "version": "2"}, topologySpreadConstraints=[
            spread(matchLabelKeys=["version"])]), [node("a", labels={"zone": "x"}),
                                                   node("b", labels={"zone": "y"}, cpu="50m")],
        "Fits", "", [pod("one", at="a", labels={**WEB, "version": "1"})]),
    Situation("a-label-that-is-no-number", pod(affinity=wants(label("gen", "Gt", "5"))),
              [node("a", labels={"gen": "1_0"})], "NodeAffinity", f"1 {AFFINITY}"),
    Situation("the-first-filter-is-told-not-all", pod(cpu="5", nodeSelector={"disk": "ssd"}),
              [node("a", unschedulable=True, taints=[taint("x")]), node("b", taints=[taint("x")]),
               C], "NodeAffinity",
              f"1 node(s) didn't match Pod's node affinity/selector, 1 {TAINT}, "
              "1 node(s) were unschedulable"),
    Situation("several-reasons", pod(cpu="5"),
              [A, node("b", taints=[taint("x")]), node("c", cpu="2")], "NodeResourcesFit",
              f"1 {TAINT}, 2 Insufficient cpu"),
)  # fmt: skip
