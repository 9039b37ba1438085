"""Both parts over one workload of a simulated cluster, each of them killed at its own writes.

The recommender is the product's, and so are the HPA's decisions and its look at the VPAs; the API
server, the ReplicaSet, the kubelets, the updater and the metrics are a few lines here. Watches lag
behind, parts stay away for seconds, pods come, grow and leave one by one, and those that leave
carry a share of the load to their end. Days are seconds, as ``tests.cluster.short_days`` has them.
"""

import json
import math
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import numpy as np
from msgspec import Struct
from prometheus_client import CollectorRegistry

from hpa.cluster import writer
from hpa.cluster.stores import VpaAnchors
from hpa.decide.api.spec import HPA, Behavior, HpaStatus, MetricSpec, Rules
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Outcome
from hpa.decide.observation import Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from podscale.coordinate.anchor import ANNOTATION, Anchor, anchor_clause, parse
from podscale.core.metrics import ContainerColumns, NoData, PodSamples, Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.quantity import parse as quantity
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiUnreachable, WriteConflict
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.store import Store
from podscale.kube.objects.autoscaler import Autoscaler, CrossVersionObjectReference, Policy
from podscale.kube.objects.pod import Pod, TemplateContainer, WirePodTemplate
from podscale.kube.objects.scale import Workload
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from tests.unit.vpa.test_stores import NoKinds
from vpa.model.estimation.annotations import HalfLives, VpaSettings
from vpa.recommender.coordination import WatchedHpas
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.pod_feed import StoredEvent
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores

START, STEP_S, PERCENT, MOST = 1.7e9, 0.25, 50, 40
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
AT_ONCE = (Policy("Pods", 50, 1),)
BEHAVIOR = Behavior(Rules(0, "Max", AT_ONCE), Rules(3, "Max", AT_ONCE))
CPU = MetricSpec("Resource", "cpu", average_utilization=PERCENT)
SETTINGS = Settings(
    cpu_initialization_s=1.0, initial_readiness_delay_s=1.0, sync_period_s=1.0, coordinates=True
)
WRITES = (
    ("recommender", "anchor"), ("recommender", "size"), ("hpa", "condition"), ("hpa", "replicas"),
)  # fmt: skip
SETTLES_S = 240.0


class SimulatedPod(Struct):
    name: str
    request: int
    created: float
    running: float  # from when on
    deleted: float | None = None  # when that was asked for
    gone: float = math.inf


