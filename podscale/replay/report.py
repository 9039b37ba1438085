"""Each candidate through the history, beside the oracle: the rows of a report, and the report as
plain data.

A run is work for one core; several are spread over all of them, and come in their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast.daily import trial
from hpa.forecast.gate import FEWEST_DAYS, GateVerdict
from hpa.simulate import loop
from hpa.simulate.workload import LoadHistory, Plant, key_of
from podscale.replay import parallel
from podscale.replay.inputs import ReplayError


class ReplayCandidate(Struct, frozen=True):
    """One spec to try, and what it is called."""

    name: str
    hpa: HPA


class ReplayQuestion(Struct, frozen=True):
    """What all candidates share."""

    load: LoadHistory
    plant: Plant
    settings: Settings
    capacities: Mapping[str, float]  # of a pod, by the key of a metric
    replicas: int  # at the beginning


class ReplayRow(Struct, frozen=True, eq=False):
    """One line of a report; ``run`` is there where it is drawn."""

    name: str
    verdict: loop.RunVerdict
    run: loop.SimulatedRun | None = None


def question(
    today: HPA,
    load: LoadHistory,
    plant: Plant,
    settings: Settings,
    *,
    pod_capacity: float | None,
    replicas: int | None,
) -> tuple[ReplayQuestion, list[str]]:
    """Return the question and its assumptions in words; raises ``ReplayError``."""
    for metric in today.metrics:
        if metric.average_utilization is not None and not plant.request_milli(
            metric.name, metric.container
        ):
            container = f"{metric.container}/" if metric.container else ""
            raise ReplayError(
                f"The {metric.name} target is a utilization; pass the pod's request, e.g. "
                f"--request {container}{metric.name}=500m"
            )
    if pod_capacity is not None and len(today.metrics) > 1:
        raise ReplayError("--pod-capacity is of one metric, and the HPA has several")
    found = {}
    words = []
    for metric in today.metrics:
        capacity, why = loop.capacity_of(metric, plant)
        if pod_capacity is not None:
            capacity, why = pod_capacity, "--pod-capacity"
        if capacity <= 0:
            raise ReplayError(f"{metric.name} has no target that a pod could be measured by")
        found[key_of(metric)] = capacity
        words.append(f"a pod serves {capacity:g} of {key_of(metric)} ({why})")
    size = loop.first_size(today, load, plant) if replicas is None else replicas
    return ReplayQuestion(load, plant, settings, found, size), words


def need_of(asked: ReplayQuestion, hpa: HPA) -> loop.NeededPods:
    """Return d(t) at the times at which ``hpa`` is decided on."""
    return loop.needed(asked.load, asked.capacities, asked.settings.period_of(hpa))


def run(asked: ReplayQuestion, candidate: ReplayCandidate, *, is_drawn: bool) -> ReplayRow:
    hpa = candidate.hpa
    need = need_of(asked, hpa)
    made = loop.simulate(hpa, asked.load, asked.plant, asked.settings, asked.replicas, need.time_s)
    verdict = loop.judge(made, hpa, asked.load, asked.plant, need)
    return ReplayRow(candidate.name, verdict, made if is_drawn else None)


def rows(
    asked: ReplayQuestion,
    candidates: Sequence[ReplayCandidate],
    *,
    is_drawn: bool,
    cores: int | None = None,
    dask: str = "",
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Iterator[ReplayRow]:
    """Yield the rows in the order of ``candidates``, each as soon as it is done."""
    count = min(cores or parallel.cores(), len(candidates))
    shared = asked, is_drawn
    made: Iterator[ReplayRow | ReplayError]
    if not candidates or (count == 1 and not dask):
        made = (_run(shared, each) for each in candidates)
    elif dask:
        made = parallel.over_dask(_run, shared, candidates, dask)
    else:  # nothing else runs in this process, and the history is megabytes
        made = parallel.over_cores(_run, shared, candidates, count)
    for number, (each, row) in enumerate(zip(candidates, made, strict=True), 1):
        if isinstance(row, ReplayError):
            raise row
        yield row
        progress(number, len(candidates), each.name)


def _run(shared: tuple[ReplayQuestion, bool], candidate: ReplayCandidate) -> ReplayRow:
    asked, is_drawn = shared
    return run(asked, candidate, is_drawn=is_drawn)


FORECAST = "forecast"
GATE_COLUMNS = ("candidate", "pod-hours", "unserved", "metrics alone", "saved", "")


def forecast_row(asked: ReplayQuestion, today: HPA) -> tuple[ReplayRow, GateVerdict | None, str]:
    """Return the row, what the gate says at the end (None: too few days), and a sentence."""
    tried = trial(today, asked.load, asked.plant, asked.settings, asked.capacities)
    need = need_of(asked, today)
    made = loop.simulate(today, asked.load, asked.plant, asked.settings, asked.replicas,
                         need.time_s, expected=tried.expected)  # fmt: skip
    row = ReplayRow(FORECAST, loop.judge(made, today, asked.load, asked.plant, need), made)
    if tried.last is None:
        return row, None, f"a forecast needs {FEWEST_DAYS} whole days of history"
    days = sum(each is not None and each.taken is not None for each in tried.taken)
    words = (
        f"{FORECAST} is the first spec with what its gate took each day, which was something on "
        f"{days} of {len(tried.taken)} days"
    )
    return row, tried.last, words


def gate_body(gate: GateVerdict) -> Mapping[str, object]:
    """Return the gate's table as data: shares of 1."""
    return {
        "candidate": gate.candidate,
        "days": gate.days,
        "rows": [
            {"candidate": row.name, "podHours": round(row.pod_hours, 2),
             "unserved": round(row.unserved, 6), "metricsAlone": round(row.reactive, 6),
             "saved": round(row.saved, 4), "isTaken": row is gate.taken}
            for row in gate.rows
        ],
    }  # fmt: skip


