"""A small cluster for the HPA's shell: objects in dicts behind the ``Api`` protocol.

Writes follow the API server where the HPA depends on it: resourceVersions, conflicts,
merge patches of a status, generations. What happens is scripted by the tests: ``fail``
raises for a path, ``writes`` remembers what was asked.
"""

import asyncio
import base64
import gzip
import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hpa.cluster.stores import HpaStores, TargetWorkload
from hpa.decide.settings import Settings
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.loop.controller import Controller
from hpa.loop.forecasts import ForecastGate
from hpa.loop.state import ControllerPorts, Options
from hpa.selfmetrics import HpaMetrics
from podscale.core.metrics import Answer, PodSamples, Question, Sample
from podscale.core.samplecolumns import SampleColumns
from podscale.kube.client.api import Method, Response
from podscale.kube.client.errors import ObjectNotFound, WriteConflict
from podscale.kube.client.resource import DEPLOYMENTS, HPAS, Resource
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.discovery import Mapper
from podscale.kube.leadership.lease import Term
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.cluster import ObjectReference
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import ReplicationController, Workload
from tests.kit.api import FakeApi, Sent, ok
from tests.kit.nested import expanded
from tests.kit.stores import fill

NS = "shop"


class World(FakeApi):
    """The API server's side: what is stored, what was written."""

    def __init__(self) -> None:
        self.version = 1000
        self.hpas: dict[tuple[str, str], dict[str, Any]] = {}
        self.workloads: dict[tuple[str, str], dict[str, Any]] = {}
        self.claims: dict[tuple[str, str], dict[str, Any]] = {}  # in-tree HPAs, in own mode
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.writes: list[tuple[Method, str, Any]] = []
        self.rescales: list[tuple[str, int, int]] = []  # name, before, after: those that went in
        self.reads: list[str] = []
        self.fail: Callable[[Method, str], Exception | None] = lambda _method, _path: None
        self.delay: Callable[[Method, str], float] = lambda _method, _path: 0.0
        self.guard: Callable[[], None] = lambda: None

    async def reply(self, sent: Sent) -> Response:
        method, path = sent.method, sent.path
        if delay := self.delay(method, path):
            await asyncio.sleep(delay)
        written = sent.object
        if method == "GET":
            self.reads.append(path)
        else:
            self.guard()
            self.writes.append((method, path, written))
        if failure := self.fail(method, path):
            raise failure
        return ok(self._answer(method, path.strip("/").split("/"), written))

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def _answer(self, method: Method, parts: Sequence[str], sent: Any) -> Any:
        if "configmaps" in parts:
            return self._config_map(method, parts[parts.index("configmaps") + 1 :], sent)
        namespace, name, sub = parts[-4], parts[-2], parts[-1]
        if sub == "scale":
            return self._scale(method, parts[-3], (namespace, name), sent)
        if sub == "status":
            return self._status((namespace, name), sent)
        raise ObjectNotFound(404, "NotFound", "/".join(parts))

    def _scale(self, method: Method, plural: str, key: tuple[str, str], sent: Any) -> Any:
        found = self.workloads.get(key)
        if found is None:
            raise ObjectNotFound(404, "NotFound", f'{plural}.apps "{key[1]}" not found')
        if method == "PUT":
            self._check(found, sent)
            size = (found["spec"]["replicas"], sent["spec"]["replicas"])
            self.rescales.append((key[1], *size))
            found["spec"]["replicas"] = sent["spec"]["replicas"]
            found["metadata"]["resourceVersion"] = self.next_version()
        labels = found["spec"]["selector"]["matchLabels"]
        return {
            "metadata": dict(found["metadata"]),
            "spec": {"replicas": found["spec"]["replicas"]},
            "status": {
                "replicas": found.get("status", {}).get("replicas", 0),
                "selector": ",".join(f"{k}={v}" for k, v in labels.items()),
            },
        }

    def _status(self, key: tuple[str, str], sent: Any) -> Any:
        found = self.hpas[key]
        self._check(found, sent)
        status = {**found.get("status", {}), **sent["status"]}
        found["status"] = {name: value for name, value in status.items() if value is not None}
        found["metadata"] = {
            **found["metadata"],
            "resourceVersion": self.next_version(),
            "managedFields": [writer("podscale-hpa", "2026-11-21T10:00:00Z")],
        }
        return found

    def _check(self, found: Any, sent: Any) -> None:
        wanted = sent["metadata"].get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            raise WriteConflict(409, "Conflict", "the object has been modified")

    def histories(self) -> str:
        """Return the text of every shard, one after the other."""
        return "".join(map(history_of, self.config_maps.values()))

    def _config_map(self, method: Method, rest: Sequence[str], sent: Any) -> Any:
        if method == "GET" and not rest:
            return {"metadata": {}, "items": list(self.config_maps.values())}
        name = rest[0] if rest else sent["metadata"]["name"]
        found = self.config_maps.get(name)
        if method == "GET":
            if found is None:
                raise ObjectNotFound(404, "NotFound", name)
            return found
        if method == "POST" and found is not None:
            raise WriteConflict(409, "AlreadyExists", name)
        if method == "PUT":
            if found is None:
                raise ObjectNotFound(404, "NotFound", name)
            self._check(found, sent)
        stored = {**sent, "metadata": {**sent["metadata"], "resourceVersion": self.next_version()}}
        self.config_maps[name] = stored
        return stored


