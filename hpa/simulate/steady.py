"""Passes that leave the size as it is, found many at once: the kernel of a replay.

Most passes of a history change nothing. While the pods stand as they do, what the metrics ask
for is a function of the load alone, and is worked out here for all the passes to come, with
numpy, up to the first that could change the size. ``hpa.decide`` decides that one. Only what its
metrics and windows compute is written a second time; policies, bounds and pods are not.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from hpa.decide import Decision, Past, Settings
from hpa.decide.api.spec import HPA, MetricSpec, Rules
from hpa.decide.behavior.limits import counts
from hpa.decide.metrics.ratios import Tolerance
from hpa.decide.metrics.requests import requests_of
from hpa.decide.numbers import INT32_MAX
from hpa.decide.observation import Recommendation
from hpa.decide.reconcile import tolerance_of
from hpa.decide.steps import Chosen, LimitApplied
from hpa.simulate.load import Floats, LoadHistory, key_of
from hpa.simulate.workload import Plant, PodShares, SimulatedWorkload

_FEWEST = 3  # passes together; fewer cost less one by one
_FIRST = 64  # passes looked at together; four times as many whenever none of them turns
_SLACK_S = 1e-3  # what is this near to a change of the pods is decided plainly
_MOST_MILLI = 2.0**50  # of a load: whole numbers stay exact in doubles
_PER_POD = ("Resource", "ContainerResource", "Pods")


class SteadyPasses:
    """The passes over one HPA: what its metrics asked for at each, and the next that may turn."""

    def __init__(self, hpa: HPA, loads: Sequence[Floats], plant: Plant, settings: Settings,
                 times: Floats) -> None:  # fmt: skip
        """``loads`` are those of each metric at ``times``, as old as they are then."""
        self._hpa = hpa
        self._settings = settings
        self._times = times
        self._tolerance = tolerance_of(hpa, settings)
        self._metrics = [
            (metric, load, np.rint(np.nan_to_num(load) * 1000.0).astype(np.int64),
             plant.request_milli(metric.name, metric.container))
            for metric, load in zip(hpa.metrics, loads, strict=True)
        ]  # fmt: skip
        down_s = None if hpa.behavior is None else hpa.behavior.down.window_s
        self._down_s = settings.downscale_stabilization_s if down_s is None else float(down_s)
        self._up_s = 0.0 if hpa.behavior is None else float(hpa.behavior.up.window_s or 0)
        # A place for the size found at the beginning, then one for each pass; NaN: none.
        self._asked = np.full(len(times) + 1, np.nan)
        self._asked_at = np.concatenate((times[:1], times))
        # Until when the policies of a direction are known to let nothing through.
        self._barred_s: dict[str, float] = {}
        self._turn_row = 0  # it may change the size

    def count(self, row: int, workload: SimulatedWorkload) -> tuple[int, int]:
        """Return how many passes from ``row`` on leave the size as it is, for sure, and how many
        pods serve meanwhile."""
        if row == self._turn_row:
            return 0, 0
        size = len(workload)
        now = float(self._times[row])
        pods = workload.shares(now, self._settings.cpu_initialization_s)
        if pods is None or not self._hpa.min_replicas <= size <= self._hpa.max_replicas:
            return 0, 0
        end = int(self._times.searchsorted(pods.until_s - _SLACK_S))
        if end - row < _FEWEST:
            return 0, 0
        at, width = row, _FIRST
        while at < end:
            asked = self._asks(slice(at, min(at + width, end)), size, pods)
            kept = self._until_turn(asked, at, size)
            self._asked[at + 1 : at + 1 + kept] = asked[:kept]
            at += kept
            if kept < len(asked):
                self._turn_row = at
                break
            width *= 4
        return at - row, pods.ready

    def past(self, row: int, past: Past) -> Past:
        """Return ``past`` with the recommendations that a pass at ``row`` can still see."""
        start = self._first_seen(row)
        asked, at = self._asked[start : row + 1], self._asked_at[start : row + 1]
        known = ~np.isnan(asked)
        pairs = zip(asked[known].tolist(), at[known].tolist(), strict=True)
        seen = tuple([Recommendation(int(replicas), at_s) for replicas, at_s in pairs])
        return structs.replace(past, recommendations=seen)

    def decided(self, row: int, size: int, decision: Decision) -> None:
        """Take in a pass that was decided plainly, at ``size``."""
        if row == 0:
            self._asked[0] = size
        for step in decision.trace.steps:
            if isinstance(step, Chosen):
                self._asked[row + 1] = max(step.replicas, 0)
        if decision.replicas is not None:
            self._barred_s = {}
            return
        behavior, last = self._hpa.behavior, decision.trace.steps[-1]
        if behavior is not None and isinstance(last, LimitApplied):
            rules = behavior.up if last.reason == "ScaleUpLimit" else behavior.down
            self._barred_s[last.reason] = _next_expiry(decision.past, rules, decision.trace.now)

    def _asks(self, rows: slice, size: int, pods: PodShares) -> Floats:
        # What the metrics ask for together; NaN where nothing may be decided from them.
        best, worst = None, None
        for metric, loads, totals, request in self._metrics:
            load = loads[rows]
            if metric.type in _PER_POD:
                found = _by_pods(metric, totals[rows], request, size, pods, self._tolerance)
                found[np.isnan(load)] = np.nan
            else:
                found = _by_whole(metric, load, size, pods, self._tolerance)
            best = found if best is None else np.fmax(best, found)
            worst = found if worst is None else worst + found  # NaN as soon as one of them is
        if best is None or worst is None or len(self._metrics) == 1:
            return np.empty(0) if best is None else best
        best[np.isnan(worst) & (best < size)] = np.nan
        return best

    def _until_turn(self, asked: Floats, at: int, size: int) -> int:
        # How many of the passes from ``at`` on keep the size, windows and bounds considered.
        start, count = self._first_seen(at), len(asked)
        seen = np.concatenate((self._asked[start : at + 1], asked))
        up, down = seen > size, seen < size
        is_up = size < self._hpa.max_replicas and bool(up.any())
        is_down = size > self._hpa.min_replicas and bool(down[-count:].any())
        if not is_up and not is_down:
            return count
        now, seen_at = self._times[at : at + count], self._asked_at[start : start + len(seen)]
        known = ~np.isnan(seen)

        def last(flags: NDArray[np.bool_]) -> Floats:
            # When one of ``flags`` was recorded last, this pass included.
            rows = np.maximum.accumulate(np.where(flags, np.arange(len(seen)), -1))[-count:]
            return np.where(rows >= 0, seen_at[rows], -np.inf)

        turns = np.zeros(count, np.bool_)
        if self._hpa.behavior is None:
            # One higher number of the window raises the size, whatever is asked for now.
            if is_up:
                turns |= known[-count:] & (last(up) >= now - self._down_s)
            if is_down:
                turns |= down[-count:] & (last(known & ~down) < now - self._down_s)
        else:
            if is_up:
                is_free = now >= self._barred_s.get("ScaleUpLimit", -math.inf)
                turns |= up[-count:] & is_free & (last(known & ~up) <= now - self._up_s)
            if is_down:
                is_free = now >= self._barred_s.get("ScaleDownLimit", -math.inf)
                turns |= down[-count:] & is_free & (last(known & ~down) <= now - self._down_s)
        return int(np.argmax(turns)) if turns.any() else count

    def _first_seen(self, row: int) -> int:
        window_s = max(self._up_s, self._down_s)
        return int(self._asked_at.searchsorted(self._asked_at[row] - window_s))


def covers(hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings) -> bool:
    """Return whether ``SteadyPasses`` knows all that ``decide`` would look at.

    It does not know zero replicas, the fallbacks, schedules and pauses of annotations, limits to
    the age of a sample, shadow mode, metrics without a target or a request, and loads below 0 or
    of more than 2^50 thousandths.
    """
    options = hpa.options
    if hpa.min_replicas < 1 or options.is_paused or options.fallbacks or options.schedules:
        return False
    if settings.metric_max_age_s is not None or settings.mode != "replace":
        return False
    return bool(hpa.metrics) and all(_covers(each, load, plant, settings) for each in hpa.metrics)


def _covers(metric: MetricSpec, load: LoadHistory, plant: Plant, settings: Settings) -> bool:
    column = load.columns[key_of(metric)]
    most = float(np.nanmax(column, initial=0.0)) * 1000.0
    if most > _MOST_MILLI or np.nanmin(column, initial=0.0) < 0:
        return False
    if metric.type == "Object" and metric.target_type == "Value":
        target = metric.value_milli
    elif metric.type in ("Object", "Pods") or metric.average_value_milli is not None:
        target = metric.average_value_milli
    elif metric.type == "External":
        target = metric.value_milli
    else:
        target = metric.average_utilization
        pods = SimulatedWorkload(plant, "", 1, 0.0).pods(0.0)
        found = requests_of(pods, metric.name, metric.container,
                            pod_level=settings.gates.pod_level_resources)  # fmt: skip
        if not isinstance(found, dict) or not all(found.values()):
            return False
        if most * 100 // min(found.values()) > INT32_MAX:
            return False
    return target is not None and target > 0


def _by_pods(
    metric: MetricSpec, total: NDArray[np.int64], request: int, size: int, pods: PodShares,
    tolerance: Tolerance,
) -> Floats:  # fmt: skip
    # by_average and by_utilization, of pods that all request the same.
    is_cpu = metric.type != "Pods" and metric.name == "cpu"
    starting = pods.initializing if is_cpu else 0
    counted = pods.sampled - starting
    if counted < 1:
        return np.full(len(total), np.nan)
    usage = total
    if pods.serving != counted:
        each, more = np.divmod(total, pods.serving)
        usage = each * counted + np.minimum(more, counted)  # those that start come last

    def ratio(milli: NDArray[np.int64], entries: int | NDArray[np.int64]) -> Floats:
        average = metric.average_value_milli
        found = milli * 100 // (request * entries) if average is None else milli // entries
        shares: Floats = found.astype(np.float64) / (average or metric.average_utilization or 1)
        return shares

    fill = metric.average_value_milli
    if fill is None:
        fill = request * max(100, metric.average_utilization or 0) // 100
    first = ratio(usage, counted)
    corrected, entries = first, np.full(len(total), counted)
    unready = pods.pending + starting
    if pods.missing or unready:
        is_less, is_more = first < 1.0, first > 1.0
        entries += pods.missing * (is_less | is_more) + unready * is_more
        corrected = ratio(usage + is_less * (pods.missing * fill), entries)
    asked: Floats = np.minimum(np.ceil(corrected * entries), INT32_MAX)
    keeps = _holds(tolerance, corrected)
    if corrected is not first:
        keeps |= ((first < 1.0) & (corrected > 1.0)) | ((first > 1.0) & (corrected < 1.0))
        keeps |= ((corrected < 1.0) & (asked > size)) | ((corrected > 1.0) & (asked < size))
    asked[keeps] = size
    return asked


def _by_whole(
    metric: MetricSpec, load: Floats, size: int, pods: PodShares, tolerance: Tolerance
) -> Floats:
    # by_value and by_average_value.
    if metric.is_by_value:
        usage = np.rint(load * 1000.0 / max(pods.serving, 1))
        ratio = usage / (metric.value_milli or 1)
        asked = np.ceil(ratio * pods.ready)
    else:
        target = metric.average_value_milli or 1
        usage = np.rint(load * 1000.0)
        ratio = usage / (float(target) * size)
        asked = np.ceil(usage / target)
    asked = np.minimum(asked, INT32_MAX)
    asked[_holds(tolerance, ratio)] = size
    return asked


def _holds(tolerance: Tolerance, ratio: Floats) -> NDArray[np.bool_]:
    return (1.0 - tolerance.down <= ratio) & (ratio <= 1.0 + tolerance.up)


def _next_expiry(past: Past, rules: Rules, now: float) -> float:
    # When the first rescale leaves the period of a policy, and gives room again.
    ends = [
        event.at + policy.period_seconds
        for is_other, events in ((False, past.scale_ups), (True, past.scale_downs))
        for event in events
        for policy in rules.policies
        if counts(event, policy.period_seconds, now, is_other=is_other)
    ]
    return min(ends, default=math.inf) - _SLACK_S
