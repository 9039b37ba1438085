"""Nodes, pods and usage in memory, and the API server's side of a resize."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from podscale.core.metrics import (
    Answer,
    ContainerColumns,
    NodeUsage,
    NodeUsageColumns,
    Question,
    Unavailable,
)
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiError, ApiUnreachable, ObjectNotFound
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import Node
from podscale.kube.objects.pod import Pod
from podscale.nodes.cluster.patches import TAINT_KEY
from tests.kit.api import FakeApi, Sent, ok
from tests.kit.stores import fill

GI = 2**30
BALLAST = {"app.kubernetes.io/component": "ballast"}


class Fleet(FakeApi):
    """An ``Api`` and a ``MetricsProvider`` over objects in dicts."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.lease: dict[str, Any] | None = None
        self.usage: dict[str, tuple[float, float]] = {}  # cores, bytes
        self.pod_usage: list[tuple[str, str, float, float]] = []
        self.taken_s = 0.0  # when usage was measured
        self.is_silent = False  # nothing answers about metrics
        self.is_broken = False  # or it raises
        self.is_down = False  # the API server does not answer
        self.patches: list[tuple[str, Any]] = []  # None: the pod was deleted
        self.refused: set[str] = set()  # pods that are not resized
        self.may_label = True  # pods
        self.renewed: list[str] = []  # pods that are of an older revision now
        self.events: list[str] = []  # reasons
        self.event_messages: list[str] = []
        self.node_store: Store[Node] = Store()
        self.pod_store = PodStore()
        self._version = 1

    def node(self, name: str, cores: float = 10.0, **metadata: Any) -> dict[str, Any]:
        amounts = {"cpu": str(cores), "memory": "32Gi"}
        self.nodes[name] = {
            "metadata": {"name": name, **metadata},
            "status": {"capacity": amounts, "allocatable": dict(amounts)},
        }
        return self.nodes[name]

    def pod(
        self,
        name: str,
        node: str,
        cpu: str = "",
        *,
        started: str = "2026-11-24T00:00:00Z",
        labels: Mapping[str, str] | None = None,
        namespace: str = "shop",
        container: str = "app",
        **spec: Any,
    ) -> dict[str, Any]:
        requests = {"cpu": cpu, "memory": "1Mi"} if cpu else {}
        self.pods[name] = {
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}",
                         "labels": dict(labels or {})},
            "spec": {"nodeName": node, **spec,
                     "containers": [{"name": container, "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "startTime": started},
        }  # fmt: skip
        return self.pods[name]

    def ballast(self, node: str, cpu: str = "1m", **spec: Any) -> dict[str, Any]:
        return self.pod(f"ballast-{node}", node, cpu, labels=BALLAST, container="pause",
                        namespace="podscale-ballast", **spec)  # fmt: skip

    def held(self, node: str) -> str:
        """Return what the ballast of a node requests of CPU."""
        container = self.pods[f"ballast-{node}"]["spec"]["containers"][0]
        return str(container["resources"]["requests"]["cpu"])

    def tainted(self) -> list[str]:
        """Return the nodes that have the taint of mode taint."""
        taints = {name: node.get("spec", {}).get("taints", ()) for name, node in self.nodes.items()}
        return [
            name for name, has in taints.items() if any(each["key"] == TAINT_KEY for each in has)
        ]

    def feed(self) -> None:
        """Bring the stores to what there is."""
        self._version += 1
        for objects, kind, store in (
            (self.nodes, Node, self.node_store), (self.pods, Pod, self.pod_store),
        ):  # fmt: skip
            for each in objects.values():
                each["metadata"]["resourceVersion"] = str(self._version)
            items = [decode(msgspec.json.encode(each), kind) for each in objects.values()]
            fill(store, items, str(self._version))

    async def reply(self, sent: Sent) -> Response:
        if self.is_down:
            raise ApiUnreachable("connection refused")
        method, path = sent.method, sent.path
        if method == "PATCH" and path.endswith("/resize"):
            return self._resize(path.split("/")[-2], sent.object)
        if method == "DELETE" and "/pods/" in path:
            return self._delete(path.split("/")[-1], sent.object)
        if method == "PATCH" and "/pods/" in path:
            return self._label(path.split("/")[-1], sent.object)
        if method == "PATCH" and path.startswith("/api/v1/nodes/"):
            return self._patch_node(path.split("/")[-1], sent.object)
        if path == "/api/v1/nodes":
            items = list(self.nodes.values())
            return ok({"items": items})
        if method == "POST" and path.endswith("/events"):
            self.events.append(sent.object["reason"])
            self.event_messages.append(sent.object["message"])
            return ok({"metadata": sent.object["metadata"]})
        if path.endswith("/pods"):
            assert sent.query == {"labelSelector": "app.kubernetes.io/component=ballast"}
            items = [each for each in self.pods.values() if each["metadata"]["labels"] == BALLAST]
            return ok({"items": items})
        if "/leases/" in path and self.lease is not None:
            return ok(self.lease)
        raise ObjectNotFound(404, "NotFound", path)

    def _resize(self, name: str, patch: Sequence[Mapping[str, Any]]) -> Response:
        pod = self.pods.get(name)
        if pod is None:
            raise ObjectNotFound(404, "NotFound", name)
        if name in self.refused:
            raise ApiError(403, "Forbidden", name)
        uid, container, requests = (each["value"] for each in patch)
        assert uid == pod["metadata"]["uid"]
        assert container == pod["spec"]["containers"][0]["name"]
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        pod["spec"]["containers"][0]["resources"]["requests"] = requests
        self.patches.append((name, requests))
        return ok(pod)

    def _delete(self, name: str, options: Mapping[str, Any]) -> Response:
        if name in self.refused:
            raise ApiError(403, "Forbidden", name)
        pod = self.pods.pop(name)
        assert options == {"preconditions": {"uid": pod["metadata"]["uid"]}}
        self.patches.append((name, None))
        return ok(pod)

    def _label(self, name: str, patch: Sequence[Mapping[str, Any]]) -> Response:
        if not self.may_label:
            raise ApiError(403, "Forbidden", name)
        pod, (test, *labels) = self.pods[name], patch
        assert test["value"] == pod["metadata"]["uid"]
        for each in labels:
            pod["metadata"]["labels"][each["path"].rpartition("/")[2]] = each["value"]
        self.renewed.append(name)
        return ok(pod)

    def _patch_node(self, name: str, patch: Sequence[Mapping[str, Any]]) -> Response:
        node, (test, change) = self.nodes[name], patch
        if test["value"] != node["metadata"]["resourceVersion"]:
            raise ApiError(422, "Invalid", "the server rejected our request: testing failed")
        spec = node.setdefault("spec", {})
        *_, place = change["path"].split("/")
        if place == "taints":
            assert not spec.get("taints")
            spec["taints"] = change["value"]
        elif place == "-":
            spec["taints"].append(change["value"])
        else:
            assert change["op"] == "remove"
            del spec["taints"][int(place)]
        return ok(node)

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        if self.is_broken:
            raise ZeroDivisionError
        if self.is_silent:
            return [Unavailable("Down", "nobody answers")] * len(questions)
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        if isinstance(question, NodeUsage):
            rows = [self.usage.get(name, (np.nan, np.nan)) for name in question.names]
            cores, bytes_ = np.array(rows, np.float64).reshape(-1, 2).T
            return NodeUsageColumns(cores, bytes_, np.full(len(rows), self.taken_s), self.taken_s)
        columns = [[row[place] for row in self.pod_usage] for place in range(4)]
        return ContainerColumns(
            columns[0], columns[1], ["app"] * len(self.pod_usage),
            np.array(columns[2], np.float64), np.array(columns[3], np.float64),
            np.full(len(self.pod_usage), self.taken_s), self.taken_s,
        )  # fmt: skip
