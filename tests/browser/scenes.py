"""Three workloads with a past: a shop under load, a leaking worker, a queue that sleeps.

Every decision is the product's own (``hpa.decide``, ``vpa.model``) over a scripted load and
clock; nothing that the page shows is written down here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import structs

from adapter.discovery.listing import MetricSource, RuleListing
from adapter.discovery.registry import RelistFailure, RuleState
from adapter.stages import Stage
from hpa.decide.api.reading import UP
from hpa.decide.api.spec import HPA, Behavior, MetricSpec, Rules
from hpa.decide.conclusion import conclude
from hpa.decide.decision import Outcome
from hpa.decide.observation import MetricAnswer, Observation, Past, Scale
from hpa.decide.pods import Pods
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.history.decision_log import DecisionLog
from podscale.core.metrics import (
    Answer,
    ExternalSample,
    ExternalSamples,
    PodResource,
    PodSamples,
    Question,
    Sample,
    Unavailable,
)
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.feed.stats import FeedStats
from podscale.kube.client.wire import decode, encode
from podscale.kube.columns.pods import PodStore
from podscale.kube.objects.autoscaler import CrossVersionObjectReference, Policy
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.vpa import Vpa
from podscale.kube.objects.vpa import decode as decode_object
from podscale.page.health import FeedSource
from podscale.page.part import PagePart
from podscale.page.sampler import PageSources
from tests.kit.stores import take_out
from tests.unit.adapter.world import rules
from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import OLD, Rounds
from vpa.decisions.decisions import KnownSizing
from vpa.explain.recommendation import MeasuredBasis, TargetState
from vpa.model.estimation.recommendation import (
    RecommendationTrace,
    RecommendedUsage,
    RecommenderSettings,
    ResourceUsage,
    recommend,
)
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.decision import AppliedDecision, PodDecision, UpdateDecision

START = 1_795_000_000.0
STEP_S = 15.0
SHOP = HPA(
    "shop", "web", CrossVersionObjectReference("Deployment", "web", "apps/v1"), 10,
    (MetricSpec("Pods", "http_requests_per_second", target_type="AverageValue",
                average_value_milli=12_000),),
    min_replicas=2,
    behavior=Behavior(
        structs.replace(UP, policies=(Policy("Pods", 2, 60),)),
        Rules(120, "Max", (Policy("Percent", 50, 60),)),
    ),
)  # fmt: skip
QUEUE = HPA(
    "jobs", "consumer", CrossVersionObjectReference("Deployment", "consumer", "apps/v1"), 20,
    (MetricSpec("External", "queue_messages_ready", target_type="AverageValue",
                average_value_milli=30_000),),
    min_replicas=0,
    behavior=Behavior(UP, Rules(60, "Max", (Policy("Percent", 100, 15),))),
)  # fmt: skip
_RULES = """
rules:
- seriesQuery: http_requests_total
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: queue_depth
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_messages_ready
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
_MEBI = 1024 * 1024


class Autoscaled:
    """One HPA and its target, decided on step by step."""

    def __init__(
        self, hpa: HPA, size: int, answer: Callable[["Autoscaled", float], MetricAnswer]
    ) -> None:
        self.hpa = hpa
        self.size = size
        self._answer = answer
        self._past = Past()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.hpa.name}-{n}" for n in range(self.size))

    def step(self, traces: DecisionLog, now: float) -> None:
        """Decide, write, conclude: one pass."""
        hpa, size = self.hpa, self.size
        rows = len(self.names)
        pods = Pods(
            self.names, bytes([PodPhase.RUNNING] * rows),
            bytes([PodReadiness.TRUE] * rows), bytes(rows),
            (now - 9e3,) * rows, (now - 8e3,) * rows, (0,) * rows,
        )  # fmt: skip
        scale = Scale(size, size, f"app={hpa.name}")
        look = Observation(hpa, scale, pods, (self._answer(self, now),))
        decision = decide(look, self._past, Settings(), now)
        done = conclude(decision, Outcome(), now)
        self._past = done.past
        self.hpa = structs.replace(hpa, status=done.status)
        traces.put((hpa.namespace, hpa.name), done.trace)
        if decision.replicas is not None:
            self.size = decision.replicas


def shop_load(now: float) -> float:
    """Return requests per second: a day of it in half an hour, with a broken feed at night."""
    day = (1 - math.cos(2 * math.pi * (now - START) / 1800.0)) / 2
    return 14.0 + 112.0 * day**2 + 4.0 * math.sin(now / 37.0)


