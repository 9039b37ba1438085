"""A workload under a load of days: the real HPA's decisions and the real VPA's estimates, together
or apart, over ``hpa.simulate``'s pods.

``python -m tests.integration.coordination`` prints the table of docs/coordination.md.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec
from hpa.decide.observation import HeldTarget, Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.simulate.loop import SimulatedRun, pass_times
from hpa.simulate.workload import LoadHistory, Plant, SimulatedWorkload, held
from podscale.coordinate.anchor import Anchor
from podscale.coordinate.sizes import (
    DAY_S,
    HorizontalState,
    LatestLoads,
    LoadOfDays,
    SizeChange,
    VerticalEstimates,
    choose,
    may_shrink,
)
from podscale.core.metrics import ContainerColumns, NoData, PodSamples
from podscale.core.selectors.selector import parse
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.kube.objects.vpa import Vpa, VpaSpec
from tests.kit.traces import crane
from tests.unit.hpa.simulate.loads import simulated
from vpa.model.cluster import ClusterModel
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.membership import VpaKey

Floats = NDArray[np.float64]

STEP_S = 60.0
DAYS = 8
MEAN_CORES = 20.0
_KEY = VpaKey("default", "web")
_POD = "main"
_YOUNG_S = 12 * 3600.0  # of pods that the updater leaves alone within their bounds
_THRESHOLD = 0.1
_PASS_STEPS = 10  # of the recommender, whose passes cost more than the HPA's


class Story(Struct, frozen=True):
    """What is the same for the runs of one load."""

    utilization: int = 60
    min_replicas: int = 2
    max_replicas: int = 500
    comfort: tuple[int, int] = (5, 50)
    replicas: int = 40
    request_milli: int = 1000
    ready_after_s: float = 60.0


class Verdict(Struct, frozen=True):
    """What came of a run."""

    replicas: int  # at the end
    request: int  # at the end, milli-cores
    cores: float  # reserved, the mean over the run
    unserved: float  # of the load: above what the HPA takes for the whole of a pod
    beyond: float  # of the load: above what pods request, where nodes have to spare
    changes: tuple[float, ...]  # of the request, seconds after the beginning
    most: int  # replicas at once
    rescales: int


class ResizedPods(SimulatedWorkload):
    """Pods whose requests change in place."""

    def resize_pods(self, requests: Mapping[str, Mapping[str, int]]) -> None:
        changed = SimulatedWorkload(structs.replace(self._plant, requests=requests), "", 0, 0.0)
        self._plant, self._template, self._columns = changed._plant, changed._template, None


class VerticalAxis:
    """A VPA beside the HPA: samples every pass, moves the size alone or by the anchor."""

    def __init__(self, story: Story, began: float, *, is_coordinated: bool) -> None:
        self._story = story
        self._began = began
        self._is_coordinated = is_coordinated
        self.cluster = ClusterModel()
        ref = CrossVersionObjectReference("Deployment", "web", "apps/v1")
        vpa = Vpa(ObjectMeta("web", namespace="default"), VpaSpec(ref))
        self.cluster.put_vpa(vpa, parse("app=web"), began)
        self.reader = RecommendationReader(self.cluster)
        self._known: set[str] = set()
        self.anchor = Anchor(story.request_milli, story.request_milli, "u")
        self.size = story.request_milli
        self.sized_at = began - 86400.0
        self._replicas = story.replicas
        self._rescaled_at = began - 86400.0
        self._passes = 0
        self.demand, self.latest = LoadOfDays(), LatestLoads()
        self.changes: list[float] = []
        self.sizes: list[int] = []
        self.wholes: list[int] = []  # 100 % to the HPA

    def step(
        self, workload: ResizedPods, status: HpaStatus, load: float, now: float
    ) -> HeldTarget | None:
        if len(workload) != self._replicas:
            self._replicas, self._rescaled_at = len(workload), now
        self._sample(workload, load, now)
        self._passes += 1
        if self._passes % _PASS_STEPS == 0 and (estimates := self._estimates()) is not None:
            self._move(workload, estimates, now)
        self.sizes.append(self.size)
        self.wholes.append(self.anchor.milli if self._is_coordinated else self.size)
        return HeldTarget("AnchorHeld", "held", "", self.anchor) if self._is_coordinated else None

    def _sample(self, workload: SimulatedWorkload, load: float, now: float) -> None:
        pods = workload.pods(now)
        if set(pods.names) != self._known:
            names = set(pods.names)
            for pod in names - self._known:
                self.cluster.put_pod("default", pod, {"app": "web"}, (_POD,), now)
            for pod in self._known - names:
                self.cluster.remove_pod("default", pod)
            self._known = names
        samples = workload.samples(load, now, in_columns=False)
        count = len(samples)
        if not count:
            return
        cores = np.array([each.value_milli for each in samples.values()]) / 1000.0
        self.latest.add(1000.0 * float(cores.sum()), now)
        self.demand.add(1000.0 * float(cores.sum()), workload.ready(now), now)
        self.cluster.take(
            ContainerColumns(
                ["default"] * count, list(samples), [_POD] * count, cores,
                np.full(count, np.nan), np.full(count, now), now,
            )
        )  # fmt: skip

    def _estimates(self) -> VerticalEstimates | None:
        found = self.reader.read()
        cpu = found.read["cpu"]
        if not len(found.groups.keys) or not cpu.measured[0]:
            return None
        lower, target, upper = (int(each) for each in found.amounts[0, 0])
        if self._is_coordinated:
            upper = round(float(cpu.percentiles[2, 0]) * 1150.0)
        return VerticalEstimates(lower, target, upper, 25, 10**9, 86400.0)

    def _move(self, workload: ResizedPods, seen: VerticalEstimates, now: float) -> None:
        story = self._story
        if self._is_coordinated:
            axis = HorizontalState(
                story.utilization, story.min_replicas, story.max_replicas, story.comfort,
                self._replicas, now - self._rescaled_at, 300.0,
                self.demand.loads(DAY_S), self.demand.seen_s,
            )  # fmt: skip
            found = choose(self.anchor, seen, axis, now)
            if isinstance(found, SizeChange):
                self.anchor = found.anchor
            size = self.anchor.size
            is_ready = may_shrink(self.anchor, self.latest.highest, workload.ready(now))
            if size > self.size or is_ready:  # the size waits for the pods that it needs
                self._resize(workload, size, now)
        elif not seen.lower <= self.size <= seen.upper or (
            now - self.sized_at >= _YOUNG_S
            and abs(seen.target - self.size) >= _THRESHOLD * self.size
        ):
            self._resize(workload, seen.target, now)

    def _resize(self, workload: ResizedPods, size: int, now: float) -> None:
        if size == self.size:
            return
        self.size, self.sized_at = size, now
        self.changes.append(now - self._began)
        workload.resize_pods({_POD: {"cpu": size}})


def passes(
    hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings, replicas: int, axis: VerticalAxis
) -> SimulatedRun:
    """Return what comes of passes of the HPA, before each of which the VPA may act."""
    times = pass_times(load, settings.sync_period_s)
    measured = held(load, load.columns["cpu"], times - plant.metric_age_s)
    asked = held(load, load.columns["cpu"], times)
    workload = ResizedPods(plant, hpa.target.name, replicas, float(times[0]))
    hpa = structs.replace(hpa, status=HpaStatus(replicas, replicas))
    past = Past()
    sizes, ready = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    for row, now in enumerate(times.tolist()):
        used = {}
        if not np.isnan(measured[row]):
            used = workload.samples(float(measured[row]), now, in_columns=False)
        answer = PodSamples(used, now) if used else NoData("NoSample", "none of then")
        target = axis.step(workload, hpa.status, float(asked[row]), now)
        size = len(workload)
        scale = Scale(size, size, "app=web")
        seen = Observation(hpa, scale, workload.pods(now), (answer,), held=target)
        decision = decide(seen, past, settings, now)
        past, hpa = decision.past, structs.replace(hpa, status=decision.status)
        if decision.replicas is not None:
            workload.resize(decision.replicas, now)
        sizes[row], ready[row] = len(workload), workload.ready(now)
    return SimulatedRun(times, sizes, ready)


def run(story: Story, cores: Floats, beside: str) -> Verdict:
    """Return what came of a load in cores, minute by minute; ``beside`` the HPA: nothing, ``vpa``
    or ``coordinated``."""
    times = STEP_S * np.arange(len(cores), dtype=np.float64) + 1.7e9
    load = LoadHistory(times, {"cpu": cores}, np.zeros(len(cores), np.bool_))
    requests: Mapping[str, Mapping[str, int]] = {_POD: {"cpu": story.request_milli}}
    plant = Plant((story.ready_after_s,), requests=requests)
    metric = MetricSpec("Resource", "cpu", average_utilization=story.utilization)
    target = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    hpa = HPA("default", "web", target, story.max_replicas, (metric,), story.min_replicas)
    axis = None
    if beside:
        axis = VerticalAxis(story, float(times[0]), is_coordinated=beside == "coordinated")
    settings = structs.replace(Settings(), sync_period_s=STEP_S)
    if axis is None:
        done = simulated(hpa, load, plant, settings, story.replicas)
    else:
        done = passes(hpa, load, plant, settings, story.replicas, axis)
    sizes = np.array(axis.sizes if axis else [story.request_milli] * len(cores))
    wholes = np.array(axis.wholes if axis else [story.request_milli] * len(cores))

    def above(milli: NDArray[np.int64]) -> float:
        return float(np.maximum(cores - done.ready * milli / 1000.0, 0.0).sum() / cores.sum())

    return Verdict(
        int(done.replicas[-1]),
        int(sizes[-1]),
        float((done.replicas * sizes / 1000.0).mean()),
        above(wholes),
        above(sizes),
        tuple(axis.changes) if axis else (),
        int(done.replicas.max()),
        int((np.diff(done.replicas) != 0).sum()),
    )


def loads() -> dict[str, Floats]:
    """Return each series in cores, minute by minute."""
    days = {name: values[: DAYS * 1440] for name, values in crane().items()}
    return {name: values / values.mean() * MEAN_CORES for name, values in days.items()}


def row(name: str, runs: tuple[Verdict, Verdict, Verdict]) -> str:
    """Return a line of the table: the HPA alone, a VPA beside it, both together."""
    sizes = " | ".join(f"{each.replicas} × {each.request / 1000:.2f}" for each in runs)
    alone, _, together = runs
    saved = 1.0 - together.cores / alone.cores
    unserved = " | ".join(f"{each.unserved:.3%}" for each in (alone, together))
    days = ", ".join(f"{at / 86400:.1f}" for at in together.changes)
    cores = f"{alone.cores:.1f} | {together.cores:.1f} | {saved:.0%}"
    return f"| {name} | {sizes} | {cores} | {unserved} | {together.beyond:.2%} | {days} |"


def main() -> None:
    for name, cores in loads().items():
        print(
            row(name, tuple(run(Story(), cores, beside) for beside in ("", "vpa", "coordinated")))
        )


if __name__ == "__main__":
    main()
