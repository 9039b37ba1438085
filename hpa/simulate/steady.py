"""Passes settled many at once: the kernel of a replay.

Most passes of a history change nothing. While the size is what it is, what the metrics ask for
is a function of the load and of pods that come up, and is worked out here for all the passes to
come, with numpy, up to the first that may change the size. Windows, policies and bounds of that one
are ``hpa.decide``'s own; what its metrics compute is written a second time.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide.api.spec import HPA, MetricSpec, Rules
from hpa.decide.behavior import counts, limited, remember_scale, stabilized
from hpa.decide.decision import Chosen, Decision, LimitApplied
from hpa.decide.metrics.replicas import Tolerance, tolerance_of
from hpa.decide.metrics.requests import requests_of
from hpa.decide.numbers import INT32_MAX
from hpa.decide.observation import Past, Recommendation
from hpa.decide.settings import Settings
from hpa.simulate.workload import (
    Counts,
    Floats,
    LoadHistory,
    Plant,
    PodShares,
    SimulatedWorkload,
    key_of,
)

_FIRST = 64  # passes looked at together; four times as many whenever none of them turns
_SLACK_S = 1e-3  # what is this near to the end of a policy's period is decided plainly
_MOST_MILLI = 2.0**50  # of a load: whole numbers stay exact in doubles
_PER_POD = ("Resource", "ContainerResource", "Pods")

# Named here: in a function that is made or called ten thousand times they are made as often.
Flags = NDArray[np.bool_]
Wholes = NDArray[np.int64]


class _Windows(Struct, frozen=True):
    up_s: float
    down_s: float
    passes: int  # in the longer one


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
        window_s = None if hpa.behavior is None else hpa.behavior.down.window_s
        is_cpu = any(_is_cpu(metric) for metric in hpa.metrics)
        self._initialization_s = settings.cpu_initialization_s if is_cpu else 0.0
        down_s = settings.downscale_stabilization_s if window_s is None else float(window_s)
        up_s = 0.0 if hpa.behavior is None else float(hpa.behavior.up.window_s or 0)
        # A place for the size found at the beginning, then one for each pass; NaN: none.
        self._asked = np.full(len(times) + 1, np.nan)
        self._asked_at = np.concatenate((times[:1], times))
        period_s = float(np.diff(times).min()) if len(times) > 1 else 1.0
        self._windows = _Windows(up_s, down_s, math.ceil(max(up_s, down_s) / period_s) + 1)
        # Until when the policies of a direction are known to let nothing through.
        self._barred_s: dict[str, float] = {}
        self._turn_row = -1  # it may change the size
        self._width = _FIRST

    def kept(self, row: int, workload: SimulatedWorkload) -> tuple[int, Counts]:
        """Return how many passes from ``row`` on surely leave the size as it is, as far as was
        looked, and how many pods serve in them; 0: the one at ``row`` may turn."""
        size = len(workload)
        if row == self._turn_row or not self._hpa.min_replicas <= size <= self._hpa.max_replicas:
            return 0, 0
        rows = slice(row, row + self._width)
        pods = workload.shares(self._times[rows], self._initialization_s)
        if pods is None:
            return 0, 0
        asked = self._asks(rows, size, pods)
        count = self._until_turn(asked, row, size)
        stop = min(count + 1, len(asked))
        self._asked[row + 1 : row + 1 + stop] = asked[:stop]
        if count < len(asked):
            self._turn_row = row + count
        self._width *= 4
        return count, pods.ready if isinstance(pods.ready, int) else pods.ready[:count]

    def turned(self, row: int, size: int, past: Past) -> tuple[int, Past] | None:
        """Return the size after the pass at ``row``, and what is remembered then; ``past`` is as of
        ``row``. None: only ``decide`` knows."""
        if row != self._turn_row:
            return None
        hpa, now = self._hpa, float(self._times[row])
        desired = int(self._asked[row + 1])
        recent = past.recommendations or ()
        stable = stabilized(hpa, recent, size, desired, self._settings, now).replicas
        found = limited(hpa, past, size, stable, now)
        self._settle(size, found.replicas, found.reason, past, now)
        return found.replicas, remember_scale(past, hpa.behavior, size, found.replicas, now)

    def past(self, row: int, past: Past) -> Past:
        """Return ``past`` with the recommendations that a pass at ``row`` can still see; of equal
        ones in a row the last, which counts for the longest."""
        start = max(0, row - self._windows.passes)
        asked, at = self._asked[start : row + 1], self._asked_at[start : row + 1]
        known = ~np.isnan(asked)
        known[:-1] &= asked[:-1] != asked[1:]
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
        last = decision.trace.steps[-1]
        reason = last.reason if isinstance(last, LimitApplied) else ""
        after = size if decision.replicas is None else decision.replicas
        self._settle(size, after, reason, decision.past, decision.trace.now)

    def _settle(self, size: int, after: int, reason: str, past: Past, now: float) -> None:
        # A pass is over; ``reason`` is of the limit that it met.
        self._width = _FIRST
        behavior = self._hpa.behavior
        if after != size:
            self._barred_s = {}
        elif behavior is not None and reason != "":
            rules = behavior.up if reason == "ScaleUpLimit" else behavior.down
            self._barred_s[reason] = _next_expiry(past, rules, now)

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
        start, count = max(0, at - self._windows.passes), len(asked)
        seen = np.concatenate((self._asked[start : at + 1], asked))
        up, down = seen > size, seen < size
        is_up = size < self._hpa.max_replicas and bool(up.any())
        is_down = size > self._hpa.min_replicas and bool(down[-count:].any())
        if not is_up and not is_down:
            return count
        now, seen_at = self._times[at : at + count], self._asked_at[start : start + len(seen)]
        known = ~np.isnan(seen)
        turns = np.zeros(count, np.bool_)
        if self._hpa.behavior is None:
            # One higher number of the window raises the size, whatever is asked for now.
            if is_up:
                turns |= known[-count:] & (_last(up, seen_at, count) >= now - self._windows.down_s)
            if is_down:
                held_at = _last(known & ~down, seen_at, count)
                turns |= down[-count:] & (held_at < now - self._windows.down_s)
        else:
            if is_up:
                is_free = now >= self._barred_s.get("ScaleUpLimit", -math.inf)
                held_at = _last(known & ~up, seen_at, count)
                turns |= up[-count:] & is_free & (held_at <= now - self._windows.up_s)
            if is_down:
                is_free = now >= self._barred_s.get("ScaleDownLimit", -math.inf)
                held_at = _last(known & ~down, seen_at, count)
                turns |= down[-count:] & is_free & (held_at <= now - self._windows.down_s)
        return int(np.argmax(turns)) if turns.any() else count


def _last(flags: Flags, at_s: Floats, count: int) -> Floats:
    # When one of ``flags`` was up last, at each of the last ``count`` of them.
    rows = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))[-count:]
    return np.where(rows >= 0, at_s[rows], -np.inf)


def covers(hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings) -> bool:
    """Return whether ``SteadyPasses`` knows all that ``decide`` would look at.

    It does not know zero replicas, the fallbacks, schedules and pauses of annotations, limits to
    the age of a sample, shadow mode, metrics without a target or a request, and loads below 0 or
    of more than 2^50 thousandths.
    """
    options = hpa.options
    is_special = options.is_paused or options.fallbacks
    if hpa.min_replicas < 1 or is_special or options.schedules or options.refused_schedule:
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


def _is_cpu(metric: MetricSpec) -> bool:
    return metric.type in ("Resource", "ContainerResource") and metric.name == "cpu"


def _by_pods(
    metric: MetricSpec, total: Wholes, request: int, size: int, pods: PodShares,
    tolerance: Tolerance,
) -> Floats:  # fmt: skip
    # by_average and by_utilization, of pods that all request the same.
    starting = pods.initializing if _is_cpu(metric) else 0
    counted = pods.sampled - starting
    if pods.is_settled:
        first = _ratio(metric, total, counted, request)
        asked = np.minimum(np.ceil(first * counted), INT32_MAX)
        asked[_holds(tolerance, first)] = size
        return asked
    is_sampled, counted = counted > 0, np.maximum(counted, 1)
    each, more = np.divmod(total, np.maximum(pods.serving, 1))
    usage = each * counted + np.minimum(more, counted)  # those that start come last
    first = _ratio(metric, usage, counted, request)
    fill = metric.average_value_milli
    if fill is None:
        fill = request * max(100, metric.average_utilization or 0) // 100
    is_less, is_more = first < 1.0, first > 1.0
    missing = pods.missing
    entries = counted + missing * (is_less | is_more) + (pods.pending + starting) * is_more
    corrected = _ratio(metric, usage + is_less * (missing * fill), entries, request)
    asked = np.minimum(np.ceil(corrected * entries), INT32_MAX)
    keeps = _holds(tolerance, corrected)
    keeps |= (is_less & (corrected > 1.0)) | (is_more & (corrected < 1.0))
    keeps |= ((corrected < 1.0) & (asked > size)) | ((corrected > 1.0) & (asked < size))
    asked[keeps] = size
    asked[~is_sampled] = np.nan
    return asked


def _ratio(metric: MetricSpec, usage: Wholes, entries: Counts, request: int) -> Floats:
    # Of what a pod uses in the mean to the target.
    if metric.average_value_milli is None:
        found = usage * 100 // (request * entries)
        return found.astype(np.float64) / (metric.average_utilization or 1)
    return (usage // entries).astype(np.float64) / metric.average_value_milli


def _by_whole(
    metric: MetricSpec, load: Floats, size: int, pods: PodShares, tolerance: Tolerance
) -> Floats:
    # by_value and by_average_value.
    if metric.is_by_value:
        usage = np.rint(load * 1000.0 / np.maximum(pods.serving, 1))
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


def _holds(tolerance: Tolerance, ratio: Floats) -> Flags:
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
