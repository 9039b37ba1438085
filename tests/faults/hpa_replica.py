"""One replica of the controller: the real one, with its Lease, over a ``Line``."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from hpa.cluster.stores import HpaStores
from hpa.decide.settings import Settings
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.decision_log import DecisionLog
from hpa.loop.controller import Controller
from hpa.loop.state import ControllerPorts, Options
from hpa.selfmetrics import HpaMetrics
from podscale.core import metrics as core
from podscale.core.metrics import Answer, Question
from podscale.kube.client.resource import DEPLOYMENTS
from podscale.kube.client.wire import decode
from podscale.kube.columns.pods import PodStore
from podscale.kube.informer.list_watch import (
    WatchBroken,
)
from podscale.kube.leadership.leading import FencedApi
from podscale.kube.leadership.lease import Elector
from podscale.kube.objects.autoscaler import Autoscaler
from podscale.kube.objects.pod import Pod
from podscale.kube.objects.scale import Workload
from tests.faults.hpa_weather import NS, Given, Line, Weather
from tests.kit.stores import fill
from tests.unit.hpa.world import KnownKinds, Silent, in_columns, pod_object

_ANSWER_TIMEOUT_S = 5.0
MAX_AGE_S = 60.0


class Measured:
    """A ``MetricsProvider`` that says what the script made true, or fails."""

    def __init__(self, weather: Weather, replica: str, stores: HpaStores) -> None:
        self._weather, self._replica, self._stores = weather, replica, stores
        self.ratio: dict[str, float] = {}  # by HPA: what is measured, as a share of the target
        self.faults = 0.0
        self.is_down = False  # refuses every connection
        self.unruled: frozenset[str] = frozenset()  # metrics of which there is no rule
        self.asked_at: dict[str, float] = {}  # by HPA, loop time
        self.wall: Callable[[], float] = lambda: 0.0

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        """Answer; now and then late, or by raising what no provider may raise."""
        draw = self._weather.draw
        for each in questions:
            # Whatever becomes of this batch, nothing good is known until it is told.
            self._note(each, Given(False, 0.0))
        await asyncio.sleep(draw.choice((0.0, 0.01, 0.3)))
        if draw.random() < self.faults / 8:
            await asyncio.sleep(_ANSWER_TIMEOUT_S + 1)
        if draw.random() < self.faults / 8:
            raise RuntimeError("a provider of another package")
        return [self._one(each, draw) for each in questions]

    def _one(self, question: Question, draw: Random) -> Answer:
        name, now = _hpa_of(question), self.wall()
        self.asked_at[name] = asyncio.get_running_loop().time()
        ratio = self.ratio.get(name, 1.0)
        if getattr(question, "metric", "cpu") in self.unruled:
            return core.NotFound("NotFound", "no rule has this metric")
        if self.is_down:
            return core.Unavailable("Unreachable", "connection refused")
        if draw.random() < self.faults:
            return self._failed(question, draw, now)
        if isinstance(question, core.ExternalMetric):
            self._note(question, Given(True, ratio))
            sign = -1 if draw.random() < self.faults / 4 else 1
            sample = core.Sample(sign * round(ratio * 10_000), now)
            return core.ExternalSamples([core.ExternalSample({}, sample)], now)
        pods = [pod for pod in self._stores.pods.select_all(NS).names if _app(pod) == name]
        told = [pod for pod in pods if draw.random() > self.faults / 4] or pods
        old = {pod for pod in told if draw.random() < self.faults / 4}
        target = 50 if isinstance(question, core.PodResource) else 1000
        samples = {
            pod: core.Sample(
                round(target * ratio), now - (5 * MAX_AGE_S if pod in old else 3), 30.0
            )
            for pod in told
        }
        if draw.random() < self.faults / 4:
            samples[f"{name}-gone"] = core.Sample(round(target * ratio), now, 30.0)
        stale = frozenset(set(pods) - set(told))
        # Old samples are missing ones; where all are old, nothing was measured at all.
        self._note(question, Given(len(old) < len(told), ratio))
        return core.PodSamples(in_columns(samples), now, stale)

    def _failed(self, question: Question, draw: Random, now: float) -> Answer:
        empty: Answer = core.PodSamples({}, now)
        nan: Answer = core.PodSamples({"web-0": core.Sample(float("nan"), now)}, now)  # type: ignore[arg-type]
        if isinstance(question, core.ExternalMetric):
            empty = core.ExternalSamples([], now)
            old = core.Sample(0, now - 5 * MAX_AGE_S)
            nan = core.ExternalSamples([core.ExternalSample({}, old)], now)
        return draw.choice(
            (
                core.NotFound("NotFound", "no such metric"),
                core.NoData("NoSeries", ""),
                core.Stale("Stale", "too old", 900.0),
                core.Unavailable("Unreachable", "connection refused"),
                core.Unavailable("Timeout", "too slow", is_timeout=True),
                core.Refused("BadQuery", "parse error"),
                empty,
                nan,
            )
        )

    def _note(self, question: Question, given: Given) -> None:
        metric = getattr(question, "metric", "cpu")
        key = (self._replica, _hpa_of(question))
        self._weather.judge.given.setdefault(key, {})[metric] = given


class Replica:
    """Runs until killed; ``see`` is its watch."""

    line_type: type[Line] = Line

    def __init__(
        self,
        weather: Weather,
        name: str,
        settings: Settings,
        wall: Callable[[], float],
    ) -> None:
        self.name = name
        self._weather, self._wall = weather, wall
        self.line = self.line_type(weather, name)
        self.stores = HpaStores((), PodStore(keep_annotations=()))
        self.measured = Measured(weather, name, self.stores)
        self.measured.wall = wall
        loop = asyncio.get_running_loop()
        self.elector = Elector(
            self.line, namespace="podscale", name="podscale-hpa", identity=name,
            clock=loop.time, wall=wall,
        )  # fmt: skip
        fenced = FencedApi(self.line, self.elector)
        self.metrics = HpaMetrics()
        kinds = KnownKinds(DEPLOYMENTS)
        self.controller = Controller(
            ControllerPorts(
                api=fenced,
                stores=self.stores,
                kinds=kinds,
                provider=self.measured,
                mapper=lambda: kinds.mapper,
                recorder=Silent(),  # type: ignore[arg-type]
                metrics=self.metrics,
                traces=DecisionLog(),
                config_maps=HistoryConfigMaps(fenced, "podscale", "hpa"),
            ),
            structs.replace(settings, metric_max_age_s=MAX_AGE_S),
            Options(answer_timeout_s=_ANSWER_TIMEOUT_S),
            SteadyClock(wall, loop.time),
        )
        self._seen = -1
        self._pods_seen: dict[str, int] = {}
        self.is_blind = False
        self.leading = asyncio.ensure_future(self.elector.run(self.controller.run))

    def see(self, sizes: dict[str, int]) -> None:
        """Tell the stores what the world holds; pods are ``sizes`` by workload."""
        if self.is_blind or (self._seen == self._weather.changes and self._pods_seen == sizes):
            return
        at = asyncio.get_running_loop().time()
        self._seen, self._pods_seen = self._weather.changes, dict(sizes)
        world = self._weather
        _list(self.stores.autoscalers, Autoscaler, list(world.hpas.values()), world, at)
        _list(self.stores.deployments, Workload, list(world.workloads.values()), world, at)
        for store in (
            self.stores.stateful_sets,
            self.stores.replica_sets,
            self.stores.replication_controllers,
        ):
            _list(store, Workload, [], world, at)
        pods = [pod_object(app, n) for app, size in sizes.items() for n in range(size)]
        _list(self.stores.pods, Pod, pods, world, at)

    def blind(self) -> None:
        """Break every watch."""
        self.is_blind = True
        now = asyncio.get_running_loop().time()
        self._weather.judge.broken_since.setdefault(self.name, now)
        for store in (self.stores.autoscalers, self.stores.pods, self.stores.deployments):
            store.apply(WatchBroken("the stream broke", None), scope="", now=now)

    def sighted(self) -> None:
        """Mend the watches: everything is listed again."""
        self.is_blind, self._seen = False, -1
        self._weather.judge.broken_since.pop(self.name, None)

    async def kill(self) -> None:
        """End it without a word: nothing is flushed, the Lease is not given back."""
        self.line.is_cut = True
        self.leading.cancel()
        await asyncio.wait({self.leading})


def _list(store: Any, kind: Any, items: list[dict[str, Any]], world: Weather, at: float) -> None:
    found = [decode(msgspec.json.encode(each), kind) for each in items]
    fill(store, found, str(world.version), now=at, watched_s=1e12)


def _app(pod: str) -> str:
    return pod.rpartition("-")[0]


def _hpa_of(question: Question) -> str:
    if isinstance(question, core.ExternalMetric):
        return question.metric.split("-", 1)[1]
    return str(getattr(question, "selector", "")).partition("=")[2]
