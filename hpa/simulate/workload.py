"""The load of each metric over time, and the plant: pods that come up, and what each of them
measures of it.

Pods are created at once and ready some time later; the load spreads evenly over those that are
ready. Names ascend with the time of creation, so that columns stay sorted.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from struct import pack

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from hpa.decide.api.spec import MetricSpec
from hpa.decide.pods import Pods
from podscale.core.metrics import Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.samplecolumns import SampleColumns
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

Floats = NDArray[np.float64]
_LONGEST_HOLD = 4.0  # steps that a value holds: scrapes fail now and then
_SHORTEST_HOLD_S = 60.0


class LoadHistory(Struct, frozen=True, eq=False, dict=True):
    """Times, ascending, and one column of them for each metric by its key (``key_of``): what the
    whole workload was asked for in natural units (cores, bytes, requests a second). A value holds
    until the next one comes; NaN is a load that nobody knows."""

    time_s: Floats
    columns: Mapping[str, Floats]
    hidden: NDArray[np.bool_]  # what was measured is less than what was asked for
    replicas: Floats | None = None  # as they were recorded, where somebody recorded them

    @cached_property
    def step_s(self) -> float:
        """The usual distance of two samples."""
        return float(np.median(np.diff(self.time_s))) if len(self.time_s) > 1 else 15.0

    @property
    def end_s(self) -> float:
        """Until when the last value holds."""
        return float(self.time_s[-1]) + self.step_s


def key_of(metric: MetricSpec) -> str:
    """Return what a column of the load is called: the metric's name, of one container with it."""
    return f"{metric.name}/{metric.container}" if metric.container else metric.name


def held(load: LoadHistory, column: Floats, at_s: Floats) -> Floats:
    """Return the values at these times; NaN before the first, and after a gap that is too long."""
    rows = np.searchsorted(load.time_s, at_s, side="right") - 1
    found = column[np.maximum(rows, 0)]
    hold_s = max(_LONGEST_HOLD * load.step_s, _SHORTEST_HOLD_S)
    is_known = (rows >= 0) & (at_s - load.time_s[np.maximum(rows, 0)] <= hold_s)
    return np.where(is_known, found, np.nan)


Counts = int | NDArray[np.intp]
_MOST_PODS = 150_000  # as many as Kubernetes supports in a cluster: more are never created
_LONG_AGO_S = 86400.0  # how old pods are that were there before the history begins


class Plant(Struct, frozen=True):
    """How the workload behaves. Times are seconds."""

    ready_after_s: tuple[float, ...] = (60.0,)  # of one pod after the other, round and round
    metric_age_s: float = 15.0  # of what a pass gets to see
    window_s: float = 60.0  # of the rate behind CPU
    nodes_after_s: float = 0.0  # until a new node is there, for each pod beyond ``room``
    room: int | None = None  # pods that today's nodes hold; None: as many as are asked for
    requests: Mapping[str, Mapping[str, int]] = {}  # container → resource → milli-units

    def request_milli(self, resource: str, container: str) -> int:
        """Return what a pod, or one container of it, requests; 0: nothing."""
        return sum(
            amounts.get(resource, 0)
            for name, amounts in self.requests.items()
            if not container or name == container
        )


class PodShares(Struct, frozen=True, gc=False):
    """How many pods of a target count how: a number for each time, or one for all."""

    ready: Counts  # they serve
    serving: Counts  # they served when metrics were taken, some may be gone since
    sampled: Counts  # of those that there are, they have a sample
    initializing: Counts  # the newest of them, whose CPU is not trusted yet
    pending: Counts
    is_settled: bool = False  # all of them count in full

    @property
    def missing(self) -> Counts:
        """Those that are ready, without a sample so far."""
        return self.ready - self.sampled


class _SimulatedPod(Struct):
    name: str
    created_s: float
    ready_s: float


