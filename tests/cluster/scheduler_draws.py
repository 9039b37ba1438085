"""Random clusters with a pod that has no node: everything that a filter reads, often tight.

They are as an API server would hold them: what it refuses is not drawn.
"""

from collections.abc import Sequence
from random import Random

from tests.unit.nodes.explain.situations import Object, node, pod, taint

APPS = ("web", "db", "batch")
ZONES = ("x", "y", "z")
NAMESPACES = ("default", "shop")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi")
_KEYS = ("zone", "kubernetes.io/hostname", "rack")
_CPU = ("0", "1m", "100m", "250m", "0.5", "1", "1500m", "2", "3")
_MEMORY = ("0", "1", "100M", "1Gi", "1.5Gi", "2Gi", "3000M")
_CLASSES = ("", "now", "gone", *("late",) * 6)


def question(seed: int) -> Object:
    """Return the pod and the cluster of one seed."""
    random = Random(f"scheduler {seed}")
    count = random.choice((1, 2, 3, 3, 4, 5, 8))
    nodes = [_node(random, f"n{number}") for number in range(count)]
    names = [*(each["metadata"]["name"] for each in nodes), "gone", ""]
    draw = _Pods(random)
    pods = [
        _placed(random, draw.pod(f"p{number}", is_placed=True), random.choice(names))
        for number in range(random.choice((0, 1, 3, 6, 12, 20)))
    ]
    volumes = [_volume(random, name) for name in ("v0", "v1", "v2") if random.random() < 0.8]
    return {
        "pod": draw.pod("asked", is_placed=False),
        "nodes": nodes,
        "pods": pods,
        "claims": [_claim(random, name) for name in ("c0", "c1") if random.random() < 0.97],
        "volumes": volumes,
        "classes": [
            _class(random, "now", "Immediate"),
            _class(random, "late", "WaitForFirstConsumer"),
        ],
        "namespaces": [
            {"metadata": {"name": name, "labels": {"team": team}}}
            for name, team in zip(NAMESPACES, ("a", "b"), strict=True)
        ],
    }


def _node(random: Random, name: str) -> Object:
    labels = {"disk": random.choice(("ssd", "hdd"))}
    for key, values, share in (
        ("zone", ZONES, 0.9), ("rack", ("r1", "r2"), 0.6),
        ("gen", ("4", "5", "05", "1_0", "old"), 0.6),
        ("topology.kubernetes.io/zone", ZONES, 0.3),
    ):  # fmt: skip
        if random.random() < share:
            labels[key] = random.choice(values)
    spec: Object = {}
    if random.random() < 0.05:
        spec["unschedulable"] = True
    if random.random() < 0.2:
        spec["taints"] = [_taint(random) for _ in range(random.choice((1, 1, 2)))]
    more = {name: amount for name, amount in (
        ("ephemeral-storage", "5Gi"), ("example.com/gpu", "1"), ("hugepages-2Mi", "4Mi"),
    ) if random.random() < 0.8}  # fmt: skip
    made = node(
        name, cpu=random.choice(("1", "3500m", "6", "64", "64", "64")),
        memory=random.choice(("4000M", "8Gi", "256Gi", "256Gi", "256Gi")),
        pods=random.choice(("2", "4", "110", "110", "110")), labels=labels, more=more, **spec,
    )  # fmt: skip
    if random.random() < 0.02:
        del made["status"]["allocatable"]["cpu"]
    return made


def _taint(random: Random) -> Object:
    effect = random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    return taint(random.choice(("dedicated", "gone", "node.kubernetes.io/unschedulable")), effect,
                 random.choice(("", "web", "gpu")))  # fmt: skip