class SimulatedCluster:
    """An API server with one workload, its HPA and its VPA, and what becomes of its pods."""

    user_agent = "podscale-recommender/test"

    def __init__(self, seed: int, *, is_evicting: bool, leaves_within_s: float) -> None:
        self.draw = random.Random(seed)
        self.is_evicting, self.leaves_within_s = is_evicting, leaves_within_s
        self.now, self.cores, self.band, self.replicas = START, 2.0, (2, 4), 4
        meta = {"name": "web", "namespace": "shop", "uid": "u-vpa", "resourceVersion": "1"}
        policy = {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]}
        self.vpa: dict[str, Any] = {
            "metadata": meta, "spec": {"targetRef": TARGET, "resourcePolicy": policy},
        }  # fmt: skip
        self.status = HpaStatus()
        self.pods: dict[str, SimulatedPod] = {}
        self.kills: list[tuple[str, str, bool]] = []  # part, write, whether it is still taken
        self.away_until = {"hpa": 0.0, "recommender": 0.0}
        self.sizes: set[int] = set()  # that an anchor had
        self.faults: list[str] = []
        self._made = self._version = 0
        self._replica_set_at = 0.0
        for _ in range(self.replicas):
            self._create(1000, START - 100.0)

    @property
    def version(self) -> str:
        """A resourceVersion of now."""
        return str(int(self.now / STEP_S))

    @property
    def anchor(self) -> Anchor | None:
        return parse(self.vpa["metadata"].get("annotations", {}).get(ANNOTATION), "u-web")

    @property
    def living(self) -> list[SimulatedPod]:
        return [each for each in self.pods.values() if each.deleted is None]

    @property
    def used(self) -> dict[str, float]:
        """Milli-cores by pod: those that run share the load, also those that leave."""
        running = [each.name for each in self.pods.values() if each.running <= self.now]
        return dict.fromkeys(running, 1000.0 * self.cores / len(running)) if running else {}

    def write(self, part: str, what: str, do: Callable[[], None]) -> None:
        """Take a write, or end the part at it."""
        due = (each for each in self.kills if each[:2] == (part, what))
        kill = next(due, None)
        if kill is None or kill[2]:
            do()
        if kill is not None:
            self.kills.remove(kill)
            self.away_until[part] = self.now + self.draw.uniform(0.5, 10.0)
            raise ApiUnreachable("killed")  # the pass ends here, and so does the process

    async def request(self, method: str, path: str, **given: Any) -> Response:
        """Answer the recommender."""
        if method != "PATCH" or "verticalpodautoscalers/" not in path:
            return Response(200, {}, b'{"items": [], "metadata": {}}')
        new = json.loads(encode(self.vpa))
        for step in json.loads(given["body"]):
            _apply(new, step)
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version + 1)
        what = "anchor"
        if path.endswith("/status"):
            what = "size" if target(new) != target(self.vpa) else "conditions"
        self.write("recommender", what, lambda: setattr(self, "vpa", new))
        return Response(200, {}, json.dumps(self.vpa).encode())

    def hpa(self) -> dict[str, Any]:
        """Return the HPA as it is listed."""
        resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": PERCENT}}
        notes = {
            "podscale.io/coordinate": "on",
            "podscale.io/comfort-replicas": f"{self.band[0]}-{self.band[1]}",
        }
        return {
            "metadata": {"name": "web", "namespace": "shop", "resourceVersion": self.version,
                         "annotations": notes, "creationTimestamp": rfc3339(START)},
            "spec": {
                "scaleTargetRef": TARGET, "minReplicas": 1, "maxReplicas": MOST,
                "behavior": {"scaleUp": {"stabilizationWindowSeconds": BEHAVIOR.up.window_s},
                             "scaleDown": {"stabilizationWindowSeconds": BEHAVIOR.down.window_s}},
                "metrics": [{"type": "Resource", "resource": resource}],
            },
            "status": writer.status_changes(HpaStatus(), self.status),
        }  # fmt: skip

    def step(self) -> None:
        """Let the ReplicaSet and the kubelets work."""
        self.pods = {name: each for name, each in self.pods.items() if each.gone > self.now}
        living = self.living
        missing = self.replicas - len(living)
        if not missing or self.now < self._replica_set_at:
            return
        self._replica_set_at = self.now + self.draw.uniform(0.1, 1.5)
        for _ in range(missing):
            self._create(target(self.vpa) or 1000, self.now + self.draw.uniform(0.2, 2.0))
        living.sort(key=lambda each: (each.running <= self.now, -each.created))
        for each in living[: max(-missing, 0)]:
            self._delete(each)

    def update(self) -> None:
        """Let the updater resize or evict some pods."""
        wanted = target(self.vpa)
        running = [each for each in self.living if each.running <= self.now]
        wrong = [each for each in running if wanted and each.request != wanted]
        if not self.is_evicting:
            for each in wrong[: self.draw.randint(1, max(len(running), 1))]:
                each.request = wanted
            return
        absent = self.replicas - len(running)
        for each in wrong[: max(self.replicas // 2 - absent, 0)]:
            self._delete(each)

    def check(self) -> None:
        """Note what must not be: a size without its anchor, fewer cores than there is load."""
        if self.anchor is not None:
            self.sizes.add(self.anchor.size)
        published = target(self.vpa)
        if published not in self.sizes | {0}:
            self.faults.append(f"{self}: no anchor had {published}m")
        smallest = min([*(each.request for each in self.living), published or 1000])
        if self.replicas * smallest < 1000 * self.cores:
            self.faults.append(f"{self}: {self.replicas} of {smallest}m")

    def is_settled(self) -> bool:
        """Whether everybody holds to the anchor, and replicas are in the band."""
        anchor, (low, high) = self.anchor, self.band
        told = next((x.message for x in self.status.conditions if x.type == "Coordinated"), "")
        return (
            anchor is not None
            and low <= self.replicas <= high
            and target(self.vpa) == anchor.size
            and [each.request for each in self.living] == [anchor.size] * self.replicas
            and told.endswith(anchor_clause(anchor))
        )

    def __str__(self) -> str:
        requests = [each.request for each in self.living]
        return (
            f"{self.now - START:.2f} s, {self.cores} cores: {self.anchor}, {target(self.vpa)}m "
            f"published, {self.replicas} wanted of {requests}, {self.kills} to come"
        )

    def _create(self, request: int, running: float) -> None:
        self._made += 1
        name = f"web-{self._made:04d}"
        self.pods[name] = SimulatedPod(name, request, min(running, self.now), running)

    def _delete(self, pod: SimulatedPod) -> None:
        pod.deleted = self.now
        pod.gone = self.now + self.draw.uniform(0.1, self.leaves_within_s)


def target(vpa: dict[str, Any]) -> int:
    """Return what is published, milli-cores; 0: nothing."""
    found = (vpa.get("status") or {}).get("recommendation") or {}
    entries = found.get("containerRecommendations", ())
    return sum(quantity(each["target"]["cpu"]).milli for each in entries)


def _apply(at: dict[str, Any], step: dict[str, Any]) -> None:
    *path, last = (part.replace("~1", "/") for part in step["path"].strip("/").split("/"))
    for part in path:
        at = at[part]
    if step["op"] == "test":
        if at[last] != step["value"]:
            raise WriteConflict(409, "Conflict", "the object has been modified")
    elif step["op"] == "remove":
        del at[last]
    else:
        at[last] = step["value"]


class SimulatedHpaPart:
    """A process of the HPA."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._past = Past()
        self._anchors = VpaAnchors(("",))
        self._has_listed = False

    async def step(self) -> None:
        """Make one pass."""
        cluster = self._cluster
        draw = cluster.draw.random()
        if draw < (0.8 if self._has_listed else 0.3):  # the watch may be behind, or not stand yet
            fill(self._anchors.store, [decode(encode(cluster.vpa), StoredVpa)], "9")
            self._has_listed = True
        ref = CrossVersionObjectReference("Deployment", "web", "apps/v1")
        hpa = HPA("shop", "web", ref, MOST, (CPU,), behavior=BEHAVIOR, status=cluster.status)
        used = {pod: Sample(round(each), cluster.now) for pod, each in sorted(cluster.used.items())}
        answer = PodSamples(used, cluster.now) if used else NoData("NoSample", "no pod runs")
        scale = Scale(cluster.replicas, cluster.replicas, "app=web")
        held = self._anchors.held(hpa, "u-web")
        seen = Observation(hpa, scale, self._pods(), (answer,), held=held)
        decision = decide(seen, self._past, SETTINGS, cluster.now)
        replicas = decision.replicas
        if replicas is not None:
            cluster.write("hpa", "replicas", lambda: setattr(cluster, "replicas", replicas))
        concluded = conclude(decision, Outcome(), cluster.now)
        self._past = concluded.past
        if not concluded.is_status_changed:
            return
        if writer.tells_more(hpa, concluded.status, deadband=0.1):
            before, after = _coordinated(cluster.status), _coordinated(concluded.status)
            what = "condition" if held.anchor is not None and before != after else "status"
            cluster.write("hpa", what, lambda: setattr(cluster, "status", concluded.status))

    def _pods(self) -> Pods:
        cluster = self._cluster
        pods = sorted(cluster.pods.values(), key=lambda each: each.name)
        requests = sorted({each.request for each in pods})
        runs = [each.running <= cluster.now for each in pods]
        return Pods(
            tuple(each.name for each in pods),
            bytes(PodPhase.RUNNING if each else PodPhase.PENDING for each in runs),
            bytes(PodReadiness.TRUE if each else PodReadiness.FALSE for each in runs),
            bytes(each.deleted is not None for each in pods),
            tuple(each.created for each in pods),
            tuple(max(each.created, each.running) for each in pods),
            tuple(requests.index(each.request) for each in pods),
            tuple(WirePodTemplate((TemplateContainer("app", {"cpu": each}),))
                  for each in requests),
        )  # fmt: skip


def _coordinated(status: HpaStatus) -> tuple[str, str]:
    found = (each for each in status.conditions if each.type == "Coordinated")
    return next(((each.reason, each.message) for each in found), ("", ""))


class SimulatedRecommenderPart:
    """A process of the recommender."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._has_begun = False
        self._stores = VpaStores(cluster, NoKinds())  # type: ignore[arg-type]
        self._hpas = WatchedHpas(("",))
        evictions: Store[StoredEvent] = Store(("",))
        workloads = self._stores.workloads
        for each in (
            evictions, self._stores.limit_ranges, self._stores.budgets, workloads.controllers,
            workloads.cron_jobs, *workloads.by_kind.values(),
        ):  # fmt: skip
            fill(each, [], "9")
        settings = VpaSettings(half_lives=HalfLives(cpu_s=1.0))
        self._recommender = Recommender(
            cluster, self._stores, evictions, self,  # type: ignore[arg-type]
            Options(interval_s=1.0, settings=settings), RecommenderMetrics(CollectorRegistry()),
            hpas=self._hpas, wall=lambda: cluster.now,
        )  # fmt: skip

    async def answer(self, _questions: Any) -> list[ContainerColumns]:
        """Return the usage of every pod."""
        now, used = self._cluster.now, self._cluster.used
        cores = np.array(list(used.values())) / 1000.0
        unknown = np.full(len(used), np.nan)
        names = ["shop"] * len(used), list(used), ["app"] * len(used)
        return [ContainerColumns(*names, cores, unknown, np.full(len(used), now), now)]

    async def step(self) -> None:
        """Make one pass."""
        self._show()
        if not self._has_begun:
            self._has_begun = True
            await self._recommender._remember()
        await self._recommender.once()

    def _show(self) -> None:
        cluster, version = self._cluster, self._cluster.version
        fill(self._stores.vpas, [decode(encode(cluster.vpa), StoredVpa)], "9")
        meta = {"namespace": "shop", "resourceVersion": version}
        spec = {"replicas": cluster.replicas, "selector": {"matchLabels": {"app": "web"}}}
        web = {"metadata": {**meta, "name": "web", "uid": "u-web"}, "spec": spec}
        deployments = self._stores.workloads.by_kind["Deployment"]
        fill(deployments, [decode(encode(web), Workload)], version)
        pods = [decode(encode(self._pod(each, meta)), Pod) for each in cluster.pods.values()]
        fill(self._stores.pods, pods, version)
        # HPAs may be listed later than what there is to do; without an anchor it would go its way.
        if self._has_begun or cluster.anchor is None or cluster.draw.random() < 0.5:
            for (_, store), found in zip(self._hpas._resources, ([cluster.hpa()], []), strict=True):
                fill(store, [decode(encode(each), Autoscaler) for each in found], "9")

    def _pod(self, pod: SimulatedPod, meta: dict[str, str]) -> dict[str, Any]:
        leaving = {} if pod.deleted is None else {"deletionTimestamp": rfc3339(pod.deleted)}
        runs = pod.running <= self._cluster.now
        container = {"name": "app", "resources": {"requests": {"cpu": f"{pod.request}m"}}}
        return {
            "metadata": {**meta, "name": pod.name, "uid": pod.name, "labels": {"app": "web"},
                         **leaving},
            "spec": {"containers": [container]},
            "status": {"phase": "Running" if runs else "Pending",
                       "conditions": [{"type": "Ready", "status": str(runs)}]},
        }  # fmt: skip


async def changes_with_kills(
    cluster: SimulatedCluster, count: int, killed: Collection[str] = ("hpa", "recommender")
) -> None:
    """Let so many changes of the comfort band and the load take place, each of them cut short at
    every write of the parts ``killed``; raises ``AssertionError`` where one comes to no rest.
    """
    parts = {"hpa": SimulatedHpaPart(cluster), "recommender": SimulatedRecommenderPart(cluster)}
    due = dict.fromkeys((*parts, "updater"), 0.0)

    async def until(what: str, is_done: Callable[[], bool]) -> None:
        late = cluster.now + SETTLES_S
        while not is_done():
            assert cluster.now < late, f"not {what}: {cluster}"
            cluster.now += STEP_S
            cluster.step()
            for name in due:
                if cluster.now < max(due[name], cluster.away_until.get(name, 0.0)):
                    continue
                due[name] = cluster.now + cluster.draw.uniform(0.8, 1.4)
                with suppress(ApiUnreachable):
                    await parts[name].step() if name in parts else cluster.update()
                if cluster.away_until.get(name, 0.0) > cluster.now:
                    made = SimulatedHpaPart if name == "hpa" else SimulatedRecommenderPart
                    parts[name] = made(cluster)
            cluster.check()

    await until("settled", cluster.is_settled)
    for number in range(count):
        cluster.band, cluster.cores = ((8, 12), (2, 4))[number % 2], (2.0, 1.6)[number // 2 % 2]
        cluster.kills = [
            (*each, is_taken) for each in WRITES if each[0] in killed for is_taken in (False, True)
        ]
        await until("killed", lambda: not cluster.kills)
        await until("settled", cluster.is_settled)