def gate_cells(gate: GateVerdict) -> list[dict[str, str]]:
    """Return the gate's table as people read it, by ``GATE_COLUMNS``."""
    return [
        dict(zip(GATE_COLUMNS, (
            row.name, f"{row.pod_hours:.1f}", f"{row.unserved:.3%}", f"{row.reactive:.3%}",
            f"{row.saved:.0%}", "taken" if row is gate.taken else "",
        ), strict=True))
        for row in gate.rows
    ]  # fmt: skip


RECORDED = "recorded"  # the line of what there really was
# What a line says, in the order of the columns of a table, and their titles.
COLUMNS = {
    "spec": "spec", "podHours": "pod-hours", "cost": "cost", "unserved": "unserved",
    "overTarget": "over target", "rescalesADay": "rescales/day",
    "reversalsADay": "reversals/day", "longestLag": "longest lag", "largest": "largest",
}  # fmt: skip
# What else there is in JSON, YAML and CSV.
FURTHER = (
    "underAccuracy", "overAccuracy", "underTime", "overTime", "instability",
)  # fmt: skip


class ReplayReport(Struct, frozen=True, eq=False):
    """All that a replay found out."""

    rows: Sequence[ReplayRow]  # today's first, the oracle last
    assumptions: Sequence[str]
    left_out: float  # the share of the time that counts in no sum
    start_s: float
    end_s: float
    price: float | None = None  # of a pod for an hour
    currency: str = ""
    is_whole: bool = True  # False: it was interrupted, and this is what there was
    chosen: Mapping[str, Any] | None = None  # the object that a sweep would choose
    chosen_name: str = ""
    gate: GateVerdict | None = None  # of a forecast, where one was asked for
    start_up: str = ""  # of a pod, on which what is unserved rests most

    def lines(self) -> list[Mapping[str, object]]:
        """Return each line with numbers: shares of 1, hours, seconds."""
        return [self._line(row.name, row.verdict) for row in self.rows]

    def body(self) -> Mapping[str, object]:
        """Return everything as JSON and YAML show it."""
        return {
            "kind": "ReplayReport",
            "start": self.start_s,
            "end": self.end_s,
            "leftOut": round(self.left_out, 4),
            "isWhole": self.is_whole,
            **({"currency": self.currency} if self.currency else {}),
            "assumptions": list(self.assumptions),
            "specs": self.lines(),
            **({"chosen": self.chosen} if self.chosen else {}),
            **({"forecast": gate_body(self.gate)} if self.gate else {}),
        }

    def _line(self, name: str, verdict: loop.RunVerdict) -> Mapping[str, object]:
        cost = None if self.price is None else round(self.price * verdict.pod_hours, 2)
        line: dict[str, object] = {
            "spec": name,
            "podHours": round(verdict.pod_hours, 4),
            "cost": cost,
            "unserved": round(verdict.unserved, 6),
            "overTarget": round(verdict.over_target_s),
            "rescalesADay": round(verdict.rescales_a_day, 2),
            "reversalsADay": round(verdict.reversals_a_day, 2),
            "longestLag": round(verdict.longest_lag_s),
            "largest": verdict.largest,
            "underAccuracy": round(verdict.under_accuracy, 6),
            "overAccuracy": round(verdict.over_accuracy, 6),
            "underTime": round(verdict.under_time, 6),
            "overTime": round(verdict.over_time, 6),
            "instability": round(verdict.instability, 6),
        }
        if cost is None:
            del line["cost"]
        return line


class NamedReplay(Struct, frozen=True, eq=False):
    """The report of one of many HPAs, or why there is none."""

    name: str  # namespace/name
    report: ReplayReport | ReplayError

    def lines(self) -> list[Mapping[str, object]]:
        """Return a line for each spec, beside the pod-hours that it takes at least."""
        if isinstance(self.report, ReplayError):
            return [{"hpa": self.name, "failed": str(self.report)}]
        lines = self.report.lines()
        least = lines[-1]["podHours"]
        return [{"hpa": self.name, **each, "oraclePodHours": least}
                for each in lines[:-1] if each["spec"] != RECORDED]  # fmt: skip


class AllReplays(Struct, frozen=True, eq=False):
    """Many HPAs, by namespace and name."""

    replays: Sequence[NamedReplay]
    is_whole: bool

    def body(self) -> Mapping[str, object]:
        """Return everything as JSON and YAML show it."""
        return {
            "kind": "ReplayReportList",
            "isWhole": self.is_whole,
            "items": [
                {"hpa": each.name, "failed": str(each.report)}
                if isinstance(each.report, ReplayError)
                else {"hpa": each.name, **each.report.body()}
                for each in self.replays
            ],
        }
