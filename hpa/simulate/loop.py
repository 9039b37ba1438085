"""Pass after pass over a history: what one HPA would have done with a load.

Each pass is ``decide`` itself, with its own history, status and windows carried on, or comes to the
same: most are settled many at once (``hpa.simulate.steady``). What a run was worth is told by
SPEC-RG's elasticity measures, pod-hours, and what was not served: d(t) is the fewest pods that meet
the load at t, s(t) the pods that are ready; times of a load not known, or hidden, do not count.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec
from hpa.decide.observation import ExpectedDemand, MetricAnswer, Observation, Past, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import Settings
from hpa.simulate.steady import SteadyPasses, covers
from hpa.simulate.workload import Floats, LoadHistory, Plant, SimulatedWorkload, held, key_of
from podscale.core import metrics as core

_SELECTOR = "app=replayed"
_NO_SAMPLE = core.NoData("NoSample", "the history has no sample of then")


class SimulatedRun(Struct, frozen=True, eq=False):
    """What came of it: one row for each pass, as things stood once it was decided."""

    time_s: Floats
    replicas: NDArray[np.int64]  # pods that there are
    ready: NDArray[np.int64]  # pods that serve
    together: int = 0  # passes that were not decided one by one


def pass_times(load: LoadHistory, period_s: float) -> Floats:
    """Return when passes take place."""
    start_s = float(load.time_s[0])
    count = max(1, math.ceil((load.end_s - start_s) / period_s))
    return start_s + period_s * np.arange(count, dtype=np.float64)


def simulate(
    hpa: HPA,
    load: LoadHistory,
    plant: Plant,
    settings: Settings,
    replicas: int,
    times: Floats,
    *,
    expected: Callable[[float], ExpectedDemand | None] | None = None,
) -> SimulatedRun:
    """Return what ``hpa`` would have done, starting with ``replicas`` ready pods.

    ``load`` has a column for each of its metrics; ``times`` are those of the passes. ``expected``
    says what is forecast at a time. Without it passes are not decided one by one where many can
    be settled together: it comes to the same.
    """
    loads = [held(load, load.columns[key_of(each)], times - plant.metric_age_s)
             for each in hpa.metrics]  # fmt: skip
    workload = SimulatedWorkload(plant, hpa.target.name, replicas, float(times[0]))
    steady = None
    if expected is None and covers(hpa, load, plant, settings):
        steady = SteadyPasses(hpa, loads, plant, settings, times)
    past = Past()
    hpa = structs.replace(hpa, status=HpaStatus(replicas, replicas))
    sizes, ready = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    moments = times.tolist()
    row = together = 0
    while row < len(moments):
        now, size = moments[row], len(workload)
        turned = None
        if steady is not None and row:
            count, serving = steady.kept(row, workload)
            if count:
                sizes[row : row + count], ready[row : row + count] = size, serving
                row += count
                together += count
                continue
            past = steady.past(row, past)
            turned = steady.turned(row, size, past)
        if turned is not None:
            replicas, past = turned
            together += 1
        else:
            answers = tuple(
                _answer(metric, float(values[row]), workload, now)
                for metric, values in zip(hpa.metrics, loads, strict=True)
            )
            seen = Observation(
                hpa, Scale(size, size, _SELECTOR), workload.pods(now), answers,
                expected=None if expected is None else expected(now),
            )  # fmt: skip
            decision = decide(seen, past, settings, now)
            past = decision.past
            if steady is not None:
                steady.decided(row, size, decision)
            if decision.is_status_changed:
                hpa = structs.replace(hpa, status=decision.status)
            replicas = size if decision.replicas is None else decision.replicas
        if replicas != size:
            workload.resize(replicas, now)
        sizes[row], ready[row] = len(workload), workload.ready(now)
        row += 1
    return SimulatedRun(times, sizes, ready, together)


def _answer(
    metric: MetricSpec, load: float, workload: SimulatedWorkload, now: float
) -> MetricAnswer:
    if math.isnan(load):
        return _NO_SAMPLE
    if metric.type in ("Object", "External"):
        # A whole that is compared with one target shrinks as pods are added: decide's own reading.
        shares = max(workload.served_by(now), 1) if metric.is_by_value else 1
        sample = core.Sample(round(load * 1000.0 / shares), now)
        if metric.type == "Object":
            return core.ObjectSample(sample, now)
        return core.ExternalSamples((core.ExternalSample({}, sample),), now)
    samples = workload.samples(load, now, in_columns=metric.type == "Pods")
    return core.PodSamples(samples, now) if samples else _NO_SAMPLE


_HEADROOM = 0.8  # a pod serves target / 0.8 where nobody says what it serves
_ROUNDING = 1e-9
_HOUR_S = 3600.0
_DAY_S = 86400.0


class NeededPods(Struct, frozen=True, eq=False):
    """d(t) at the times of the passes, and whether it is known."""

    time_s: NDArray[np.float64]
    pods: NDArray[np.int64]
    is_known: NDArray[np.bool_]

    @property
    def left_out(self) -> float:
        """The share of the time that no sum counts."""
        return float(1.0 - self.is_known.mean())


class RunVerdict(Struct, frozen=True):
    """The measures of one run; times are seconds, shares are of 1."""

    pod_hours: float
    unserved: float  # sum of max(d - s, 0) / sum of d
    over_target_s: float  # while a ready pod had more than its target
    under_accuracy: float  # SPEC-RG: the mean of max(d - s, 0) / d
    over_accuracy: float  # and of max(s - d, 0) / d
    under_time: float  # the share of the time in which s < d
    over_time: float
    instability: float  # the share of the time in which s moves other than d
    rescales_a_day: float
    reversals_a_day: float  # rescales in the other direction than the one before
    longest_lag_s: float  # the longest time without a break in which s < d
    largest: int  # pods at once


def capacity_of(metric: MetricSpec, plant: Plant) -> tuple[float, str]:
    """Return what a pod serves of a metric, in its own units, and why that is taken."""
    if metric.average_utilization is not None:
        milli = plant.request_milli(metric.name, metric.container)
        return milli / 1000.0, "its request"
    return target_of(metric, plant) / _HEADROOM, "target / 0.8"


def target_of(metric: MetricSpec, plant: Plant) -> float:
    """Return the target of one pod, in the metric's own units."""
    if metric.average_utilization is not None:
        request = plant.request_milli(metric.name, metric.container)
        return metric.average_utilization / 100.0 * request / 1000.0
    milli = metric.value_milli if metric.is_by_value else metric.average_value_milli
    return (milli or 0) / 1000.0