def shop_answer(shop: Autoscaled, now: float) -> MetricAnswer:
    if 1380 <= now - START < 1440:
        return Unavailable("PrometheusDown", "Prometheus does not answer: connection refused")
    each = round(shop_load(now) * 1000 / max(shop.size, 1))
    return PodSamples({name: Sample(each, now - 1.2) for name in shop.names}, now)


def queue_answer(queue: Autoscaled, now: float) -> MetricAnswer:
    wave = math.sin(2 * math.pi * (now - START) / 900.0)
    waiting = max(0.0, wave) * 240.0
    sample = Sample(round(waiting * 1000), now - 0.8)
    return ExternalSamples((ExternalSample({"queue": "orders"}, sample),), now)


class Worker:
    """A leaking worker under a VPA. A ``podscale.page.sampler.Vpas``."""

    key = VpaKey("batch", "worker")

    def __init__(self) -> None:
        self.now = START
        self._known = self._make()

    def leak(self, now: float) -> float:
        """Return the memory in use, in MiB: it climbs, is killed, climbs further."""
        since = (now - START) % 700.0
        return 90.0 + 0.42 * since

    def keys(self) -> Iterable[VpaKey]:
        return [self.key]

    def sized(self, key: VpaKey) -> KnownSizing | None:
        return self._known if key == self.key else None

    @property
    def target(self) -> tuple[int, int]:
        """Milli-cores and MiB that are recommended now: after each kill it grows."""
        kills = int((self.now - START) // 700.0)
        return (60, 250) if not kills else (110, 384 + 64 * kills)

    def at(self, now: float) -> None:
        self.now = now
        self._known = self._make()

    def _make(self) -> KnownSizing:
        cpu, memory = self.target
        trace = self._trace(cpu, memory)
        entry = {"containerName": "app", "target": {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}}
        vpa = decode_object(
            {
                "metadata": {"name": "worker", "namespace": "batch"},
                "spec": {
                    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
                    "updatePolicy": {"updateMode": "InPlaceOrRecreate"},
                },
                "status": {"recommendation": {"containerRecommendations": [entry]}},
            },
            Vpa,
        )
        measured = MeasuredBasis(40.0 + (self.now - START) / 60.0, START, self.now)
        kills = int((self.now - START) // 700.0)
        at = START + 700.0 * kills + 30.0
        decision = UpdateDecision("resize", ("OutsideBounds",), {"resource": "memory"})
        resized = [
            PodDecision(f"worker-{index}", at, decision, AppliedDecision(at, True, decision))
            for index in range(2 if kills else 0)
        ]
        return KnownSizing(
            vpa, self.now, TargetState(True), "default", True, ("app",), trace,
            {("app", "cpu"): measured, ("app", "memory"): measured}, tuple(resized),
            selector="app=worker",
        )  # fmt: skip

    def _trace(self, cpu: int, memory: int) -> RecommendationTrace:
        usages = {
            "cpu": ResourceUsage((0.02, cpu / 1150.0, 0.4), 0.6),
            "memory": ResourceUsage((8e7, memory * _MEBI / 1.15, 1e9), 0.6),
        }
        return recommend([RecommendedUsage("app", usages)], RecommenderSettings())


class Usage:
    """What pods use. A ``MetricsProvider`` over the scenes."""

    def __init__(self, shop: Autoscaled, queue: Autoscaled, worker: Worker) -> None:
        self._shop, self._queue, self._worker = shop, queue, worker
        self.now = START

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        return [self._one(each) for each in questions if isinstance(each, PodResource)]

    def _one(self, asked: PodResource) -> Answer:
        now = self.now
        if asked.namespace == "batch":
            names: tuple[str, ...] = ("worker-0", "worker-1")
            values = [40.0 + 25.0 * math.sin(now / 90.0 + n) for n in range(2)]
            if asked.resource == "memory":
                values = [self._worker.leak(now) * _MEBI, self._worker.leak(now) * 0.93 * _MEBI]
        else:
            scaled = self._shop if asked.namespace == "shop" else self._queue
            names = scaled.names
            each = 9.0 * shop_load(now) / max(len(names), 1)
            values = [each if asked.resource == "cpu" else 74.0 * _MEBI] * len(names)
        factor = 1 if asked.resource == "cpu" else 1000
        samples = {n: Sample(round(v * factor), now) for n, v in zip(names, values, strict=True)}
        return PodSamples(samples, now)


def pod(namespace: str, app: str, index: int, requests: dict[str, str],
        limits: dict[str, str]) -> Pod:  # fmt: skip
    body: dict[str, Any] = {
        "metadata": {"name": f"{app}-{index}", "namespace": namespace, "labels": {"app": app},
                     "uid": f"{app}-{index}", "resourceVersion": "1"},
        "spec": {"containers": [
            {"name": "app", "resources": {"requests": requests, "limits": limits}}]},
        "status": {"phase": "Running"},
    }  # fmt: skip
    return decode(encode(body), Pod)


class Feed:
    """A feed's counters and rules, one of which cannot be listed at night."""

    def __init__(self) -> None:
        self.stats = FeedStats()
        self.now = START
        compiled = rules(_RULES)
        self._rules = (*compiled.custom, *compiled.external)

    def states(self) -> Sequence[RuleState]:
        states = []
        for index, rule in enumerate(self._rules):
            exposed = {
                ("pods", f"metric_{n}"): MetricSource(rule, f"series_{n}") for n in range(index + 1)
            }
            down = RelistFailure(Stage.PROMETHEUS_UNREACHABLE, "Prometheus refuses the connection")
            is_down = index == 1 and 1380 <= self.now - START < 1440
            listing = RuleListing(rule, exposed, {}, {}, 9)
            failure = down if is_down else None
            states.append(RuleState(rule, listing, self.now - 3.0 * (index + 1), failure))
        return states

    def at(self, now: float) -> None:
        """Count what a step of the clock costs."""
        self.now = now
        stats = self.stats
        stats.queries["batch"] += 21
        stats.hits += 44
        stats.merged += 3
        stats.misses += 21
        for n in range(44):
            stats.served(0.6 + 0.05 * n)


def fleet() -> Fleet:
    """Return a node that is full by usage, one by requests, and one that nobody measures."""
    made = Fleet()
    for name, requests, cores in (("by-usage", "2", 6.0), ("by-requests", "9", 1.0),
                                  ("unknown", "1", None)):  # fmt: skip
        made.node(name)
        made.ballast(name)
        made.pod(f"web-{name}", name, requests, started=OLD)
        if cores is not None:
            made.usage[name] = (cores, GI)
    return made


class Played:
    """The scenes, played from the start to any moment."""

    def __init__(self, traces: DecisionLog | None = None) -> None:
        self.now = START
        self.traces = DecisionLog() if traces is None else traces
        self.worker = Worker()
        self.shop = Autoscaled(SHOP, 2, shop_answer)
        self.queue = Autoscaled(QUEUE, 1, queue_answer)
        self.usage = Usage(self.shop, self.queue, self.worker)
        self.pods = PodStore()
        self.feed = Feed()
        self.nodes = Rounds(fleet())
        self.page = PagePart(
            PageSources(
                self.traces,
                self.worker,
                self.pods,
                self.usage,
                FeedSource(self.feed.stats, self.feed.states),
                nodes=lambda: self.nodes.rounds.decided,
            ),
            wall=lambda: self.now,
        )
        self.traces.follower = self.page.board

    async def play(self, seconds: float) -> None:
        """Go on for so long."""
        await self.nodes.at(0.0)
        until = self.now + seconds
        while self.now < until:
            self.now += STEP_S
            self.usage.now = self.now
            self.worker.at(self.now)
            self.feed.at(self.now)
            self._run_pods()
            self.shop.step(self.traces, self.now)
            self.queue.step(self.traces, self.now)
            await self.page.look()

    def _run_pods(self) -> None:
        cpu, memory = self.worker.target
        wanted = [
            pod("batch", "worker", n, {"cpu": f"{cpu}m", "memory": f"{memory}Mi"},
                {"memory": f"{memory * 2}Mi"})
            for n in range(2)
        ]  # fmt: skip
        wanted += [
            pod("shop", "web", n, {"cpu": "200m", "memory": "128Mi"}, {"cpu": "500m"})
            for n in range(self.shop.size)
        ]
        for n in range(self.shop.size, 10):
            take_out(self.pods, "shop", f"web-{n}")
        for each in wanted:
            take_out(self.pods, each.metadata.namespace, each.metadata.name)
            self.pods.accept(each)
