"""Replays beside kube-controller-manager's own code, one HPA beside its range queries, and the
traces of docs/replay.md.

A thousand HPAs, two weeks of production each, on all cores as ``replay hpa -A`` does it. The
original decides passes of the same replays: pods and values as they were then, fed from memory
in a Go process of its own.
"""

import asyncio
import csv
import gc
import io
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median

import numpy as np

from hpa.decide.api.reading import read, to_v2
from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.simulate.loop import SimulatedRun
from hpa.simulate.workload import LoadHistory, Plant
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryReader
from podscale.replay.history import HistoryWindow, LoadQuery, PastReader
from podscale.replay.inputs import ReplayError, read_trace
from podscale.replay.parallel import cores, over_cores
from podscale.replay.report import ReplayCandidate, ReplayRow, question, rows
from podscale.replay.sweep import pareto
from tests.bench import forecast_traces, gate_cost
from tests.bench.bench_decide import PERIOD_S, RELEASE, Fleet
from tests.bench.figures import Figures
from tests.bench.forecast_traces import SeriesFigures
from tests.cluster import executed
from tests.conformance.cases import Case
from tests.integration.crane import ROOT
from tests.integration.prometheus import PrometheusServer
from tests.kit import many_replays, traces
from tests.unit.hpa.simulate.loads import no_forecast, simulated

GOAL, MEMORY_MB, QUERIES = 12.0, 2000.0, 1.2
IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
HPAS, DAYS = (100, 14) if IS_SHORT else (1000, 14)
ASKED, ROUNDS, WARM = 200, 30, 4  # of the original: HPAs, passes of each
PEAK_PODS, TARGETS = 20, (30, 40, 50, 60, 70)
TODAY = 50  # of TARGETS
CANDIDATES = range(40, 100, 5)  # twelve
FORECASTS = "<!-- forecasts: written by make bench-replay -->\n"
MARK = "<!-- traces: written by make bench-replay -->\n"
END_S = 1_772_409_600


def web(target: float) -> HPA:
    """Return an HPA over one metric of its pods."""
    average = {"type": "AverageValue", "averageValue": f"{target:g}"}
    metric = {"type": "Pods", "pods": {"metric": {"name": "requests"}, "target": average}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return read(to_v2({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 100, "metrics": [metric]},
    }))  # fmt: skip


def scaled(times: np.ndarray, values: np.ndarray) -> LoadHistory:
    """Return a load whose peak asks for ``PEAK_PODS`` today."""
    load = values / np.nanmax(values) * PEAK_PODS * TODAY
    return LoadHistory(times, {"requests": load}, np.zeros(len(times), np.bool_))


