"""Passes of a replay beside kube-controller-manager's own code, and the traces of docs/replay.md.

Both decide on ten pods under one metric of theirs, whose values are within the tolerance. The
original runs in a Go process of its own, fed from memory; ours is ``simulate``, plant and all.
"""

import gc
import time
from pathlib import Path
from statistics import median

import numpy as np

from hpa.decide import Settings
from hpa.decide.api.conversion import to_v2
from hpa.decide.api.reading import read
from hpa.decide.api.spec import HPA
from hpa.simulate.load import LoadHistory
from hpa.simulate.loop import simulate
from hpa.simulate.workload import Plant
from podscale.replay.candidates import ReplayCandidate, ReplayRow, question, rows
from podscale.replay.sweep import pareto
from tests.bench.bench_decide import HPAS, LOADS, PERIOD_S, PODS, RELEASE, ROUNDS, WARM, Fleet
from tests.bench.figures import Figures
from tests.cluster import executed
from tests.integration.crane import ROOT, traces

GOAL = 5.0  # times the passes of the original in a CPU second
WINDOWS = 5
PEAK_PODS, TARGETS = 20, (30, 40, 50, 60, 70)
TODAY = 50  # of TARGETS
MARK = "<!-- traces: written by make bench-replay -->\n"


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


def histories(fleet: Fleet) -> list[LoadHistory]:
    """Return the loads that the passes of a fleet measure, by HPA."""
    found = []
    for passes in zip(*fleet.rounds, strict=True):
        loads = [sum(each["value"] for each in one["custom_pod_metrics"]) / 1e3 for one in passes]
        times = PERIOD_S * np.arange(len(loads), dtype=np.float64)
        nothing = np.zeros(len(loads), np.bool_)
        found.append(LoadHistory(times, {"requests": np.array(loads)}, nothing))
    return found


def ours(loads: list[LoadHistory], hpa: HPA) -> float:
    """Return CPU seconds of a pass."""
    plant, settings = Plant(metric_age_s=0.0), Settings()
    gc.collect()
    began = time.process_time()
    for each in loads:
        simulate(hpa, each, plant, settings, PODS)
    return (time.process_time() - began) / (len(loads) * len(loads[0].time_s))


def trace(file: Path) -> list[ReplayRow]:
    """Return today's row, the cheapest of the sweep that leaves no more unserved, the oracle."""
    times, values = np.loadtxt(file, delimiter=",", skiprows=1, unpack=True)
    load = LoadHistory(times, {"requests": values / values.max() * PEAK_PODS * TODAY},
                       np.zeros(len(times), np.bool_))  # fmt: skip
    asked, _ = question(web(TODAY), load, Plant(), Settings(), pod_capacity=None, replicas=None)
    tried = [ReplayCandidate(str(target), web(target)) for target in TARGETS]
    return list(rows(asked, tried, is_drawn=False))


def table(folder: Path) -> str:
    """Return the table of docs/replay.md over all traces."""
    lines = ["| trace | days | pod-hours, unserved at 50 | the specs that no other beats |",
             "|---|---|---|---|"]  # fmt: skip
    for file in sorted(folder.glob("*.csv"), key=lambda path: int(path.stem)):
        found = {row.name: row.verdict for row in trace(file)}
        today = found[str(TODAY)]
        front = ", ".join(
            f"{name}: {found[name].pod_hours:.0f} h, {found[name].unserved:.2%}"
            for name in pareto(list(found.items()))
        )
        days = len(np.loadtxt(file, delimiter=",", skiprows=1, usecols=0)) / 1440
        lines.append(f"| crane/{file.stem} | {days:.0f} | {today.pod_hours:.0f} h, "
                     f"{today.unserved:.2%} | {front} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the figures and write the table; return the exit status."""
    figures = Figures("bench_replay")
    fleet = Fleet(LOADS[:1], None)
    built, hpa, loads = executed.program(RELEASE), web(100.0), histories(fleet)
    ratios = []
    for _ in range(WINDOWS):
        spent, _ = executed.timed(built, fleet.asked())
        theirs = sum(spent[WARM:]) / (ROUNDS * HPAS)
        mine = ours(loads, hpa)
        figures.note(f"a pass: {theirs * 1e6:.1f} us theirs, {mine * 1e6:.1f} us ours")
        ratios.append(theirs / mine)
    figures.at_least("passes in a CPU second, in times of the original's", median(ratios), GOAL)
    document = ROOT / "docs" / "replay.md"
    text = document.read_text(encoding="utf-8")
    began = time.process_time()
    document.write_text(text.partition(MARK)[0] + MARK + table(traces()), encoding="utf-8")
    figures.note(f"docs/replay.md: ten traces, {time.process_time() - began:.1f} s CPU of ours")
    return figures.finish()