class _Pods:
    def __init__(self, random: Random) -> None:
        self._random = random

    def pod(self, name: str, *, is_placed: bool) -> Object:
        random = self._random
        labels = {"app": random.choice(APPS)} if random.random() < 0.9 else {}
        if random.random() < 0.5:
            labels["version"] = random.choice(("1", "2"))
        spec = self._constraints() if random.random() < (0.25 if is_placed else 0.8) else {}
        if random.random() < 0.2:
            spec["initContainers"] = [self._init(number) for number in range(random.choice((1, 2)))]
        if random.random() < 0.1:
            spec["overhead"] = {"cpu": "50m", "memory": "64M"}
        if random.random() < 0.1:
            spec["resources"] = {"requests": self._requests(pod_level=True)}
        if random.random() < (0.1 if is_placed else 0.3):
            spec["volumes"] = self._volumes()
        if not is_placed and random.random() < 0.03:
            spec["schedulingGates"] = [{"name": "a.example"}, {"name": "b.example"}]
        made = pod(name, "", labels=labels, ports=self._ports(), **spec)
        made["spec"]["containers"][0]["resources"] = {"requests": self._requests()}
        if random.random() < 0.2:
            second = {"name": "second", "resources": {"requests": self._requests()}}
            made["spec"]["containers"].append(second)
        made["metadata"]["uid"] = f"uid-{name}"
        made["metadata"]["namespace"] = random.choice((*NAMESPACES, *("default",) * 4))
        return made

    def _requests(self, *, pod_level: bool = False) -> dict[str, str]:
        random = self._random
        found = {"cpu": random.choice(_CPU), "memory": random.choice(_MEMORY)}
        if not pod_level:
            for name, amounts, share in (
                ("ephemeral-storage", ("1Gi", "3Gi"), 0.1), ("example.com/gpu", ("0", "1"), 0.1),
                ("hugepages-2Mi", ("2Mi", "4Mi"), 0.1),
            ):  # fmt: skip
                if random.random() < share:
                    found[name] = random.choice(amounts)
        return {name: amount for name, amount in found.items() if random.random() < 0.8}

    def _init(self, number: int) -> Object:
        made: Object = {"name": f"init{number}", "resources": {"requests": self._requests()}}
        if self._random.random() < 0.5:
            made["restartPolicy"] = "Always"
            made["ports"] = self._ports()
        return made

    def _ports(self) -> list[Object]:
        random = self._random
        if random.random() < 0.7:
            return []
        made = {"containerPort": 80, "hostPort": random.choice((8080, 8081, 0)),
                "protocol": random.choice(("TCP", "TCP", "UDP"))}  # fmt: skip
        if random.random() < 0.5:
            made["hostIP"] = random.choice(("", "0.0.0.0", "127.0.0.1", "127.0.0.2", "::"))
        return [made]

    def _volumes(self) -> list[Object]:
        random = self._random
        names = random.sample(("c0", "c1"), random.choice((1, 1, 2)))
        if random.random() < 0.05:
            names.append("none")
        made: list[Object] = [
            {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names
        ]
        if random.random() < 0.05:
            made.insert(0, {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}})
        return made

    def _constraints(self) -> Object:
        random, spec = self._random, {}
        if random.random() < 0.4:
            spec["tolerations"] = [self._toleration() for _ in range(random.choice((1, 2)))]
        if random.random() < 0.15:
            spec["nodeSelector"] = {random.choice(("disk", "zone")): random.choice(("ssd", "x"))}
        affinity: Object = {}
        if random.random() < 0.3:
            terms = [self._term() for _ in range(random.choice((1, 1, 2)))]
            required = {"nodeSelectorTerms": terms}
            affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        for kind, share in (("podAffinity", 0.2), ("podAntiAffinity", 0.3)):
            if random.random() < share:
                near = [self._near() for _ in range(random.choice((1, 1, 2)))]
                affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": near}
        if affinity:
            spec["affinity"] = affinity
        if random.random() < 0.35:
            spec["topologySpreadConstraints"] = self._spread()
        return spec

    def _toleration(self) -> Object:
        random = self._random
        operator = random.choice(("Exists", "Equal", ""))
        made: Object = {"operator": operator} if operator else {}
        if operator != "Exists" or random.random() < 0.7:
            made["key"] = random.choice(("dedicated", "gone", "node.kubernetes.io/unschedulable"))
        if operator != "Exists":
            made["value"] = random.choice(("", "web", "gpu"))
        if random.random() < 0.6:
            made["effect"] = random.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
        return made

    def _term(self) -> Object:
        random, term = self._random, {}
        if random.random() < 0.9:
            term["matchExpressions"] = [
                self._requirement() for _ in range(random.choice((1, 1, 2)))
            ]
        if random.random() < 0.25:
            term["matchFields"] = [
                {"key": "metadata.name", "operator": random.choice(("In", "In", "NotIn")),
                 "values": [random.choice(("n0", "n1", "none"))]}
                for _ in range(random.choice((1, 1, 2)))
            ]  # fmt: skip
        return term

    def _requirement(self) -> Object:
        random = self._random
        key = random.choice(("disk", "zone", "gen", "rack"))
        operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        if operator in ("Gt", "Lt"):
            return {"key": "gen", "operator": operator, "values": [random.choice(("4", "5", "-1"))]}
        known = {"disk": ("ssd", "hdd"), "zone": ZONES, "gen": ("5", "05"), "rack": ("r1", "r3")}
        values = random.sample(known[key], random.choice((1, 2)))
        return {"key": key, "operator": operator,
                **({"values": values} if operator in ("In", "NotIn") else {})}  # fmt: skip

    def _near(self) -> Object:
        random = self._random
        made: Object = {"topologyKey": random.choice(_KEYS)}
        if random.random() < 0.95:
            made["labelSelector"] = self._selector()
        if random.random() < 0.2:
            made["namespaces"] = random.sample(NAMESPACES, random.choice((1, 2)))
        if random.random() < 0.2:
            chosen: Sequence[Object] = ({}, {"matchLabels": {"team": "b"}},
                                        {"matchLabels": {"team": "none"}})  # fmt: skip
            made["namespaceSelector"] = random.choice(chosen)
        return made

    def _selector(self) -> Object:
        random = self._random
        expression = {"key": "app", "operator": random.choice(("In", "NotIn")),
                      "values": random.sample(APPS, random.choice((1, 2)))}  # fmt: skip
        exists = {"key": "version", "operator": random.choice(("Exists", "DoesNotExist"))}
        chosen: Sequence[Object] = (
            {"matchLabels": {"app": random.choice(APPS)}}, {"matchLabels": {"app": "web"}},
            {"matchExpressions": [expression]}, {"matchExpressions": [exists]}, {},
        )  # fmt: skip
        return random.choice(chosen)

    def _spread(self) -> list[Object]:
        random = self._random
        made = []
        for key in random.sample(_KEYS, random.choice((1, 1, 2))):
            one: Object = {
                "maxSkew": random.choice((1, 1, 2)), "topologyKey": key,
                "whenUnsatisfiable": random.choice(("DoNotSchedule",) * 4 + ("ScheduleAnyway",)),
            }  # fmt: skip
            if random.random() < 0.95:
                one["labelSelector"] = self._selector()
                if random.random() < 0.2:
                    one["matchLabelKeys"] = ["version"]
            if random.random() < 0.2 and one["whenUnsatisfiable"] == "DoNotSchedule":
                one["minDomains"] = random.choice((1, 2, 3))
            for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
                if random.random() < 0.3:
                    one[policy] = random.choice(("Honor", "Ignore"))
            made.append(one)
        return made