def needed(load: LoadHistory, capacities: Mapping[str, float], period_s: float) -> NeededPods:
    """Return d(t), by the metric that needs most; ``capacities`` by the key of a column."""
    times = pass_times(load, period_s)
    most = np.zeros(len(times))
    is_known = ~_hidden(load, times)
    for key, capacity in capacities.items():
        values = held(load, load.columns[key], times)
        is_known &= ~np.isnan(values)
        most = np.fmax(most, np.ceil(values / capacity - _ROUNDING))
    return NeededPods(times, most.astype(np.int64), is_known)


def judge(
    run: SimulatedRun, hpa: HPA, load: LoadHistory, plant: Plant, need: NeededPods
) -> RunVerdict:
    """Return the verdict over a run of ``hpa``; it has the times of ``need``."""
    highest = np.zeros(len(run.time_s))
    for metric in hpa.metrics:
        values = held(load, load.columns[key_of(metric)], run.time_s)
        highest = np.fmax(highest, values / target_of(metric, plant))
    is_over = highest > np.maximum(run.ready, 0) + _ROUNDING
    return measure(need, run.replicas, run.ready, is_over)


def oracle(need: NeededPods) -> RunVerdict:
    """Return the verdict over s = d at each moment, known beforehand."""
    return measure(need, need.pods, need.pods, np.zeros(len(need.pods), np.bool_))


def measure(
    need: NeededPods,
    replicas: NDArray[np.int64],
    ready: NDArray[np.int64],
    is_over: NDArray[np.bool_],
) -> RunVerdict:
    """Return all measures of a series of sizes at the times of ``need``."""
    known, d, s = need.is_known, need.pods, ready
    step_s = float(need.time_s[1] - need.time_s[0]) if len(need.time_s) > 1 else 15.0
    seconds = max(float(known.sum()) * step_s, step_s)
    lacking, spare = np.maximum(d - s, 0), np.maximum(s - d, 0)
    asked = float(d[known].sum())
    base = np.maximum(d, 1)
    changes = np.diff(replicas)
    moves = changes[changes != 0]
    both = known[1:] & known[:-1]
    unlike = np.sign(np.diff(s)) != np.sign(np.diff(d))

    def share(values: NDArray[np.float64]) -> float:
        return float(values[known].sum()) * step_s / seconds

    return RunVerdict(
        pod_hours=float(replicas[known].sum()) * step_s / _HOUR_S,
        unserved=float(lacking[known].sum()) / asked if asked else 0.0,
        over_target_s=float((is_over & known).sum()) * step_s,
        under_accuracy=share(lacking / base),
        over_accuracy=share(spare / base),
        under_time=share((lacking > 0).astype(float)),
        over_time=share((spare > 0).astype(float)),
        instability=float(unlike[both].mean()) if both.any() else 0.0,
        rescales_a_day=len(moves) * _DAY_S / (len(d) * step_s),
        reversals_a_day=int((np.sign(moves[1:]) != np.sign(moves[:-1])).sum())
        * _DAY_S / (len(d) * step_s),
        longest_lag_s=_longest((lacking > 0) & known) * step_s,
        largest=int(replicas.max()),
    )  # fmt: skip


def first_size(hpa: HPA, load: LoadHistory, plant: Plant) -> int:
    """Return the size that the load of the beginning asks for, within the bounds."""
    wanted = 0.0
    for metric in hpa.metrics:
        column = load.columns[key_of(metric)]
        known = column[~np.isnan(column)]
        if len(known):
            wanted = max(wanted, float(known[0]) / target_of(metric, plant))
    return int(min(max(np.ceil(wanted - _ROUNDING), hpa.min_replicas, 1), hpa.max_replicas))


def _hidden(load: LoadHistory, times: NDArray[np.float64]) -> NDArray[np.bool_]:
    rows = np.maximum(np.searchsorted(load.time_s, times, side="right") - 1, 0)
    found: NDArray[np.bool_] = load.hidden[rows]
    return found


def _longest(flags: NDArray[np.bool_]) -> int:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    return int((edges[1::2] - edges[::2]).max()) if len(edges) else 0
