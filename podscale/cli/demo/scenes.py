"""The five stories of the demo: what is deployed, what it has to do, who sizes it, and their time.

Whatever decides takes the demo's ``Clock`` as its ``wall``; the sandbox writes its objects at it;
the stand-in scrapes at it. Deadlines of the network and of certificates stay on the machine's
time, so a faster demo asks more of the machine but does not fail sooner.
"""

import math
import time
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from podscale.core.selectors import selector
from podscale.core.settings import COORDINATE
from podscale.sandbox.load import Queue, Traffic
from podscale.sandbox.server import SandboxCluster


class Clock:
    """Unix seconds that pass ``speed`` times as fast as real ones. Call it for the time."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._began_s = time.time()
        self._began = time.monotonic()

    def __call__(self) -> float:
        if self.speed == 1.0:
            return time.time()
        return self._began_s + (time.monotonic() - self._began) * self.speed

    def real_s(self, seconds: float) -> float:
        """Return how many real seconds ``seconds`` of the demo take."""
        return seconds / self.speed

    def flag(self, seconds: float) -> str:
        """Return a period of the demo as a flag's value in real time."""
        return f"{max(self.real_s(seconds), 0.001):.3f}s"


MIB = 2**20
PERIOD_S = 150.0  # of the daily load, which here takes two and a half minutes
_DAWN_S = 20.0  # the night before the first pods are measured is not shown
_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2/namespaces"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
BALLAST = "podscale-ballast"
BALLAST_LABELS = {"app.kubernetes.io/component": "ballast"}
_RESOURCE = "/apis/metrics.k8s.io/v1beta1/namespaces"


class Scene(Struct, frozen=True):
    """One story, as the stage and the view need it."""

    name: str
    title: str
    namespace: str
    workload: str
    kind: Literal["hpa", "vpa", "nodes"]
    measured: str  # path of the metric that decisions are made by
    autoscaler: dict[str, Any] | None = None  # put once the metric is served: before, it would warn
    beside: dict[str, Any] | None = None  # another one, put with it

    @property
    def decision(self) -> str:
        """The path of its explanation; of nodes on the page, of the others at the API server."""
        if self.kind == "nodes":
            return "api/nodes"
        group, plural = {
            "hpa": ("hpa.podscale.io", "scalingdecisions"),
            "vpa": ("vpa.podscale.io", "sizingdecisions"),
        }[self.kind]
        return f"/apis/{group}/v1alpha1/namespaces/{self.namespace}/{plural}/{self.workload}"


def shop_load(elapsed_s: float) -> float:
    """Return the shop's requests per second: a day, from a quiet night to a busy noon."""
    day = (1 - math.cos(2 * math.pi * (elapsed_s + _DAWN_S) / PERIOD_S)) / 2
    return 12.0 + 108.0 * day**2


def api_load(elapsed_s: float) -> float:
    """Return the API's requests per second: the shop's day, at half its size."""
    return shop_load(elapsed_s) / 2


def crunch_load(elapsed_s: float) -> float:
    """Return the cores that the cruncher uses: up to 12, of the 16 that its node has."""
    return shop_load(elapsed_s) / 10


def queue_load(elapsed_s: float) -> float:
    """Return the messages per second: a batch of fifty seconds, then nothing until the next."""
    return 12.0 if 10.0 <= elapsed_s % PERIOD_S < 60.0 else 0.0


def _hpa(
    namespace: str, name: str, least: int, most: int, metric: dict[str, Any]
) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [metric],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 15}]},
                "scaleDown": {
                    "stabilizationWindowSeconds": 20,
                    "policies": [{"type": "Percent", "value": 50, "periodSeconds": 15}],
                },
            },
        },
    }


_BY_RATE = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "http_requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "12"},
    },
}
_BY_BACKLOG = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_messages", "selector": {"matchLabels": {"queue": "orders"}}},
        "target": {"type": "AverageValue", "averageValue": "30"},
    },
}
_BY_CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
}


def _vpa(namespace: str, name: str, resource: str) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
            "resourcePolicy": {
                "containerPolicies": [{"containerName": "app", "controlledResources": [resource]}]
            },
        },
    }


def _coordinated(hpa: dict[str, Any]) -> dict[str, Any]:
    return {**hpa, "metadata": {**hpa["metadata"], "annotations": {COORDINATE: "on"}}}


