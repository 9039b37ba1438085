"""HPA and VPA, both ours, on one Deployment of the real plane: they converge, whatever is killed.

The recommender's days are seconds (``short_days``); everything else is as users have it.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from podscale.coordinate.anchor import ANNOTATION, Anchor, parse
from podscale.core.quantity import parse as quantity
from tests.cluster.beside_watch import Watch
from tests.cluster.coordination_stage import Kill, Review, SharedLoad, WriteGate
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.identity import RefusedError
from tests.cluster.kubelet import kubelet
from tests.cluster.pki import Authority
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings, audited
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.tools.process import NotReadyError, Program, wait_until

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
LONG_S = 600.0
MODES = {"resized": "InPlaceOrRecreate", "evicted": "Recreate"}
FEW, MANY = (2, 4), (8, 12)
PERCENT = 50
AT_ONCE = {
    "stabilizationWindowSeconds": 0,
    "policies": [{"type": "Pods", "value": 50, "periodSeconds": 1}],
}
# For as long as usage may still be told of pods that have just been removed.
SOON = {**AT_ONCE, "stabilizationWindowSeconds": 3}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": PERCENT}},
}
HPA_FLAGS = (
    "--horizontal-pod-autoscaler-downscale-stabilization=1s",
    "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
)
HALF_LIFE_S = 1.0
RECOMMENDER_FLAGS = (
    "--metrics-source=api", "--recommender-interval=1s",
    f"--cpu-histogram-decay-half-life={HALF_LIFE_S:g}s",
)  # fmt: skip
UPDATER_FLAGS = (
    "--updater-interval=1s",
    "--in-recommendation-bounds-eviction-lifetime-threshold=1s",
)
LOADS = (2.0, 1.6)  # cores of all pods of a workload
SETTLES_S = 120.0
CALM_S = 5.0
# Of one coordinated change, and whose they are.
WRITES = (
    ("recommender", "anchor"), ("recommender", "size"), ("hpa", "condition"), ("hpa", "replicas"),
)  # fmt: skip


def written(what: str, name: str) -> Callable[[Review], bool]:
    """Return what tells that write of a coordinated change of the workload from others."""

    def is_meant(request: Review) -> bool:
        resource = request["resource"]["resource"], request.get("subResource", "")
        if request["name"] != name or not request["userInfo"]["username"].startswith(
            "system:serviceaccount:podscale:"
        ):
            return False
        new, old = request["object"], request["oldObject"]
        match what:
            case "anchor":
                is_anchor = resource == ("verticalpodautoscalers", "")
                return is_anchor and annotation(new) != annotation(old)
            case "size":
                is_status = resource == ("verticalpodautoscalers", "status")
                return is_status and target(new) != target(old)
            case "condition":
                is_status = resource == ("horizontalpodautoscalers", "status")
                is_held = coordinated(new)[0] == "AnchorHeld"
                return is_status and is_held and coordinated(new) != coordinated(old)
        return resource == ("deployments", "scale") and new["spec"] != old["spec"]

    return is_meant


def annotation(vpa: Mapping[str, Any]) -> str | None:
    return (vpa["metadata"].get("annotations") or {}).get(ANNOTATION)


def target(vpa: Mapping[str, Any]) -> int:
    found = (vpa.get("status") or {}).get("recommendation") or {}
    return sum(
        quantity(each["target"]["cpu"]).milli for each in found.get("containerRecommendations", ())
    )


def coordinated(hpa: Mapping[str, Any]) -> tuple[str, str]:
    found = {each["type"]: each for each in (hpa.get("status") or {}).get("conditions") or ()}
    condition = found.get("Coordinated", {})
    return condition.get("reason", ""), condition.get("message", "")


class Workload:
    """A Deployment with both, as the API server has them, and what must hold of them."""

    def __init__(self, plane: Plane, namespace: str, name: str, cores: float) -> None:
        self.plane, self.namespace, self.name = plane, namespace, name
        self.cores = cores  # that its pods use together, at least
        self.sizes: set[int] = set()  # that an anchor had
        self.faults: list[str] = []

    def objects(self, band: tuple[int, int]) -> list[dict[str, Any]]:
        made = deployment(
            self.name, self.namespace, replicas=4, requests={"cpu": "1", "memory": "64Mi"}
        )
        hpa = horizontal_pod_autoscaler(
            self.name,
            self.namespace,
            CPU,
            least=1,
            most=40,
            behavior={"scaleUp": AT_ONCE, "scaleDown": SOON},
        )
        hpa["metadata"]["annotations"] = {
            "podscale.io/coordinate": "on",
            "podscale.io/comfort-replicas": f"{band[0]}-{band[1]}",
        }
        vpa = {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "updatePolicy": {"updateMode": MODES[self.name]},
                "resourcePolicy": {
                    "containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]
                },
            },
        }
        return [made, hpa, vpa]

    def want(self, band: tuple[int, int]) -> None:
        """Ask for so many replicas, whatever size they have."""
        written = {"podscale.io/comfort-replicas": f"{band[0]}-{band[1]}"}
        self.plane.admin.patch(self._hpa_path, {"metadata": {"annotations": written}})

    def look(self) -> "Sight":
        """Return how it is, having noted what must not be."""
        get = self.plane.admin.get
        vpa, hpa, made = get(self._vpa_path), get(self._hpa_path), get(self._path)
        anchor = parse(annotation(vpa), made["metadata"]["uid"])
        if anchor is not None:
            self.sizes.add(anchor.size)
        pods = [
            quantity(each["spec"]["containers"][0]["resources"]["requests"]["cpu"]).milli
            for each in self.plane.pods(self.namespace, {"app": self.name})
            if "deletionTimestamp" not in each["metadata"]
        ]
        return Sight(anchor, target(vpa), coordinated(hpa), made["spec"]["replicas"], pods)

    def check(self, seen: "Sight") -> None:
        """Note what must not be: a size without its anchor, fewer cores than there is load."""
        wanted = self.sizes | {0}
        if seen.target not in wanted:
            self.faults.append(f"{self.name}: {seen.target}m published, anchors had {self.sizes}")
        if seen.pods and not set(seen.pods) <= self.sizes | {1000}:
            self.faults.append(f"{self.name}: pods of {set(seen.pods)}, anchors had {self.sizes}")
        smallest = min([*seen.pods, seen.target or 1000])
        if seen.replicas * smallest < 1000 * self.cores:
            self.faults.append(
                f"{self.name}: {seen.replicas} pods of {smallest}m for {self.cores} cores"
            )

    @property
    def _path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}"

    @property
    def _hpa_path(self) -> str:
        of = f"/apis/autoscaling/v2/namespaces/{self.namespace}"
        return f"{of}/horizontalpodautoscalers/{self.name}"

    @property
    def _vpa_path(self) -> str:
        of = f"/apis/autoscaling.k8s.io/v1/namespaces/{self.namespace}"
        return f"{of}/verticalpodautoscalers/{self.name}"


class Sight:
    """One look at a workload; milli-cores."""

    def __init__(
        self,
        anchor: Anchor | None,
        target: int,
        condition: tuple[str, str],
        replicas: int,
        pods: list[int],
    ) -> None:
        self.anchor, self.target, self.condition = anchor, target, condition
        self.replicas, self.pods = replicas, pods

    def is_settled(self, band: tuple[int, int]) -> bool:
        """Whether everybody holds to the anchor, and replicas are in the band."""
        anchor = self.anchor
        return (
            anchor is not None
            and band[0] <= self.replicas <= band[1]
            and self.target == anchor.size
            and self.pods == [anchor.size] * self.replicas
            and self.condition[0] == "AnchorHeld"
            and f"{anchor.milli}m of its anchor" in self.condition[1]
        )

    def __repr__(self) -> str:
        return f"{self.anchor} {self.target}m {self.condition} {self.replicas} × {self.pods}"


class Parts:
    """Both parts, started again whenever they end, as a kubelet would; invariants looked at."""

    def __init__(
        self, programs: Sequence[Program], workloads: Sequence[Workload], lock: threading.Lock
    ) -> None:
        self._programs, self._workloads, self._lock = programs, workloads, lock
        self._end = threading.Event()
        self.failure: BaseException | None = None

    @contextmanager
    def tended(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            while not self._end.wait(0.2):
                with self._lock:
                    for each in self._programs:
                        each.start()
                for workload in self._workloads:
                    workload.check(workload.look())
        except (OSError, RefusedError, KeyError) as failure:
            self.failure = failure


def turns(began: float) -> Iterator[tuple[str, tuple[int, int], float]]:
    """Yield whose changes are cut short next, the band and the load, until it is enough."""
    for number in count():
        yield list(MODES)[number % 2], (MANY, FEW)[number % 2], LOADS[number // 2 % 2]
        if IS_SHORT or time.monotonic() - began > LONG_S:
            return


@pytest.mark.timeout(1800)
def test_both_converge_and_a_kill_at_any_write_of_a_change_leaves_the_anchor_right(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    plane = private_plane(PlaneSettings(nodes=1))
    began = time.monotonic()
    with (
        plane.namespace("both") as namespace,
        Watch(plane, f"/api/v1/namespaces/{namespace}/pods") as pods,
        SharedLoad.raised(plane, namespace, tmp_path, pods) as load,
        kubelet(plane, namespace),
        VpaStack(plane, tmp_path) as vpas,
        HpaStack(plane, tmp_path, *HPA_FLAGS) as hpas,
        WriteGate(plane, Authority(tmp_path, "gate-ca")).open() as gate,
    ):
        vpas.start_admission()
        vpas.start("updater", *UPDATER_FLAGS)
        vpas.start("recommender", *RECOMMENDER_FLAGS, module="tests.cluster.short_days")
        parts = {"recommender": vpas.running["recommender"], "hpa": hpas.replicas[0]}
        workloads = {name: Workload(plane, namespace, name, min(LOADS)) for name in MODES}
        load.cores = dict.fromkeys(MODES, LOADS[0])
        for workload in workloads.values():
            plane.apply(*workload.objects(FEW))

        def wait_settled(what: str, band: tuple[int, int]) -> None:
            def settled() -> bool:
                return all(each.look().is_settled(band) for each in workloads.values())

            try:
                wait_until(what, settled, SETTLES_S)
            except NotReadyError as late:
                seen = {name: each.look() for name, each in workloads.items()}
                tails = "\n".join(each.tail() for each in (*vpas.programs, *hpas.replicas))
                raise AssertionError(f"{late}\n{seen}\n{tails}") from None
            print(f"{time.monotonic() - began:5.1f} s: {what}:",
                  {name: str(each.look()) for name, each in workloads.items()})  # fmt: skip

        with Parts(tuple(parts.values()), tuple(workloads.values()), gate.lock).tended():
            wait_settled("both converge", FEW)
            for killed, wanted, cores in turns(began):
                load.cores = dict.fromkeys(MODES, cores)
                gate.kills = [
                    Kill(parts[part], written(what, killed), is_taken=is_taken)
                    for part, what in WRITES
                    for is_taken in (False, True)
                ]
                for workload in workloads.values():
                    workload.want(wanted)
                wait_until(
                    "every write of the change was cut short",
                    lambda: all(each.is_done for each in gate.kills),
                    SETTLES_S,
                )
                wait_settled(f"both are right after {len(gate.kills)} kills at {killed}", wanted)
            calm = {name: (each.look().anchor, each.look().replicas)
                    for name, each in workloads.items()}  # fmt: skip
            time.sleep(CALM_S)
            assert calm == {name: (each.look().anchor, each.look().replicas)
                            for name, each in workloads.items()}  # fmt: skip
    for workload in workloads.values():
        assert workload.faults == []


IN_TREE = ("--horizontal-pod-autoscaler-cpu-initialization-period=1s",)
AUDITED = (
    "horizontalpodautoscalers.autoscaling", "horizontalpodautoscalers/status.autoscaling",
    "deployments/scale.apps", "verticalpodautoscalers.autoscaling.k8s.io",
)  # fmt: skip


@pytest.mark.timeout(300)
def test_beside_the_in_tree_controller_nothing_of_ours_changes_what_it_reads(
    private_plane: Callable[[PlaneSettings], Plane], tmp_path: Path
) -> None:
    rule = audited(*AUDITED, verbs=("update", "patch", "create", "delete"))
    plane = private_plane(PlaneSettings(nodes=1, audit=(rule,)))
    with (
        plane.namespace("both") as namespace,
        Watch(plane, f"/api/v1/namespaces/{namespace}/pods") as pods,
        SharedLoad.raised(plane, namespace, tmp_path, pods) as load,
        VpaStack(plane, tmp_path) as vpas,
        plane.in_tree_hpa(1.0, *IN_TREE),
        HpaStack(plane, tmp_path, "--mode=shadow", *HPA_FLAGS) as hpas,
    ):
        load.cores = {"evicted": LOADS[0]}
        vpas.start("recommender", *RECOMMENDER_FLAGS, module="tests.cluster.short_days")
        workload = Workload(plane, namespace, "evicted", LOADS[0])
        plane.apply(*workload.objects(MANY))
        wait_until("a size is published", lambda: workload.look().target, 60, vpas.programs)
        hpa = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/evicted"
        wait_until(
            "its controller measures",
            lambda: plane.admin.get(hpa)["status"].get("currentMetrics"),
            60,
        )
        time.sleep(CALM_S)
        seen = workload.look()
        said = subprocess.run(
            [sys.executable, "-m", "podscale", "doctor", "hpa/evicted", "-n", namespace,
             f"--kubeconfig={plane.admin_kubeconfig}"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        tails = "\n".join(each.tail() for each in (*vpas.programs, *hpas.replicas))
    assert (seen.anchor, seen.condition) == (None, ("", "")), tails
    assert seen.target < 1000
    assert seen.pods == [1000] * 4
    ours = [
        each for each in plane.audit()
        if each["user"]["username"].startswith("system:serviceaccount:podscale:")
    ]  # fmt: skip
    assert ours == []
    assert said.returncode == 1, said.stderr
    assert "drift to many small pods" in said.stdout
    assert "does not act on it" in said.stdout