def member(number: int) -> LoadHistory:
    """Return the load of one HPA of the fleet: a trace, begun at another hour."""
    files = traces.files("crane")
    values = np.loadtxt(files[number % len(files)], delimiter=",", skiprows=1, usecols=1)
    values = np.roll(values, 60 * (number // len(files)))[: DAYS * 1440]
    return scaled(60.0 * np.arange(len(values)), values)


def replayed(_: None, number: int) -> tuple[int, float, int, float, list[Case] | None]:
    """Return process, CPU seconds, passes and MB of one member, and what the original is asked."""
    load = member(number)
    began = time.process_time()
    run = simulated(web(TODAY), load, Plant(), Settings(), 3)
    spent = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    passes = list(asked(load, run, 97 * number)) if number < ASKED else None
    return os.getpid(), spent, len(run.time_s), memory, passes


def asked(load: LoadHistory, run: SimulatedRun, first: int) -> Iterator[Case]:
    """Yield consecutive passes of a replay in the form of the case files, none that scales: what
    those cost is the writing. That is the cheaper part of the original's work."""
    at = np.searchsorted(load.time_s, run.time_s - 15.0, side="right") - 1
    share = load.columns["requests"][np.maximum(at, 0)] / np.maximum(run.replicas, 1) / TODAY
    is_quiet = (run.ready == run.replicas) & (np.abs(share - 1.0) < 0.09)
    whole = np.convolve(is_quiet, np.ones(ROUNDS + WARM), "valid") > ROUNDS + WARM - 0.5
    starts = np.flatnonzero(whole)
    if not len(starts):
        return
    start = int(starts[first % len(starts)])
    for row in range(start, start + ROUNDS + WARM):
        count = int(run.replicas[row])
        each = round(float(share[row]) * TODAY * 1000)
        up = {"requests": {"app": 500}, "start_age_s": 9000.0, "ready_transition_age_s": 8990.0}
        yield {
            "pods": [{"name": f"pod-{pod}", **up} for pod in range(count)],
            "custom_pod_metrics": [
                {"pod": f"pod-{pod}", "value": each, "age_s": 15.0} for pod in range(count)
            ],
            "resource_metrics": [], "external_metric": [], "faults": {}, "size": count,
        }  # fmt: skip


def original(built: Path, fleet: list[list[Case]]) -> float:
    """Return CPU seconds of a pass of the original."""
    target = {"type": "AverageValue", "averageValue": TODAY * 1000}
    base = Fleet([{"type": "Pods", "metric": "requests", "target": target}], None).fixed
    passes = []
    for first, *later in fleet:
        size = first.pop("size")
        then = [{key: value for key, value in each.items() if key != "size"} for each in later]
        fixed = {
            **base,
            "target": base["target"] | {"spec_replicas": size, "status_replicas": size},
        }
        passes.append(fixed | first | {"then": [each | {"after_s": PERIOD_S} for each in then]})
    spent, _ = executed.timed(built, passes)
    return sum(spent[WARM:]) / (len(passes) * (len(spent) - WARM))


def fleet(figures: Figures) -> None:
    """Hold passes in a CPU second, and memory."""
    built = executed.program(RELEASE)
    count, spent, largest = 0, 0.0, dict[int, float]()
    given: list[list[Case]] = []
    for found in over_cores(replayed, None, range(HPAS), cores(), "spawn"):
        if isinstance(found, ReplayError):
            raise found
        process, seconds, passes, memory, cases = found
        count, spent = count + passes, spent + seconds
        largest[process] = max(largest.get(process, 0.0), memory)
        if cases:
            given.append(cases)
    gc.collect()
    theirs = median(original(built, [[*map(dict, each)] for each in given]) for _ in range(3))
    mine = spent / count
    plain = 0.0
    for number in range(5):
        load = member(2 * number)
        began = time.process_time()
        run = simulated(web(TODAY), load, Plant(), Settings(), 3, expected=no_forecast)
        plain += (time.process_time() - began) / len(run.time_s) / 5
    figures.note(f"the original decides on {len(given)} of them, {ROUNDS} passes each")
    figures.note(f"{HPAS} HPAs, {DAYS} days at {PERIOD_S:g} s: {count:,} passes, {spent:.0f} s CPU")
    figures.note(f"a pass: {theirs * 1e6:.1f} us theirs, {mine * 1e6:.2f} us ours, "
                 f"{plain * 1e6:.1f} us one by one")  # fmt: skip
    figures.at_least("passes in a CPU second, in times of the original's", theirs / mine, GOAL)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    total = own + sum(largest.values())
    figures.at_most("memory of all processes, MB", total, MEMORY_MB, f"({len(largest)} workers)")


def one(figures: Figures) -> None:
    """Hold the CPU until the first table of one HPA with twelve candidates."""
    load = member(0)
    pods = 10
    start_s = END_S - int(load.time_s[-1])
    times = np.arange(start_s, END_S + 1, 15)
    values = load.columns["requests"][(times - start_s) // 60] / pods
    lines = ["# TYPE requests gauge"]
    for pod in range(pods):
        lines += [f'requests{{namespace="shop",pod="web-{pod}"}} {value:.4f} {at}'
                  for at, value in zip(times.tolist(), values.tolist(), strict=True)]  # fmt: skip
    with (
        tempfile.TemporaryDirectory() as scratch,
        PrometheusServer(Path(scratch), openmetrics="\n".join([*lines, "# EOF\n"])) as prometheus,
    ):
        del lines
        server_s, began = prometheus.cpu_seconds(), spent_s()
        past = asyncio.run(history(prometheus.url, start_s))
        ours_s, theirs_s = spent_s() - began, prometheus.cpu_seconds() - server_s
    began = spent_s()
    tried = [ReplayCandidate(str(target), web(target)) for target in CANDIDATES]
    today = web(TODAY)
    given, _ = question(today, past, Plant(), Settings(), pod_capacity=None, replicas=None)
    list(rows(given, tried, is_drawn=False))
    replay_s = spent_s() - began
    figures.note(f"one HPA of {pods} pods, {DAYS} days, {len(CANDIDATES)} candidates: queries "
                 f"{ours_s:.2f} s of our CPU and {theirs_s:.2f} s of Prometheus's, replay "
                 f"{replay_s:.2f} s")  # fmt: skip
    figures.at_most("CPU of twelve candidates / of their range queries",
                    replay_s / (ours_s + theirs_s), QUERIES)  # fmt: skip


async def history(url: str, start_s: int) -> LoadHistory:
    window = HistoryWindow(float(start_s), float(END_S), 15, 50_000_000)
    query = LoadQuery("requests", 'requests{namespace="shop",pod=~"web-.*"}', "pod")
    async with HistoryReader(PrometheusOptions(url=url)) as reader:
        return (await PastReader(reader, window, lambda *_: None).past(web(TODAY), [query])).load


def spent_s() -> float:
    """Return CPU seconds of this process and of the children that have ended."""
    return sum(
        each.ru_utime + each.ru_stime
        for each in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def load_of(file: Path) -> LoadHistory:
    """Return the load of a trace; of single requests, their tokens in 15 s."""
    text = traces.text(file)
    if not text.startswith("TIMESTAMP"):
        load, _ = read_trace(text)
        return scaled(load.time_s, next(iter(load.columns.values())))
    events = list(csv.reader(io.StringIO(text)))[1:]
    at = np.array([datetime.fromisoformat(row[0][:26] + "+00:00").timestamp() for row in events])
    edges = np.arange(at.min(), at.max(), 15.0)
    tokens = np.array([float(row[1]) + float(row[2]) for row in events])
    sums, _ = np.histogram(at, edges, weights=tokens)
    return scaled(edges[:-1], sums)


def trace(load: LoadHistory) -> list[ReplayRow]:
    """Return a row for each target and the oracle."""
    given, _ = question(web(TODAY), load, Plant(), Settings(), pod_capacity=None, replicas=None)
    tried = [ReplayCandidate(str(target), web(target)) for target in TARGETS]
    return list(rows(given, tried, is_drawn=False))


def loads() -> dict[str, LoadHistory]:
    """Return every trace that has a load, by its name."""
    return {traces.name(file): load_of(file) for file in traces.files()}


def table(found: Mapping[str, LoadHistory], forecasts: Sequence[SeriesFigures]) -> str:
    """Return the table of docs/replay.md over all traces."""
    lines = ["| trace | days | pod-hours, unserved at 50 | no other beats | forecast: 3, 10 min |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, load in found.items():
        verdicts = {row.name: row.verdict for row in trace(load)}
        today = verdicts[str(TODAY)]
        front = ", ".join(
            f"{target}: {verdicts[target].pod_hours:.0f} h, {verdicts[target].unserved:.2%}"
            for target in pareto(list(verdicts.items()))
        )
        days = (load.end_s - float(load.time_s[0])) / 86400
        ratios = ", ".join(f"{each.ratio:.2f}" for each in forecasts if each.name == name)
        lines.append(f"| {name} | {days:.2g} | {today.pod_hours:.0f} h, {today.unserved:.2%} "
                     f"| {front} | {ratios or 'shorter than 12 days'} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def with_table(text: str, mark: str, rows: str) -> str:
    """Return a document with the table after ``mark`` replaced."""
    before, _, after = text.partition(mark)
    _, blank, rest = after.partition("\n\n")
    return before + mark + rows + (f"\n{rest}" if blank else "")


def written(figures: Figures) -> None:
    """Hold what forecasts are to save, and write both tables of docs/replay.md."""
    began, found = spent_s(), loads()
    forecasts = forecast_traces.all_figures(found, web(TODAY))
    forecast_traces.hold(figures, forecasts)
    document = ROOT / "docs" / "replay.md"
    text = document.read_text(encoding="utf-8")
    text = with_table(text, FORECASTS, forecast_traces.table(forecasts))
    text = with_table(text, MARK, table(found, forecasts))
    document.write_text(text, encoding="utf-8")
    figures.note(f"docs/replay.md: all traces, {spent_s() - began:.1f} s CPU of ours")


def dask(figures: Figures) -> None:
    """Hold what two workers of a Dask cluster cost, and that one of them may die."""
    found = many_replays.two_dask_workers()
    figures.at_most("CPU of two Dask workers / of one", found.cpu, many_replays.MOST_CPU)
    figures.at_least("the smaller share of it", found.smaller_share, many_replays.SMALLEST_SHARE)
    figures.at_least("the same is printed, whoever works and dies", float(found.is_same), 1.0)


def main() -> int:
    """Print the figures and write the tables; return the exit status."""
    figures = Figures("bench_replay")
    one(figures)
    gate_cost.hold(figures, web(TODAY))
    fleet(figures)
    dask(figures)
    written(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