def history_of(config_map: Any) -> str:
    """Return the text that a shard holds."""
    return gzip.decompress(base64.b64decode(config_map["binaryData"]["history.json.gz"])).decode()


def writer(manager: str, time: str, subresource: str = "status") -> dict[str, str]:
    return {
        "manager": manager,
        "operation": "Update",
        "subresource": subresource,
        "time": time,
        "apiVersion": "autoscaling/v2",
    }


class KnownKinds:
    """A cluster whose discovery tells of these kinds."""

    def __init__(self, *resources: Resource) -> None:
        self.mapper = Mapper(resources)

    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        return self.mapper.for_kind(kind, group, version)


class Metrics:
    """A ``MetricsProvider`` that says what each pod uses."""

    def __init__(self, usage: Callable[[Question, str], int | None]) -> None:
        self.usage = usage  # None: the pod has no sample
        self.pods: Callable[[Question], Sequence[str]] = lambda _question: ()
        self.answer_with: Callable[[Question], Answer | None] = lambda _question: None
        self.asked: list[Sequence[Question]] = []
        self.now: Callable[[], float] = lambda: 0.0
        self.delay_s = 0.0

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        self.asked.append(list(questions))
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        return [self.answer_with(each) or self._samples(each) for each in questions]

    def _samples(self, question: Question) -> PodSamples:
        now = self.now()
        used = {pod: self.usage(question, pod) for pod in self.pods(question)}
        samples = {pod: Sample(v, now, 30.0) for pod, v in used.items() if v is not None}
        return PodSamples(in_columns(samples), now)


def in_columns(samples: Mapping[str, Sample]) -> SampleColumns:
    """Return samples of one window as the adapter answers them."""
    values = array("q", [each.value_milli for each in samples.values()])
    times = [math.nan if each.time_s is None else each.time_s for each in samples.values()]
    window_s = next((each.window_s for each in samples.values()), None)
    return SampleColumns(tuple(samples), values.tobytes(), array("d", times).tobytes(), window_s)


class Silent:
    """A recorder that keeps what it is told."""

    dropped = 0

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str]] = []

    def event(self, about: ObjectReference, level: str, reason: str, message: str) -> None:
        self.events.append((about.name, level, reason, message))


def hpa_object(
    name: str, *metrics: Any, namespace: str = NS, least: int = 1, most: int = 10, **more: Any
) -> dict[str, Any]:
    """Return an HPA on the Deployment of the same name; ``more`` goes into the spec."""
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}-{name}",
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": list(metrics) or [POD_METRIC],
            **more,
        },
    }


POD_METRIC = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}


def deployment_object(name: str, size: int, namespace: str = NS) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"deployment-{namespace}-{name}",
            "resourceVersion": "1",
        },
        "spec": {"replicas": size, "selector": {"matchLabels": {"app": name}}},
        "status": {"replicas": size},
    }


def pod_object(workload: str, number: int, namespace: str = NS) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"{workload}-{number}",
            "namespace": namespace,
            "uid": f"{namespace}-{workload}-{number}",
            "resourceVersion": "1",
            "labels": {"app": workload},
        },
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {
            "phase": "Running",
            "startTime": "2026-11-21T08:00:00Z",
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastTransitionTime": "2026-11-21T08:00:10Z",
                }
            ],
        },
    }


