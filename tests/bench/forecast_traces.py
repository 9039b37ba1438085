"""Production's series with a forecast and its gate, beside the metrics alone with as many pods.

Of each series the days from the ninth on count. The metrics alone get the target at which they
cost 1.3 times the oracle; the target under a forecast is raised until it costs as much. Its gate
switches days on and off as the target moves, so that it may jump over that cost: what it leaves
unserved is then read from between the two targets beside the jump, a hundredth apart.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast.daily import ForecastTrial, trial
from hpa.simulate.loop import RunVerdict, first_size, measure, needed, oracle, simulate
from hpa.simulate.workload import LoadHistory, Plant
from tests.bench.figures import Figures

DELAYS_S = (180.0, 600.0)
FEWEST_DAYS, MOST_DAYS, LEARNT_DAYS = 12, 28, 8
CAPACITY, MEAN_PODS = 62.5, 20.0
BUDGET = 1.3  # times the oracle's pod-hours
MEAN_GOAL, WORST_GOAL = 0.65, 1.05
SMALL, FINE = 1e-4, 1.01
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


def series(load: LoadHistory) -> LoadHistory | None:
    """Return a load of twenty pods in the mean; None: it is shorter than twelve days."""
    if load.end_s - load.time_s[0] < (FEWEST_DAYS - 0.01) * DAY_S:
        return None
    used = load.time_s < load.time_s[0] + MOST_DAYS * DAY_S
    times, values = load.time_s[used], load.columns["requests"][used]
    column = values / np.nanmean(values) * MEAN_PODS * 50.0
    return LoadHistory(times, {"requests": column}, np.zeros(len(times), np.bool_))


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
            self.need.time_s, expected=None if tried is None else tried.expected,
        )  # fmt: skip
        is_over = np.zeros(len(run.time_s), np.bool_)
        return measure(self.need, run.replicas, run.ready, is_over), tried

    def alone(self) -> tuple[float, RunVerdict]:
        """Return the lowest target that costs at most ``BUDGET``, by bisection."""
        low, high = 8.0, 125.0
        most = BUDGET * self.oracle_hours
        while (best := self.at(high, is_forecast=False)[0]).pod_hours > most:
            low, high = high, 2.0 * high
        while high / low > FINE:
            target = (low * high) ** 0.5
            found, _ = self.at(target, is_forecast=False)
            if found.pod_hours <= most:
                best, high = found, target
            else:
                low = target
        return high, best

    def ahead(self, target: float, most: float) -> tuple[float, float, ForecastTrial | None]:
        """Return pod-hours, at most ``most``, and what is left unserved with a forecast, whose
        target is ``target`` or higher."""
        low = high = target
        (over, _) = above = self.at(target, is_forecast=True)
        if over.pod_hours <= most * 1.001:
            return over.pod_hours, over.unserved, above[1]
        while (below := self.at(high := high * 1.2, is_forecast=True))[0].pod_hours > most:
            low, above = high, below
        while high / low > FINE:
            middle = (low * high) ** 0.5
            found = self.at(middle, is_forecast=True)
            if found[0].pod_hours <= most:
                high, below = middle, found
            else:
                low, above = middle, found
        one, other = below[0], above[0]
        part = (most - one.pod_hours) / (other.pod_hours - one.pod_hours)
        logs = [np.log(each.unserved + SMALL) for each in (one, other)]
        unserved = float(np.exp(logs[0] + part * (logs[1] - logs[0]))) - SMALL
        return most, unserved, (below if part < 0.5 else above)[1]


def figures_of(job: tuple[str, LoadHistory, float, HPA]) -> SeriesFigures:
    """Return the figures of one series at one delay."""
    name, load, delay_s, hpa = job
    tried = _Series(load, delay_s, hpa)
    target, alone = tried.alone()
    hours, unserved, nearest = tried.ahead(target, alone.pod_hours)
    taken: dict[str, int] = {}
    for each in [] if nearest is None else nearest.taken[LEARNT_DAYS:]:
        if each is not None:
            taken[each.candidate] = taken.get(each.candidate, 0) + 1
    return SeriesFigures(
        name, round((load.end_s - load.time_s[0]) / DAY_S), delay_s,
        alone.pod_hours / tried.oracle_hours, alone.unserved, hours / tried.oracle_hours, unserved,
        taken,
    )  # fmt: skip


def all_figures(
    loads: Mapping[str, LoadHistory], hpa: HPA, delays_s: Sequence[float] = DELAYS_S
) -> list[SeriesFigures]:
    """Return the figures of all series that are long enough, at each delay."""
    hpa = structs.replace(
        hpa, max_replicas=100_000, options=structs.replace(hpa.options, sync_period_s=60.0)
    )
    jobs = [
        (name, found, delay_s, hpa)
        for delay_s in delays_s
        for name, load in loads.items()
        if (found := series(load)) is not None
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        return list(pool.map(figures_of, jobs))


def hold(figures: Figures, found: Sequence[SeriesFigures]) -> None:
    """Hold the goals of a delay of ten minutes, and that nothing gets much worse at any."""
    late = [each for each in found if each.delay_s == max(DELAYS_S)]
    figures.at_most("unserved with a forecast / without, geometric mean at 10 min",
                    geometric(late), MEAN_GOAL)  # fmt: skip
    worst = max(found, key=lambda each: each.ratio)
    figures.at_most("the worst series, at any delay", worst.ratio, WORST_GOAL, f"({worst.name})")
    dearest = max(found, key=lambda each: each.forecast_hours)
    figures.at_most("pod-hours, in oracle's", dearest.forecast_hours, BUDGET, f"({dearest.name})")


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
