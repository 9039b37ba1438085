"""A cluster in dicts for the room-maker: an ``Api`` with evictions that PodDisruptionBudgets
refuse, the kubelet's side of resizes, controllers that make pods anew."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from podscale.core import quantity
from podscale.core.disruptions import MAKE_ROOM
from podscale.kube.client.api import Method, Response
from podscale.kube.client.errors import Forbidden, ObjectNotFound, TooManyRequests
from podscale.kube.client.wire import HasMetadata, StatusCause, decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.events import Recorder
from podscale.kube.informer.fed_store import Sink
from podscale.kube.informer.list_watch import (
    Happening,
    ListBegan,
    ListEnded,
    ListPage,
    WatchAlive,
)
from podscale.kube.informer.store import Store
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.vpa import StoredVpa
from podscale.nodes.room.plan import RoomChoice
from podscale.nodes.room.room_maker import RoomMaker
from podscale.nodes.selfmetrics import NodesMetrics

NOW = 1_795_000_000.0  # Wednesday, 2026-11-18, 11:06:40 UTC
Json = dict[str, Any]
T = TypeVar("T", bound=HasMetadata)


def milli(amount: str) -> int:
    return quantity.parse(amount).milli


def in_force(pod: Json) -> int:
    return milli(pod["status"]["containerStatuses"][0]["resources"]["requests"]["cpu"])


class RoomCluster:
    """Nodes of 10 cores, workloads of equal pods, and a room-maker over them."""

    user_agent = "podscale-nodes/test"

    def __init__(self) -> None:
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.sets: dict[str, Json] = {}  # ReplicaSets, each owned by a Deployment of its name
        self.vpas: dict[str, Json] = {}
        self.budgets: dict[str, Json] = {}
        self.gate = b""  # of the API server's metrics
        self.admission_s: float | None = NOW  # when it renewed its Lease
        self.unreadable = ""  # a path
        self.volumes: dict[str, Json] = {}  # claims' names to volumes
        self.asked: list[str] = []  # reads
        self.evicted: list[str] = []
        self.refused: list[str] = []  # evictions that were not asked dry first
        self.events: list[tuple[str, str]] = []  # reason, name of the pod
        self.before_eviction: Callable[[Json], None] = lambda _pod: None
        self.pod_store, self.vpa_store = PodStore(), Store[StoredVpa]()
        self._made = 0
        self.now = NOW
        self.recorder = Recorder(self, "test", clock=lambda: self.now)
        self.registry = CollectorRegistry()
        self.maker = RoomMaker(
            self, self.pod_store, self.vpa_store, RoomChoice(), NodesMetrics(self.registry),
            self.recorder, wall=lambda: self.now,
        )  # fmt: skip

    def node(self, name: str, cores: int = 10, **spec: Any) -> None:
        amounts = {"cpu": str(cores), "memory": "64Gi", "pods": "110"}
        labels = {"kubernetes.io/hostname": name}
        self.nodes[name] = {"metadata": {"name": name, "labels": labels}, "spec": spec,
                            "status": {"allocatable": amounts, "capacity": amounts}}  # fmt: skip

    def workload(
        self, name: str, cpu: str, *where: str, opted_in: bool = True, pdb: int | None = None,
        replicas: int | None = None, annotations: Mapping[str, str] | None = None,
        mode: str = "InPlaceOrRecreate", pod_annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:  # fmt: skip
        """One pod on each node of ``where``; ``pdb`` is minAvailable."""
        self.sets[name] = {
            "metadata": {"name": name, "namespace": "shop", "uid": f"set-{name}",
                         "ownerReferences": [{"kind": "Deployment", "name": name, "uid": "d",
                                              "controller": True}]},
            "spec": {"replicas": len(where) if replicas is None else replicas},
        }  # fmt: skip
        self.vpas[name] = {
            "metadata": {"name": name, "namespace": "shop", "annotations":
                         {**({MAKE_ROOM: "true"} if opted_in else {}), **(annotations or {})}},
            "spec": {"targetRef": {"kind": "Deployment", "name": name},
                     "updatePolicy": {"updateMode": mode}},
        }  # fmt: skip
        if pdb is not None:
            self.budgets[name] = {
                "metadata": {"name": name, "namespace": "shop", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": name}}, "minAvailable": pdb},
            }
        for node in where:
            self.pod(name, cpu, node, dict(pod_annotations or {}), **spec)

    def pod(
        self, workload: str, cpu: str, node: str, annotations: Json | None = None, **spec: Any
    ) -> str:
        self._made += 1
        name = f"{workload}-{self._made}"
        resources = {"requests": {"cpu": cpu, "memory": "1Mi"}}
        owner = {"kind": "ReplicaSet", "name": workload, "uid": f"set-{workload}",
                 "controller": True}  # fmt: skip
        self.pods[name] = {
            "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}",
                         "labels": {"app": workload}, "annotations": annotations or {},
                         "ownerReferences": [owner]},
            "spec": {"nodeName": node, "containers": [{"name": "app", "resources": resources}],
                     **spec},
            "status": {"phase": "Running" if node else "Pending", "conditions": [],
                       "containerStatuses": [{"name": "app", "resources": resources}]},
        }  # fmt: skip
        return name

    def one(self, workload: str) -> Json:
        """Return the first pod of a workload."""
        return next(pod for pod in self.pods.values()
                    if pod["metadata"]["labels"]["app"] == workload)  # fmt: skip

    def resize(self, workload: str, cpu: str) -> Json:
        """Ask for another size of the workload's first pod; returns the pod."""
        pod = self.one(workload)
        container = pod["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": cpu, "memory": "1Mi"}}
        self.kubelet()
        return pod

    def is_waiting(self, pod: Json) -> bool:
        return any(each["type"] == "PodResizePending" for each in pod["status"]["conditions"])

    def kubelet(self) -> None:
        """Let pods go that are leaving, then grant resizes: higher priorities first."""
        for name in [n for n, p in self.pods.items() if "deletionTimestamp" in p["metadata"]]:
            del self.pods[name]
        for pod in sorted(self.pods.values(), key=lambda pod: -pod["spec"].get("priority", 0)):
            wanted = pod["spec"]["containers"][0]["resources"]
            status = pod["status"]["containerStatuses"][0]
            if not pod["spec"]["nodeName"] or status["resources"] == wanted:
                continue
            node = pod["spec"]["nodeName"]
            room = milli(self.nodes[node]["status"]["allocatable"]["cpu"])
            others = sum(in_force(each) for each in self._on(node, pod))
            size = milli(wanted["requests"]["cpu"])
            if size + others <= room:
                status["resources"] = wanted
                pod["status"]["conditions"] = []
            else:
                reason = "Infeasible" if size > room else "Deferred"
                pod["status"]["conditions"] = [
                    {"type": "PodResizePending", "status": "True", "reason": reason}
                ]

    def _on(self, node: str, but: Json) -> list[Json]:
        return [each for each in self.pods.values()
                if each["spec"]["nodeName"] == node and each is not but]  # fmt: skip

    def controllers(self) -> None:
        """Make pods anew that are missing, where there is room for what pods want."""
        for name, owner in self.sets.items():
            live = [pod for pod in self.pods.values() if pod["metadata"]["labels"]["app"] == name]
            if not live:
                continue
            cpu = live[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            for _ in range(owner["spec"]["replicas"] - len(live)):
                node = next((n for n in self.nodes if self.left(n) >= milli(cpu)), "")
                self.pod(name, cpu, node, priority=live[0]["spec"].get("priority", 0))

    def left(self, node: str) -> int:
        """Return what is left of a node as the scheduler counts, in thousandths of a core."""
        used = sum(
            max(milli(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]), in_force(pod))
            for pod in self._on(node, {})
        )
        return milli(self.nodes[node]["status"]["allocatable"]["cpu"]) - used

    def healthy(self, workload: str) -> int:
        """Return how many pods of a workload run and stay."""
        return sum(
            pod["metadata"]["labels"]["app"] == workload
            and pod["status"]["phase"] == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            for pod in self.pods.values()
        )

    def allowed(self, budget: str) -> int:
        least: int = self.budgets[budget]["spec"]["minAvailable"]
        return max(self.healthy(budget) - least, 0)

    def feed(self) -> None:
        """Bring the stores to what there is."""
        self._made += 1
        self._list(self.pods, Pod, self.pod_store)
        self._list(self.vpas, StoredVpa, self.vpa_store)

    def _list(self, objects: Mapping[str, Json], kind: type[T], store: Sink[T]) -> None:
        version = str(self._made)
        for each in objects.values():
            each["metadata"]["resourceVersion"] = version
        items = [decode(msgspec.json.encode(each), kind) for each in objects.values()]
        listed: list[Happening[T]] = [ListBegan(), ListPage(items, version), ListEnded(version),
                                      WatchAlive(version, 1e9)]  # fmt: skip
        for happening in listed:
            store.apply(happening, scope="", now=time.monotonic())

    async def round(self, seconds: float = 0.0) -> list[str]:
        """Run one round of the room-maker; returns who was evicted."""
        self.now += seconds
        before = len(self.evicted)
        self.feed()
        await self.maker.once()
        return self.evicted[before:]

    async def told(self) -> list[tuple[str, str]]:
        """Return the events so far."""
        await self.recorder.flush(1.0)
        return self.events

    def plans(self) -> dict[str, int]:
        """Return the plans by reason."""
        return {
            sample.labels["reason"]: int(sample.value)
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "podscale_nodes_room_plans_total"
        }

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        accept: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        most_bytes: int = 0,
        guard: Callable[[], None] | None = None,
    ) -> Response:
        if path.endswith("/eviction"):
            return self._evict(path.split("/")[-2], msgspec.json.decode(body or b""))
        if path.endswith("/events"):
            event = msgspec.json.decode(body or b"")
            self.events.append((event["reason"], event["involvedObject"]["name"]))
            return _answer({"metadata": event["metadata"]})
        assert method == "GET"
        self.asked.append(path)
        if path == "/metrics":
            return Response(200, {}, self.gate)
        return _answer(self._read(path, query or {}))

    def stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def _read(self, path: str, query: Mapping[str, str]) -> Json:
        if path == self.unreadable:
            raise Forbidden(403, "Forbidden", path)
        kind, name = path.split("/")[-2:]
        if path == "/api/v1/pods":
            found = re.match("spec.nodeName=([^,]+)", query.get("fieldSelector", ""))
            return {"items": [pod for pod in self.pods.values()
                              if found is None or pod["spec"]["nodeName"] == found[1]]}  # fmt: skip
        if path == "/api/v1/nodes":
            return {"items": list(self.nodes.values())}
        if path == "/api/v1/namespaces":
            return {"items": [{"metadata": {"name": "shop"}}]}
        if path.endswith("/poddisruptionbudgets"):
            return {"items": [
                {**each, "status": {"disruptionsAllowed": self.allowed(budget),
                                    "observedGeneration": 1}}
                for budget, each in self.budgets.items()
            ]}  # fmt: skip
        if kind == "leases" and self.admission_s is not None:
            renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(self.admission_s))
            return {"metadata": {"name": name}, "spec": {"renewTime": renewed}}
        if kind == "persistentvolumeclaims":
            return {"metadata": {"name": name}, "spec": {"volumeName": name}}
        objects = {"nodes": self.nodes, "replicasets": self.sets,
                   "persistentvolumes": self.volumes}.get(kind, {})  # fmt: skip
        if name in objects:
            return objects[name]
        raise ObjectNotFound(404, "NotFound", path)

    def _evict(self, name: str, body: Json) -> Response:
        pod, options = self.pods.get(name), body["deleteOptions"]
        if pod is None or options["preconditions"]["uid"] != pod["metadata"]["uid"]:
            raise ObjectNotFound(404, "NotFound", name)
        is_dry = options.get("dryRun") == ["All"]
        budget = pod["metadata"]["labels"]["app"]
        if budget in self.budgets and not self.allowed(budget):
            if not is_dry:
                self.refused.append(name)
            cause = StatusCause(reason="DisruptionBudget", message="not now")
            raise TooManyRequests(429, "TooManyRequests", "budget", causes=[cause])
        if not is_dry:
            self.before_eviction(pod)
            self.evicted.append(name)
            pod["metadata"]["deletionTimestamp"] = "2026-11-18T11:06:40Z"
        return _answer({})


class Unreadable(RoomCluster):
    """One whose pods may not be read."""

    def _read(self, path: str, query: Mapping[str, str]) -> Json:
        raise Forbidden(403, "Forbidden", path)


def _answer(body: Json) -> Response:
    return Response(200, {}, msgspec.json.encode(body))