SCENES: tuple[Scene, ...] = (
    Scene(
        "shop",
        "a shop under a daily load, 12 requests/s per pod wanted, 2 to 10 pods",
        "shop", "web", "hpa",
        f"{_CUSTOM}/shop/pods/*/http_requests_per_second",
        _hpa("shop", "web", 2, 10, _BY_RATE),
    ),
    Scene(
        "worker",
        "a leaking worker: killed for memory, then resized in place",
        "jobs", "worker", "vpa",
        f"{_RESOURCE}/jobs/pods",
        _vpa("jobs", "worker", "memory"),
    ),
    Scene(
        "queue",
        "a queue consumer, 30 messages per pod wanted, 0 to 6 pods",
        "orders", "consumer", "hpa",
        f"{_EXTERNAL}/orders/queue_messages",
        _hpa("orders", "consumer", 0, 6, _BY_BACKLOG),
    ),
    Scene(
        "both",
        "an HPA and a VPA on one CPU: replicas follow the load by an anchor, 2 to 12 pods",
        "api", "api", "hpa",
        f"{_RESOURCE}/api/pods",
        _coordinated(_hpa("api", "api", 2, 12, _BY_CPU)),
        _vpa("api", "api", "cpu"),
    ),
    Scene(
        "nodes",
        "a pod that uses far more than it requests: ballast keeps others off its node",
        "crunch", "cruncher", "nodes",
        f"{_RESOURCE.rpartition('/')[0]}/nodes",
    ),
)  # fmt: skip


def deploy(cluster: SandboxCluster, began_s: float) -> None:
    """Deploy all five and let their load begin; ``began_s`` is the demo's first second."""
    for item in (
        *(_namespace(scene.namespace) for scene in SCENES),
        _deployment("shop", "web", 2, {"requests": {"cpu": "200m", "memory": "128Mi"}}),
        _deployment(
            "jobs", "worker", 2,
            {
                "requests": {"cpu": "100m", "memory": "256Mi"},
                "limits": {"memory": "384Mi"},
            },
        ),
        _deployment("orders", "consumer", 1, {"requests": {"cpu": "100m", "memory": "64Mi"}}),
        _deployment("api", "api", 2, {"requests": {"cpu": "100m", "memory": "128Mi"}}),
        _deployment("crunch", "cruncher", 1, {"requests": {"cpu": "500m", "memory": "64Mi"}}),
        _budget("jobs", "worker"),
        _namespace(BALLAST, BALLAST_LABELS),
        *(_ballast(node["metadata"]["name"]) for node in cluster.server.objects.list("nodes")),
    ):  # fmt: skip
        cluster.server.objects.put(item)
    cluster.load.set(
        "shop", Traffic("shop", selector.parse("app=web"), lambda now: shop_load(now - began_s))
    )
    cluster.load.set(
        "worker",
        Traffic(
            "jobs",
            selector.parse("app=worker"),
            lambda _now: 4.0,
            memory_bytes=128 * MIB,
            leak_bytes_per_s=5 * MIB,
            leaks_until_bytes=700 * MIB,
        ),
    )
    cluster.load.set(
        "api", Traffic("api", selector.parse("app=api"), lambda now: api_load(now - began_s))
    )
    cluster.load.set(
        "crunch",
        Traffic(
            "crunch",
            selector.parse("app=cruncher"),
            lambda now: crunch_load(now - began_s),
            cpu_s_per_request=1.0,
        ),
    )
    cluster.load.queues["orders"] = Queue(
        "orders", selector.parse("app=consumer"), lambda now: queue_load(now - began_s)
    )


def _namespace(name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _deployment(
    namespace: str, name: str, replicas: int, resources: dict[str, Any]
) -> dict[str, Any]:
    container = {"name": "app", "image": f"registry.invalid/{name}", "resources": resources}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [container]},
            },
        },
    }


def _ballast(node: str) -> dict[str, Any]:
    # As the DaemonSet of the manifests makes them, whose controller the sandbox has not.
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"ballast-{node}",
            "namespace": BALLAST,
            "labels": dict(BALLAST_LABELS),
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "pause", "image": "pause", "resources": resources}],
        },
    }


def _budget(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
    }
