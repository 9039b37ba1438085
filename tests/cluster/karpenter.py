"""Karpenter with its kwok provider on a plane: nodes of one size, which kwok makes Ready."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.cluster.golang import Go
from tests.cluster.plane import Plane
from tests.tools.cache import go_version
from tests.tools.process import Program, free_port, wait_until
from tests.tools.programs import module_of
from tests.tools.required import absent, require

CORES = "10"
MEMORY = "64Gi"
_INSTANCES = [{
    "name": "ten.large",
    "offerings": [{
        "Price": 1.0,
        "Requirements": [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
        ],
    }],
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": CORES, "memory": MEMORY, "pods": "110"},
}]  # fmt: skip
_OBJECTS: tuple[Mapping[str, Any], ...] = (
    {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "default"},
    },
    {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {
            "template": {"spec": {
                "nodeClassRef": {
                    "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default",
                },
                "requirements": [
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
                "expireAfter": "Never",
            }},
            "disruption": {
                "consolidationPolicy": "WhenEmptyOrUnderutilized",
                "consolidateAfter": "5s",
                "budgets": [{"nodes": "100%"}],
            },
        },
    },
)  # fmt: skip


class Karpenter:
    """Karpenter beside ``plane``, which starts without nodes; a context manager."""

    def __init__(self, plane: Plane, directory: Path) -> None:
        self._plane = plane
        instances = directory / "instances.json"
        instances.write_text(json.dumps(_INSTANCES))
        self._health = free_port()
        environment = {
            "KUBECONFIG": str(plane.admin_kubeconfig),
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(free_port()),
            "HEALTH_PROBE_PORT": str(self._health),
            "INSTANCE_TYPES_FILE_PATH": str(instances),
            "LOG_LEVEL": "debug",  # else it does not say why it leaves a node alone
        }
        log = directory / "karpenter.log"
        self.program = Program("karpenter", [require("karpenter")], log, environment)

    def __enter__(self) -> Self:
        source = _source()
        crds = ("pkg/apis/crds", "kwok/apis/crds")
        self._plane.kubectl(
            "apply", "--server-side", *(f"--filename={source / folder}" for folder in crds)
        )
        self._plane.wait_established(
            "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh"
        )
        self._plane.apply(*_OBJECTS)
        self.program.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.program.stop()

    def tails(self) -> str:
        """Return the end of its log, and what it says of its nodes in events."""
        events = self._plane.kubectl(
            "get", "events", "--field-selector=source=karpenter", "--sort-by=.lastTimestamp"
        )
        return f"{self.program.tail()}\n{events}"

    def nodes(self) -> list[str]:
        """Return the names of all nodes that are not being deleted."""
        found = self._plane.admin.get("/api/v1/nodes")["items"]
        for node in found:
            self._size(node)
        return [
            node["metadata"]["name"]
            for node in found
            if "deletionTimestamp" not in node["metadata"]
        ]

    def wait_nodes(self, count: int, deadline_s: float) -> list[str]:
        """Return the names when there are so many."""
        wait_until(
            f"there are {count} nodes", lambda: len(self.nodes()) == count, deadline_s,
            (self.program,),
        )  # fmt: skip
        return self.nodes()

    def _size(self, node: Mapping[str, Any]) -> None:
        # The provider makes a node as large as the pods that caused it.
        if node["status"]["capacity"].get("cpu") == CORES:
            return
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        status = {"capacity": {"cpu": CORES, "memory": MEMORY}}
        answer = self._plane.admin.request(
            "PATCH", path, {"status": status}, {"Content-Type": "application/merge-patch+json"}
        )
        assert answer.status in (200, 404), answer.body


def _source() -> Path:
    # Its CRDs lie in the module that the program is built of.
    if go_version() is None:
        absent("Go is missing, which knows where Karpenter's CRDs are; apt-get install golang-go")
    return Go(module_of("karpenter").directory).module("sigs.k8s.io/karpenter")