def _placed(random: Random, made: Object, at: str) -> Object:
    if at:
        made["spec"]["nodeName"] = at
    status: Object = {"phase": random.choice(("Running",) * 5 + ("Pending", "Succeeded", "Failed"))}
    if random.random() < 0.1:
        made["metadata"]["deletionTimestamp"] = "2026-11-18T00:00:00Z"
    if random.random() < 0.3:
        containers = made["spec"]["containers"]
        status["containerStatuses"] = [_resized(random, each["name"]) for each in containers]
        inits = made["spec"].get("initContainers", ())
        status["initContainerStatuses"] = [_resized(random, each["name"]) for each in inits]
        if random.random() < 0.3:
            reason = random.choice(("Infeasible", "Deferred"))
            status["conditions"] = [
                {"type": "PodResizePending", "status": "True", "reason": reason}
            ]
        if random.random() < 0.2:
            status["resources"] = {"requests": _amounts(random)}
            status["allocatedResources"] = _amounts(random)
    made["status"] = status
    return made


def _resized(random: Random, name: str) -> Object:
    made: Object = {"name": name}
    if random.random() < 0.7:
        made["allocatedResources"] = _amounts(random)
    if random.random() < 0.7:
        made["resources"] = {"requests": _amounts(random)}
    return made


def _amounts(random: Random) -> dict[str, str]:
    return {"cpu": random.choice(_CPU), "memory": random.choice(_MEMORY)}


