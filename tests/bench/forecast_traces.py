"""Production's series with a forecast and its gate, beside the metrics alone with as many pods.

Of each series the days from the ninth on count. The metrics alone get the target at which they cost
1.3 times the oracle; the forecast is tried at that target and at seven above it, and what it leaves
unserved is read from between them where it costs as much. (Its gate switches with the target, so
that no single target may cost the same.)
"""

import csv
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from msgspec import Struct, structs

from hpa.decide import Settings
from hpa.decide.api.spec import HPA
from hpa.forecast.trial import ForecastTrial, trial
from hpa.simulate.load import LoadHistory
from hpa.simulate.loop import simulate
from hpa.simulate.verdict import RunVerdict, first_size, measure, needed, oracle
from hpa.simulate.workload import Plant

DELAYS_S = (180.0, 600.0)
FEWEST_DAYS, MOST_DAYS, LEARNT_DAYS = 12, 28, 8
CAPACITY, MEAN_PODS = 62.5, 20.0
BUDGET = 1.3  # times the oracle's pod-hours
SMALL = 1e-4
DAY_S = 86400.0


class SeriesFigures(Struct, frozen=True):
    """One series at one delay; shares of 1, pod-hours in times of the oracle's."""

    name: str
    days: int
    delay_s: float
    hours: float  # of the metrics alone
    reactive: float
    forecast_hours: float
    forecast: float
    taken: dict[str, int]  # days by candidate

    @property
    def ratio(self) -> float:
        return (self.forecast + SMALL) / (self.reactive + SMALL)


def series(file: Path) -> LoadHistory | None:
    """Return a load of twenty pods in the mean; None: it is shorter than twelve days."""
    with file.open(encoding="utf-8") as opened:
        rows = [row for row in csv.reader(opened) if row][1:]
    pairs = sorted({_time(row[0]): float(row[1]) for row in rows if row[1]}.items())
    times = np.array([at for at, _ in pairs])
    if times[-1] - times[0] < (FEWEST_DAYS - 0.01) * DAY_S:
        return None
    is_used = times < times[0] + MOST_DAYS * DAY_S
    times, values = times[is_used], np.array([value for _, value in pairs])[is_used]
    load = values / values.mean() * MEAN_PODS * 50.0
    return LoadHistory(times, {"requests": load}, np.zeros(len(times), np.bool_))


def _time(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class _Series:
    # One series at one delay, tried at targets.

    def __init__(self, load: LoadHistory, delay_s: float, hpa: HPA) -> None:
        self.load, self.hpa = load, hpa
        self.plant = Plant(ready_after_s=(delay_s,))
        self.capacities = {"requests": CAPACITY}
        rows = load.time_s >= load.time_s[0] + LEARNT_DAYS * DAY_S
        columns = {name: values[rows] for name, values in load.columns.items()}
        self.judged = LoadHistory(load.time_s[rows], columns, load.hidden[rows])
        self.need = needed(self.judged, self.capacities, 60.0)
        self.oracle_hours = oracle(self.need).pod_hours

    def at(self, target: float, *, is_forecast: bool) -> tuple[RunVerdict, ForecastTrial | None]:
        """Return what comes of a target."""
        milli = round(target * 1000)
        metrics = tuple(structs.replace(each, average_value_milli=milli)
                        for each in self.hpa.metrics)  # fmt: skip
        hpa = structs.replace(self.hpa, metrics=metrics)
        tried = None
        if is_forecast:
            tried = trial(hpa, self.load, self.plant, Settings(), self.capacities)
        run = simulate(
            hpa, self.judged, self.plant, Settings(), first_size(hpa, self.judged, self.plant),
            expected=None if tried is None else tried.expected,
        )  # fmt: skip
        is_over = np.zeros(len(run.time_s), np.bool_)
        return measure(self.need, run.replicas, run.ready, is_over), tried

    def alone(self) -> tuple[float, RunVerdict]:
        """Return the lowest target that costs at most ``BUDGET``, by bisection."""
        low, high = 8.0, 125.0
        best = (high, self.at(high, is_forecast=False)[0])
        for _ in range(9):
            target = (low * high) ** 0.5
            found, _ = self.at(target, is_forecast=False)
            if found.pod_hours <= BUDGET * self.oracle_hours:
                best, high = (target, found), target
            else:
                low = target
        return best


def figures_of(job: tuple[str, LoadHistory, float, HPA]) -> SeriesFigures:
    """Return the figures of one series at one delay."""
    name, load, delay_s, hpa = job
    tried = _Series(load, delay_s, hpa)
    target, alone = tried.alone()
    found = [tried.at(target * 1.08**step, is_forecast=True) for step in range(8)]
    found.sort(key=lambda each: each[0].pod_hours)
    hours = [each[0].pod_hours for each in found]
    logs = [np.log(each[0].unserved + SMALL) for each in found]
    same = float(np.exp(np.interp(alone.pod_hours, hours, logs))) - SMALL
    nearest = found[int(np.argmin(np.abs(np.array(hours) - alone.pod_hours)))][1]
    taken: dict[str, int] = {}
    for each in [] if nearest is None else nearest.taken[LEARNT_DAYS:]:
        if each is not None:
            taken[each.candidate] = taken.get(each.candidate, 0) + 1
    return SeriesFigures(
        name, round((load.end_s - load.time_s[0]) / DAY_S), delay_s,
        alone.pod_hours / tried.oracle_hours, alone.unserved,
        min(alone.pod_hours, hours[-1]) / tried.oracle_hours, same, taken,
    )  # fmt: skip


def all_figures(
    files: Sequence[Path], hpa: HPA, delays_s: Sequence[float] = DELAYS_S
) -> list[SeriesFigures]:
    """Return the figures of all series that are long enough, at each delay."""
    hpa = structs.replace(
        hpa, max_replicas=100_000, options=structs.replace(hpa.options, sync_period_s=60.0)
    )
    jobs = [
        (f"{file.parent.name}/{file.stem}", load, delay_s, hpa)
        for file in files
        if (load := series(file)) is not None
        for delay_s in delays_s
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        return list(pool.map(figures_of, jobs))


def geometric(found: Sequence[SeriesFigures]) -> float:
    """Return the geometric mean of the ratios."""
    return float(np.exp(np.mean([np.log(each.ratio) for each in found])))


def table(found: Sequence[SeriesFigures]) -> str:
    """Return the table of docs/replay.md."""
    lines = [
        "| trace | days | delay | pod-hours, in oracle's | unserved | forecast | ratio | taken |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        taken = ", ".join(f"{name} {days}" for name, days in each.taken.items())
        lines.append(
            f"| {each.name} | {each.days} | {each.delay_s / 60:.0f} min | {each.hours:.2f}, "
            f"{each.forecast_hours:.2f} | {each.reactive:.3%} | {each.forecast:.3%} "
            f"| {each.ratio:.2f} | {taken} |"
        )
    return "\n".join(lines) + "\n"
