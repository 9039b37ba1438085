"""Random lives of a recommender: pods come and go, it restarts, and it collects.

No kind of vpa.yaml has more than one container. Here replicas share aggregates, VPAs share
replicas, a new version opens aggregates of its own, and a restart leaves the checkpoints.
"""

import json
from collections.abc import Callable, Mapping
from random import Random

import numpy as np

from podscale.core.metrics import ContainerColumns
from podscale.core.selectors import selector
from podscale.kube.objects.vpa import Vpa, decode
from tests.cluster.vpa_sample_draws import (
    CONTAINERS,
    DAY,
    START,
    Draw,
    Json,
    milli_cores,
    some_bytes,
    text,
)
from tests.conformance.vpa_sample_cases import shown_checkpoint
from tests.conformance.vpa_shared import seconds
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Oom
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.checkpoints import Checkpoint, from_wire, to_wire
from vpa.model.samples.membership import VpaKey

_NAMESPACE = "default"
_VPAS = (
    {"all": {"app": "web"}},
    {"old": {"app": "web", "version": "v1"}, "new": {"app": "web", "version": "v2"}},
)


def cluster_history(random: Random) -> dict[str, Json]:
    """Draw what happens to the pods of one application, some days of it.

    Months only where all pods are of one version, and no pod is of two VPAs. Weights of
    versions ten days apart are lost there or not by the order of a map, and merging for one
    VPA changes what the next one reads.
    """
    names = list(CONTAINERS[: random.choice((1, 1, 2))])
    versions = random.choice((("v1",), ("v1", "v1", "v2")))
    now, steps, pods = START + random.choice((0, 1, 43_200)), list[Json](), list[str]()
    measured: set[str] = set()  # by this process: of the others, upstream forgets OOMs (D6)
    for number in range(random.choice((4, 8, 20, 50))):
        now += random.choice((0, 1, 60, 60, 3600, 3600, DAY // 4 - 1, DAY // 4))
        if len(versions) == 1:
            now += random.choice((0, 0, 0, 0, DAY // 2, DAY - 1, DAY))
            now += random.choice((9 * DAY, 20 * DAY, 101 * DAY)) if not random.randrange(30) else 0
        kind = random.choice(("pod", "oom", "gone", *("usage",) * 12, "restart", "collect"))
        if kind == "pod" or not pods:
            pods.append(f"web-{number}")
            pod = {"pod": pods[-1], "version": random.choice(versions), "containers": names}
            steps.append({"op": "pod", **pod})
        elif kind == "gone":
            steps.append({"op": "gone", "pod": pods.pop(random.randrange(len(pods)))})
        elif kind == "usage":
            for pod in pods if random.random() < 0.6 else pods[:1]:
                measured.add(pod)
                for name in names:
                    usage = {"cpu": milli_cores(random), "memory": some_bytes(random)}
                    where = {"pod": pod, "container": name}
                    steps.append({"op": "usage", **where, **usage, "t": text(now)})
        elif kind == "oom" and (killed := sorted(measured.intersection(pods))):
            where = {"pod": random.choice(killed), "container": random.choice(names)}
            steps.append({"op": "oom", **where, "memory": some_bytes(random), "t": text(now)})
        elif kind in ("restart", "collect"):
            steps.append({"op": kind, "t": text(now)})
            if kind == "restart":
                measured.clear()
    return {
        "selectors": random.choice(_VPAS),
        "steps": steps,
        "at": text(now + random.choice((0, 1, DAY))),
    }


class _Life:
    # A cluster, and what of it is left after a restart.

    def __init__(self, selectors: Mapping[str, Mapping[str, str]]) -> None:
        self._selectors = selectors
        self._pods: dict[str, Json] = {}
        self._open(0.0)

    def _open(self, now: float) -> None:
        self.cluster = ClusterModel()
        for name, selected in self._selectors.items():
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
            vpa = {
                "metadata": {"name": name, "namespace": _NAMESPACE},
                "spec": {"targetRef": target},
            }
            wanted = selector.parse(",".join(f"{key}={value}" for key, value in selected.items()))
            self.cluster.put_vpa(decode(vpa, Vpa), wanted, now)

    def checkpoints(self, now: float) -> dict[VpaKey, dict[str, Json]]:
        """Return the checkpoints by VPA and container."""
        wanted = [
            (key, container)
            for key, entry in self.cluster.vpas.items()
            for container in entry.containers()
        ]
        found: dict[VpaKey, dict[str, Json]] = {key: {} for key in self.cluster.vpas}
        for (key, container), (saved, _) in zip(
            wanted, self.cluster.checkpoints(wanted, now), strict=True
        ):
            found[key][container] = saved
        return found

    def _put(self, pod: Json, now: float) -> None:
        self._pods[pod["pod"]] = pod
        labels = {"app": "web", "version": pod["version"]}
        self.cluster.put_pod(_NAMESPACE, pod["pod"], labels, pod["containers"], now)

    def step(self, each: Json) -> list[bool]:
        """Take one step; return which samples were taken."""
        now = seconds(each["t"]) if "t" in each else 0.0
        match each["op"]:
            case "pod":
                self._put(each, now)
            case "gone":
                del self._pods[each["pod"]]
                self.cluster.remove_pod(_NAMESPACE, each["pod"])
            case "usage":
                cores, used = np.array([each["cpu"] / 1000.0]), np.array([float(each["memory"])])
                place = ([_NAMESPACE], [each["pod"]], [each["container"]])
                batch = ContainerColumns(*place, cores, used, np.array([now]), now)
                return [bool(taken) for taken in self.cluster.take(batch)]
            case "oom":
                at = seconds(each["t"])
                place = (_NAMESPACE, each["pod"], each["container"])
                return [self.cluster.record_oom(Oom(*place, each["memory"], at))]
            case "collect":
                self.cluster.collect(now)
            case "restart":
                kept = self.checkpoints(now)
                self._open(now)
                for key, containers in kept.items():
                    for container, saved in containers.items():
                        read = from_wire(json.dumps(to_wire(saved)))
                        # Without the annotation of the open windows, which upstream lacks (D5).
                        self.cluster.load_checkpoint(key, container, read, None, now)
                for pod in list(self._pods.values()):
                    self._put(pod, now)
        return []


def _weighed(saved: Checkpoint, at: float) -> dict[str, Json]:
    # The weight at a time instead of at the reference: upstream moves the reference of what
    # it merges for one VPA, and so that of what another reads.
    shown = shown_checkpoint(saved)
    for histogram in (shown["cpuHistogram"], shown["memoryHistogram"]):
        reference = histogram.pop("reference_timestamp")
        if reference is not None:
            histogram["total_weight"] *= 2.0 ** ((reference - at) / DAY)
    return shown


def _lived(i: dict[str, Json], e: dict[str, Json]) -> dict[str, Json]:
    life = _Life(i["selectors"])
    taken = [accepted for each in i["steps"] for accepted in life.step(each)]
    reader = RecommendationReader(life.cluster)
    estimates = reader.read()
    found: dict[str, Json] = {}
    at = seconds(i["at"])
    for key, containers in life.checkpoints(at).items():
        shown = {name: _weighed(saved, at) for name, saved in containers.items()}
        trace = reader.recommendation(estimates, key)
        for (container, resource, bound), amount in trace.amounts.items():
            amounts = shown[container].setdefault("amounts", {})
            amounts.setdefault(bound, {})[resource] = amount.derivation.amount
            shown[container]["confidence"] = amount.derivation.confidence
        found[key.name] = shown
    return {"taken": taken, "vpas": found}


def _oom_outlives_usage(inputs: Json) -> bool:
    """Whether a collection finds an OOM that is younger than eight days, and no usage."""
    timed = [(each["op"], seconds(each["t"])) for each in inputs["steps"] if "t" in each]

    def kinds(until: float) -> set[str]:
        return {op for op, at in timed if until - 8 * DAY < at <= until}

    found = (kinds(at) for op, at in timed if op == "collect")
    return any("oom" in within and "usage" not in within for within in found)


KINDS: Mapping[str, Callable[[Json, Json], dict[str, Json]]] = {"cluster_history": _lived}
DRAWS: Mapping[str, Draw] = {"cluster_history": cluster_history}
DEVIATIONS: Mapping[str, Mapping[str, Callable[[Json], bool]]] = {
    "cluster_history": {"D6": _oom_outlives_usage},
}
