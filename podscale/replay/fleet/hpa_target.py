"""The utilization at which an HPA would serve a bursty load, as replay would choose it. Pure."""

import numpy as np
from msgspec.structs import replace

from hpa.decide import Settings
from hpa.decide.api.conversion import to_v2
from hpa.decide.api.reading import read
from hpa.decide.api.spec import HPA
from hpa.simulate.load import LoadHistory
from hpa.simulate.workload import Plant
from podscale.replay.candidate_runs import ReplayCandidate, question, run
from podscale.replay.fleet.blocks import Floats
from podscale.replay.fleet.reading import FleetPast, FleetSpan, ProgressListener
from podscale.replay.fleet.report import FleetLine, FleetReport
from podscale.replay.sweep import chosen

TARGETS = (40, 50, 60, 70, 80)
_MOST_UNSERVED = 0.001
_MOST_WORKLOADS = 10  # that are replayed: each takes seconds
_SYNC = {"podscale.io/sync-period": "1m"}  # the load is known every few minutes


def with_targets(report: FleetReport, past: FleetPast, told: ProgressListener) -> FleetReport:
    """Return the report, its lines that want an HPA with a target: those with most pods first."""
    wanting = [line for line in report.lines if line.wants_hpa]
    wanting.sort(key=lambda line: line.pods * line.resources["cpu"].largest, reverse=True)
    found: dict[int, int] = {}
    for number, line in enumerate(wanting[:_MOST_WORKLOADS]):
        told(number, len(wanting[:_MOST_WORKLOADS]), "HPA targets")
        found[id(line)] = _target(line, past, report.span)
    return replace(report, lines=[
        replace(line, hpa_target=found[id(line)]) if id(line) in found else line
        for line in report.lines
    ])  # fmt: skip


def _target(line: FleetLine, past: FleetPast, span: FleetSpan) -> int:
    steps, values = past.usage.samples(past.usage.containers[line.sized], "cpu")
    first = int(steps.min())
    cores: Floats = np.bincount(steps - first, values).astype(np.float64)
    known = np.bincount(steps - first) > 0
    time_s: Floats = span.start_s + span.step_s * (first + np.arange(len(cores), dtype=np.float64))
    cores = np.where(known, cores, np.nan)
    load = LoadHistory(time_s, {"cpu": cores}, np.zeros(len(cores), np.bool_))
    milli = max(1, round(1000 * line.resources["cpu"].recommended))
    plant = Plant(requests={line.sized.container: {"cpu": milli}})
    most = max(2, int(np.ceil(2000 * np.nanmax(cores) / milli / (min(TARGETS) / 100))))
    asked, _ = question(_hpa(line, 50, most), load, plant, Settings(), pod_capacity=None,
                        replicas=None)  # fmt: skip
    verdicts = [
        (str(target), run(asked, ReplayCandidate(str(target), _hpa(line, target, most)),
                          is_drawn=False).verdict)
        for target in TARGETS
    ]  # fmt: skip
    name = chosen(verdicts, _MOST_UNSERVED)
    # None keeps up: then that which leaves least unserved.
    return int(name or min(verdicts, key=lambda each: each[1].unserved)[0])


def _hpa(line: FleetLine, target: int, most: int) -> HPA:
    workload = line.sized.workload
    utilization = {"type": "Utilization", "averageUtilization": target}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": utilization}}
    reference = {"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name}
    return read(to_v2({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": workload.name, "namespace": workload.namespace, "annotations": _SYNC},
        "spec": {"scaleTargetRef": reference, "minReplicas": max(1, round(line.pods)),
                 "maxReplicas": most, "metrics": [metric]},
    }))  # fmt: skip