class SimulatedWorkload:
    """The pods of one target while time goes on. Times given must not go back."""

    def __init__(self, plant: Plant, name: str, replicas: int, now: float) -> None:
        self._plant = plant
        self._name = name
        self._count = 0  # pods ever created
        self._template = _template(plant)
        self._pods: list[_SimulatedPod] = []
        self._gone: list[tuple[float, float]] = []  # ready and deleted, of pods looked at still
        self._columns: Pods | None = None
        self._columns_until = 0.0
        self._settled_s = 0.0  # from samples of then on all pods count in full
        self._create(replicas, now - _LONG_AGO_S, now - _LONG_AGO_S)

    def __len__(self) -> int:
        return len(self._pods)

    def resize(self, replicas: int, now: float) -> None:
        """Create pods, or delete some: those that are not ready first, then the newest."""
        missing = replicas - len(self._pods)
        self._columns = None
        if missing >= 0:
            self._create(missing, now, None)
            return
        newest_first = reversed(self._pods)
        leaving = sorted(newest_first, key=lambda pod: pod.ready_s <= now)[:-missing]
        self._gone += [(pod.ready_s, now) for pod in leaving if pod.ready_s <= now]
        numbers = {id(pod) for pod in leaving}
        self._pods = [pod for pod in self._pods if id(pod) not in numbers]

    def ready(self, now: float) -> int:
        """Return how many pods serve."""
        return sum(pod.ready_s <= now for pod in self._pods)

    def pods(self, now: float) -> Pods:
        """Return the pods as the API server shows them."""
        if self._columns is not None and now < self._columns_until:
            return self._columns
        is_ready = [pod.ready_s <= now for pod in self._pods]
        self._columns_until = min(
            (pod.ready_s for pod in self._pods if pod.ready_s > now), default=float("inf")
        )
        phases = PodPhase.PENDING, PodPhase.RUNNING
        conditions = PodReadiness.FALSE, PodReadiness.TRUE
        self._columns = Pods(
            names=tuple(pod.name for pod in self._pods),
            phase=bytes(phases[each] for each in is_ready),
            ready=bytes(conditions[each] for each in is_ready),
            deleted=bytes(len(self._pods)),
            started=tuple(pod.created_s for pod in self._pods),
            ready_since=tuple(
                pod.ready_s if each else pod.created_s
                for pod, each in zip(self._pods, is_ready, strict=True)
            ),
            template=(0,) * len(self._pods),
            templates=(self._template,),
        )
        return self._columns

    def samples(self, load: float, now: float, *, in_columns: bool) -> Mapping[str, Sample]:
        """Return what the pods measured of ``load`` (of then) when they were looked at last.

        A pod that was not ready then has no sample; what was served by one that has been deleted
        since is not in anybody's. One that was deleted at that very moment was measured before: a
        pass looks, and then changes.
        """
        at = now - self._plant.metric_age_s
        self._gone = [each for each in self._gone if each[1] >= at]
        names = tuple(pod.name for pod in self._pods if pod.ready_s <= at)
        serving = len(names) + sum(ready_s <= at for ready_s, _ in self._gone)
        if not names:
            return {}
        each, more = divmod(round(load * 1000.0), serving)  # so that nothing gets lost
        more = min(more, len(names))
        if in_columns:
            fewer = len(names) - more
            numbers = pack("=q", each + 1) * more + pack("=q", each) * fewer
            total = each * len(names) + more
            return SampleColumns(names, numbers, pack("=d", at), None, total, at)
        window_s = self._plant.window_s
        high, low = Sample(each + 1, at, window_s), Sample(each, at, window_s)
        return {**dict.fromkeys(names[:more], high), **dict.fromkeys(names[more:], low)}

    def served_by(self, now: float) -> int:
        """Return how many pods served when the metrics of a pass at ``now`` were taken."""
        at = now - self._plant.metric_age_s
        present = sum(pod.ready_s <= at for pod in self._pods)
        return present + sum(ready_s <= at <= gone_s for ready_s, gone_s in self._gone)

    def shares(self, times: Floats, cpu_initialization_s: float) -> PodShares | None:
        """Return how the pods count at ``times``, while none come or go; None where those that
        initialize are not the newest. ``cpu_initialization_s`` is 0 where nobody asks for CPU."""
        at = times - self._plant.metric_age_s
        self._gone = [each for each in self._gone if each[1] >= at[0]]
        size = len(self._pods)
        if not self._gone and at[0] >= self._settled_s:
            return PodShares(size, size, size, 0, 0, is_settled=True)
        created_s, ready_s = np.array([(pod.created_s, pod.ready_s) for pod in self._pods]).T
        in_order = np.sort(ready_s)
        ready = in_order.searchsorted(times, side="right")
        serving = sampled = in_order.searchsorted(at, side="right")
        for since_s, until_s in self._gone:
            serving = serving + ((since_s <= at) & (at <= until_s))
        initializing: Counts = 0
        if cpu_initialization_s:
            has_sample = ready_s <= at[:, None]
            starts = has_sample & (created_s + cpu_initialization_s > times[:, None])
            starts &= at[:, None] < ready_s + self._plant.window_s
            if (np.logical_or.accumulate(starts, axis=1) & has_sample & ~starts).any():
                return None
            initializing = starts.sum(axis=1)
        return PodShares(ready, serving, sampled, initializing, size - ready)

    def _create(self, count: int, now: float, ready_s: float | None) -> None:
        times: Sequence[float] = self._plant.ready_after_s
        for _ in range(min(count, _MOST_PODS - len(self._pods))):
            at = ready_s
            if at is None:
                at = now + times[self._count % len(times)]
                if self._plant.room is not None and len(self._pods) >= self._plant.room:
                    at += self._plant.nodes_after_s
            self._pods.append(_SimulatedPod(f"{self._name}-{self._count:09d}", now, at))
            self._count += 1
            self._settled_s = max(self._settled_s, at + self._plant.window_s)
        self._columns = None


def _template(plant: Plant) -> WirePodTemplate:
    return WirePodTemplate(
        tuple(TemplateContainer(each, amounts) for each, amounts in plant.requests.items())
    )
