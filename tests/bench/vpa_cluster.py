"""A sandbox API server full of VPAs with recommendations, as a process of its own.

Each VPA has a Deployment and its ReplicaSet. Prints its URL when it serves.
"""

import argparse
import asyncio
import gc
import signal
from pathlib import Path
from typing import Any

import yaml

from podscale.sandbox.server import SandboxServer

ROOT = Path(__file__).parent.parent.parent
NAMESPACES = 50
HASH = "6d4f9c5b7d"


def namespace_of(index: int) -> str:
    return f"team-{index % NAMESPACES}"


def name_of(index: int) -> str:
    return f"web-{index}"


def objects(index: int) -> list[dict[str, Any]]:
    """Return the Deployment, the ReplicaSet and the VPA of one workload."""
    namespace, name = namespace_of(index), name_of(index)
    labels = {"app": name}
    amounts = {
        "target": {"cpu": "250m", "memory": "200Mi"},
        "lowerBound": {"cpu": "200m", "memory": "150Mi"},
        "upperBound": {"cpu": "400m", "memory": "300Mi"},
        "uncappedTarget": {"cpu": "250m", "memory": "200Mi"},
    }
    spec = {"replicas": 10, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": []}}}  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": f"d-{index}",
             "controller": True}  # fmt: skip
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment",
         "metadata": {"name": name, "namespace": namespace, "uid": f"d-{index}"}, "spec": spec},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet",
         "metadata": {"name": f"{name}-{HASH}", "namespace": namespace, "uid": f"r-{index}",
                      "ownerReferences": [owner]}, "spec": spec},
        {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
         "metadata": {"name": name, "namespace": namespace},
         "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}},
         "status": {"conditions": [], "recommendation": {"containerRecommendations": [
             {"containerName": each, **amounts} for each in ("app", "side")]}}},
    ]  # fmt: skip


async def _serve() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vpas", type=int, required=True)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    given = parser.parse_args()
    server = SandboxServer()
    for crd in yaml.safe_load_all((ROOT / "config/crds/vpa/vpa.yaml").read_text()):
        server.objects.create("customresourcedefinitions", "", crd)
    for index in range(given.vpas):
        for each in objects(index):
            server.objects.put(each)
    gc.freeze()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with server:
        server.kubeconfig(given.kubeconfig)
        print(server.url, flush=True)
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