class Cluster:
    """World, stores and a controller over them; ``run_for`` lets it work."""

    def __init__(
        self,
        *,
        settings: Settings | None = None,
        options: Options | None = None,
        kinds: KnownKinds | None = None,
        resource: Resource = HPAS,
        world: World | None = None,
        wall: Callable[[], float] | None = None,
        is_steady: bool = True,
        namespaces: Sequence[str] = (),
        deadband: float = 0.1,
        gate: ForecastGate | None = None,
    ) -> None:
        self.world = world or World()
        self.stores = HpaStores(namespaces, PodStore(namespaces or ("",), keep_annotations=()))
        self.recorder = Silent()
        self.metrics = HpaMetrics()
        self.provider = Metrics(lambda _question, _pod: 1000)
        self.provider.pods = self._pods_of
        self.wall = wall or (lambda: 1_795_000_000.0 + asyncio.get_running_loop().time())
        self.provider.now = self.wall
        kinds = kinds or KnownKinds(DEPLOYMENTS)
        self.ports = ControllerPorts(
            api=self.world,
            stores=self.stores,
            kinds=kinds,
            provider=self.provider,
            mapper=lambda: kinds.mapper,
            recorder=self.recorder,  # type: ignore[arg-type]
            metrics=self.metrics,
            traces=DecisionLog(),
            config_maps=HistoryConfigMaps(self.world, "podscale", "hpa"),
            gate=gate,
        )
        steady = (lambda: asyncio.get_running_loop().time()) if is_steady else None
        self.clock = SteadyClock(self.wall, steady)
        self.controller = Controller(
            self.ports,
            settings or Settings(),
            options or Options(resource=resource, status_deadband=deadband),
            self.clock,
        )

    def put(self, *objects: dict[str, Any]) -> None:
        """Store objects as a watch would bring them."""
        for each in objects:
            key = (each["metadata"]["namespace"], each["metadata"]["name"])
            if "scaleTargetRef" in each["spec"]:
                self.world.hpas[key] = each
            elif "containers" not in each["spec"]:
                self.world.workloads[key] = each
        self.sync()

    def sync(self, *, now: float | None = None) -> None:
        """Bring the stores to what the world holds; pods stay as they were put."""
        at = asyncio.get_running_loop().time() if now is None else now
        written = self.world.hpas.values()
        hpas = [decode(expanded(msgspec.json.encode(each)), Autoscaler) for each in written]
        workloads, replica_sets = [], []
        for each in self.world.workloads.values():
            raw = expanded(msgspec.json.encode(each))
            if each.get("kind") == "ReplicaSet":
                replica_sets.append(decode(raw, Workload))
            else:
                workloads.append(decode(raw, TargetWorkload))
        controllers: list[ReplicationController] = []
        claims = [
            decode(msgspec.json.encode(each), Autoscaler) for each in self.world.claims.values()
        ]
        version = str(self.world.version)
        for store, items in (
            (self.stores.autoscalers, hpas),
            (self.stores.deployments, workloads),
            (self.stores.stateful_sets, []),
            (self.stores.replica_sets, replica_sets),
            (self.stores.replication_controllers, controllers),
            (self.stores.claims, claims),
        ):
            for scope in self.stores.scopes:
                within = [each for each in items if scope in ("", each.metadata.namespace)]
                fill(store, within, version, scope=scope, now=at)

    def put_pods(self, *pods: dict[str, Any]) -> None:
        """Make these all the pods there are."""
        found = [decode(msgspec.json.encode(each), Pod) for each in pods]
        at = asyncio.get_running_loop().time()
        version = self.world.next_version()
        for scope in self.stores.scopes:
            within = [each for each in found if scope in ("", each.metadata.namespace)]
            fill(self.stores.pods, within, version, scope=scope, now=at)

    async def run_for(self, seconds: float, term: Term | None = None) -> None:
        """Let the controller lead for so long (virtual seconds under looptime)."""
        leading = asyncio.ensure_future(self.controller.run(term or Term(None)))
        await asyncio.wait({leading}, timeout=seconds)
        if leading.done():
            await leading
        leading.cancel()
        await asyncio.wait({leading})

    def scales(self) -> list[tuple[str, int]]:
        """Return the sizes written, in order."""
        return [
            (path.split("/")[-2], body["spec"]["replicas"])
            for method, path, body in self.world.writes
            if method == "PUT" and path.endswith("/scale")
        ]

    def statuses(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the status patches, in order."""
        return [
            (path.split("/")[-2], body["status"])
            for method, path, body in self.world.writes
            if method == "PATCH"
        ]

    def _pods_of(self, question: Question) -> Sequence[str]:
        selector = getattr(question, "selector", "")
        app = selector.partition("=")[2]
        return [
            name
            for name in self.stores.pods.select_all(getattr(question, "namespace", NS)).names
            if name.rpartition("-")[0] == app
        ]
