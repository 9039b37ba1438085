"""Whose a pod was, told by its name."""

from collections.abc import Mapping

import pytest
from msgspec import convert

from podscale.kube.objects.scale import Workload
from vpa.recommender.history.initial_state import owners_labels


class Known:
    """Controllers by kind and name."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = {tuple(each.split("/")) for each in kinds}

    def find(self, namespace: str, kind: str, name: str) -> Workload | None:
        if (kind, name) not in self._kinds:
            return None
        raw = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": {"of": f"{kind}/{name}"}}},
        }
        return convert(raw, Workload)


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        pytest.param("web-6d4f9c5b7d-x2x4v", "ReplicaSet/web-6d4f9c5b7d", id="replicaset"),
        pytest.param("api-6d4f9c5b7d-x2x4v", "Deployment/api", id="old-template-of-a-deployment"),
        pytest.param("logs-x2x4v", "DaemonSet/logs", id="daemonset"),
        pytest.param("db-12", "StatefulSet/db", id="statefulset"),
        pytest.param("load-hx7zd", "Job/load", id="job"),
        pytest.param("web-admin-x2x4v", None, id="a-word-is-not-a-template-hash"),
        pytest.param("db-12-x2x4v", None, id="a-number-is-not-a-template-of-a-statefulset"),
        pytest.param("web", None, id="a-pod-of-nobody"),
    ],
)
def test_the_controller_is_found_by_the_name(pod: str, owner: str | None) -> None:
    known = Known(
        "ReplicaSet/web-6d4f9c5b7d", "Deployment/web", "Deployment/api", "DaemonSet/logs",
        "StatefulSet/db", "Job/load",
    )  # fmt: skip
    labels: Mapping[str, str] | None = owners_labels(known, "shop", pod)  # type: ignore[arg-type]
    assert (labels or {}).get("of") == owner
