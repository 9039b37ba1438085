"""Updater and admission on the real plane: every update mode, budgets, resizes, refusals.

Recommendations are written by hand, so that nothing waits for usage to be measured.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.kubelet import kubelet
from tests.cluster.plane import Plane
from tests.cluster.vpa_stack import VpaStack
from tests.cluster.workloads import deployment
from tests.tools.process import wait_until

OLD, NEW = "100m", "250m"
TARGET = {"cpu": NEW, "memory": "128Mi"}
MODES = ("Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace")
EVICTING, RESIZING = ("Recreate", "Auto"), ("InPlaceOrRecreate", "InPlace")
INFEASIBLE = "vpa.podscale.io/infeasible"


@pytest.fixture(scope="module")
def stack(plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VpaStack]:
    """Updater and admission, each with the rights of its own manifests."""
    with VpaStack(plane, tmp_path_factory.mktemp("vpa")) as started:
        started.start_admission(
            "--feature-gates=InPlace=true,CPUStartupBoost=true,PerVPAConfig=true"
        )
        started.start("updater", "--updater-interval=500ms", "--feature-gates=InPlace=true")
        yield started


def vpa(namespace: str, name: str, mode: str | None, **spec: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        **spec,
    }
    if mode is not None:
        wanted["updatePolicy"] = {"updateMode": mode}
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": wanted,
    }


def recommend(plane: Plane, namespace: str, name: str, target: dict[str, str] = TARGET) -> None:
    """Write a status as a recommender would."""
    entry = {"containerName": "app", "target": target, "lowerBound": target, "upperBound": target}
    status = {
        "recommendation": {"containerRecommendations": [entry]},
        "conditions": [
            {
                "type": "RecommendationProvided",
                "status": "True",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/{name}"
    plane.admin.patch(f"{path}/status", {"status": status})


class Workload:
    """The living pods of one Deployment."""

    def __init__(self, plane: Plane, namespace: str, name: str) -> None:
        self._plane, self._namespace, self.name = plane, namespace, name

    @property
    def pods(self) -> list[Any]:
        found = self._plane.pods(self._namespace, {"app": self.name})
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @property
    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods}

    @property
    def cpu(self) -> set[str]:
        return {pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] for pod in self.pods}

    def is_ready(self, count: int = 2) -> bool:
        return len(self._plane.ready_pods(self._namespace, {"app": self.name})) == count

    def annotations(self) -> list[dict[str, str]]:
        return [pod["metadata"].get("annotations", {}) for pod in self.pods]

    def conditions(self) -> set[str]:
        return {c["type"] for pod in self.pods for c in pod["status"].get("conditions", ())}


def deployed(
    plane: Plane, namespace: str, names: tuple[str, ...], **labels: str
) -> dict[str, Workload]:
    objects = [deployment(name, namespace, replicas=2) for name in names]
    for each in objects:
        each["spec"]["template"]["metadata"]["labels"] = {
            "app": each["metadata"]["name"],
            **labels,
        }
    plane.apply(*objects)
    found = {name: Workload(plane, namespace, name) for name in names}
    wait_until("pods run", lambda: all(each.is_ready() for each in found.values()), 60)
    return found


def test_every_update_mode_does_to_running_and_to_new_pods_what_it_says(
    plane: Plane, stack: VpaStack
) -> None:
    names = {f"mode-{mode.lower()}": mode for mode in MODES}
    with plane.namespace() as namespace, kubelet(plane, namespace):
        found = deployed(plane, namespace, tuple(names))
        before = {name: each.uids for name, each in found.items()}
        template = plane.admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/mode-auto")
        plane.apply(*(vpa(namespace, name, mode) for name, mode in names.items()))
        for name in names:
            recommend(plane, namespace, name)
        acting = [name for name, mode in names.items() if mode in EVICTING + RESIZING]
        wait_until(
            "pods are sized",
            lambda: all(found[name].cpu == {NEW} and found[name].is_ready() for name in acting),
            60,
            stack.programs,
        )
        for name, mode in names.items():
            kept = found[name].uids & before[name]
            if mode in EVICTING:
                assert not kept, mode
                assert all("vpaUpdates" in each for each in found[name].annotations()), mode
            else:
                assert kept == before[name], mode
            assert found[name].cpu == ({NEW} if name in acting else {OLD}), mode
        for mode in RESIZING:
            wait_until(
                "resizes are marked",
                lambda mode=mode: all(
                    each.get("vpaInPlaceUpdated") == "true"
                    for each in found[f"mode-{mode.lower()}"].annotations()
                ),
                10,
            )
        # New pods are sized in every mode but Off.
        for name in ("mode-off", "mode-initial"):
            for pod in found[name].pods:
                plane.admin.delete(f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
        wait_until(
            "new pods",
            lambda: all(
                found[name].is_ready() and not found[name].uids & before[name]
                for name in ("mode-off", "mode-initial")
            ),
            30,
        )
        assert found["mode-initial"].cpu == {NEW}
        assert found["mode-off"].cpu == {OLD}
        after = plane.admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/mode-auto")
        assert after["spec"]["template"] == template["spec"]["template"]


def test_a_disruption_budget_is_respected_until_it_allows(plane: Plane, stack: VpaStack) -> None:
    with plane.namespace() as namespace:
        found = deployed(plane, namespace, ("guarded", "witness"))
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "all", "namespace": namespace},
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "guarded"}}},
        }
        plane.apply(budget)
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/all"
        wait_until(
            "the budget is counted",
            lambda: plane.admin.get(path).get("status", {}).get("currentHealthy") == 2,
            30,
        )
        before = found["guarded"].uids
        plane.apply(*(vpa(namespace, name, "Recreate") for name in found))
        for name in found:
            recommend(plane, namespace, name)
        wait_until(
            "the witness is sized",
            lambda: found["witness"].cpu == {NEW} and found["witness"].is_ready(),
            60,
            stack.programs,
        )
        assert found["guarded"].uids == before
        plane.admin.patch(path, {"spec": {"minAvailable": 1}})
        wait_until(
            "the guarded pods are sized", lambda: found["guarded"].cpu == {NEW}, 60, stack.programs
        )
        assert not found["guarded"].uids & before


@pytest.mark.parametrize(
    ("mode", "state", "evicts"),
    [
        pytest.param("InPlaceOrRecreate", "deferred", False, id="deferred-waits"),
        pytest.param("InPlaceOrRecreate", "progress", False, id="in-progress-waits"),
        pytest.param("InPlaceOrRecreate", "infeasible", True, id="infeasible-evicts"),
        pytest.param("InPlaceOrRecreate", "error", True, id="an-error-evicts"),
        pytest.param("InPlace", "infeasible", False, id="in-place-never-evicts"),
        pytest.param("InPlace", "error", False, id="in-place-waits-for-an-error"),
    ],
)
def test_what_the_kubelet_says_to_a_resize_decides(
    plane: Plane, stack: VpaStack, mode: str, state: str, evicts: bool
) -> None:
    kind = "PodResizePending" if state in ("deferred", "infeasible") else "PodResizeInProgress"
    with plane.namespace() as namespace, kubelet(plane, namespace):
        found = deployed(plane, namespace, ("work", "witness"), kubelet=state)
        work, witness = found["work"], found["witness"]
        before = work.uids
        wait_until(
            "containers tell their resources",
            lambda: all(
                status.get("resources")
                for pod in (*work.pods, *witness.pods)
                for status in pod["status"]["containerStatuses"]
            ),
            20,
        )
        plane.apply(vpa(namespace, "work", mode))
        recommend(plane, namespace, "work")
        if evicts:
            wait_until(
                "new pods", lambda: not work.uids & before and work.is_ready(), 60, stack.programs
            )
            assert work.cpu == {NEW}
            return
        wait_until("the API server took it", lambda: work.cpu == {NEW}, 60, stack.programs)
        wait_until("the kubelet's word", lambda: kind in work.conditions(), 20)
        plane.apply(vpa(namespace, "witness", "Recreate"))
        recommend(plane, namespace, "witness")
        wait_until("loops went on", lambda: witness.cpu == {NEW}, 60, stack.programs)
        assert work.uids == before
        if mode == "InPlace" and state == "infeasible":
            wait_until(
                "it is remembered",
                lambda: all(INFEASIBLE in each for each in work.annotations()),
                10,
                stack.programs,
            )


def test_the_api_server_calls_the_webhook_for_vpas_too(plane: Plane, stack: VpaStack) -> None:
    with plane.namespace() as namespace:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            plane.apply(
                vpa(namespace, "bad", "Recreate", recommenders=[{"name": "a"}, {"name": "b"}])
            )
        assert "spec.recommenders" in str(refused.value.cmd)
        plane.apply(vpa(namespace, "bare", None))
        path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/bare"
        assert plane.admin.get(path)["spec"]["updatePolicy"] == {"updateMode": "Recreate"}


EXAMPLES = Path(__file__).parent / "vpa_examples.yaml"


def test_vpas_as_upstreams_documents_write_them_are_taken(plane: Plane, stack: VpaStack) -> None:
    with plane.namespace() as namespace:
        told = plane.kubectl("apply", "-n", namespace, "-f", str(EXAMPLES))
        assert len(told.strip().splitlines()) == EXAMPLES.read_text().count("kind: Vert")
        plane.kubectl("get", "vpa", "-n", namespace, "-o", "wide")