def _claim(random: Random, name: str) -> Object:
    volume = random.choice((*("v0", "v1") * 3, *("",) * 5, "lost"))
    metadata: Object = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if volume and random.random() < 0.9:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    if random.random() < 0.05:
        metadata["deletionTimestamp"] = "2026-11-18T00:00:00Z"
    modes = [random.choice(("ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))]
    storage = {"storage": random.choice(("1Gi", "2Gi"))}
    spec = {"accessModes": modes, "resources": {"requests": storage},
            "storageClassName": random.choice(_CLASSES), "volumeName": volume}  # fmt: skip
    if not volume and random.random() < 0.2:
        metadata["annotations"] = {
            "volume.kubernetes.io/selected-node": random.choice(("n0", "n1"))
        }
    if random.random() < 0.1:
        spec["selector"] = {"matchLabels": {"made": "by-hand"}}
    phase = "Lost" if random.random() < 0.05 else "Bound" if volume else "Pending"
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _volume(random: Random, name: str) -> Object:
    metadata: Object = {"name": name}
    zones = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
    if random.random() < 0.3:
        metadata["labels"] = {random.choice(zones): random.choice(("x", "x__y", "z"))}
    if random.random() < 0.5:
        metadata.setdefault("labels", {})["made"] = "by-hand"
    if random.random() < 0.05:
        metadata["deletionTimestamp"] = "2026-11-18T00:00:00Z"
    # Of two that fit equally well the original takes one or the other, so none is as large.
    size = {"v0": "1Gi", "v1": "2Gi", "v2": "3Gi"}[name]
    modes = [*("ReadWriteOnce", "ReadWriteOncePod")[: random.choice((1, 2))]]
    spec: Object = {"capacity": {"storage": size}, "accessModes": modes,
                    "hostPath": {"path": "/data"},
                    "storageClassName": random.choice(("late", "late", "other"))}  # fmt: skip
    if random.random() < 0.3:
        uid = random.choice(("", "uid-c0", "uid-other"))
        spec["claimRef"] = {"name": random.choice(("c0", "c1")), "namespace": "default", "uid": uid}
    if random.random() < 0.1:
        spec["volumeMode"] = "Block"
    if random.random() < 0.5:
        key, values = random.choice((("zone", ZONES), ("disk", ("ssd", "hdd"))))
        term = {"key": key, "operator": "In", "values": [random.choice(values)]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    phase = random.choice(("Available", "Available", "Available", "Released"))
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def _class(random: Random, name: str, mode: str) -> Object:
    made: Object = {
        "metadata": {"name": name},
        "provisioner": random.choice(("example.com/disk", "kubernetes.io/no-provisioner")),
        "volumeBindingMode": mode,
    }
    if random.random() < 0.3:
        zones = random.sample(ZONES, 2)
        made["allowedTopologies"] = [{"matchLabelExpressions": [{"key": "zone", "values": zones}]}]
    return made
