"""From what Prometheus remembers to the report: figures, recommendations, risks.

Figures come from all samples, the recommendation from the estimators, the risk from blocks of
six hours; workloads that share a class share what back-tests have taught.
"""

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from hpa.decide.api.reading import read, to_v2
from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.simulate.workload import LoadHistory, Plant
from podscale.replay.fleet import risk, sizing
from podscale.replay.fleet.reading import FleetPast, FleetSpan, ProgressListener
from podscale.replay.fleet.report import Chance, FleetLine, FleetReport, ResourceLine
from podscale.replay.fleet.usage import THROTTLED, FleetContainer, Floats, needs
from podscale.replay.inputs import PriceList
from podscale.replay.report import ReplayCandidate, question, run
from podscale.replay.sweep import chosen
from vpa.model.amounts import RESOURCES

_QUANTILES = (0.5, 0.95, 0.99, 1.0)
# Of ballast and headroom, as they are shipped.
OWN_NAMESPACES = frozenset({"podscale-ballast", "podscale-headroom"})
_ENDED = ("Job", "CronJob", "Pod")  # kinds whose pods may be there no more
# Utilizations that an HPA may be given.
TARGETS = (40, 50, 60, 70, 80)
_MOST_UNSERVED = 0.001
_MOST_WORKLOADS = 10  # that are replayed: each takes seconds
_SYNC = {"podscale.io/sync-period": "1m"}  # the load is known every few minutes


class _Figures(Struct):
    # Of one container and resource, before it is known what it should request.
    quantiles: Floats
    shape: sizing.UsageShape
    needs: Floats
    first_step: int
    last_step: int


def report_of(
    past: FleetPast,
    span: FleetSpan,
    choice: sizing.RequestChoice,
    prices: PriceList | None,
    told: ProgressListener,
) -> FleetReport:
    """Return the report; ``told`` takes done, of how many, and what."""
    figures: dict[tuple[int, str], _Figures] = {}
    percentiles: dict[tuple[int, str], float] = {}
    for number, column in enumerate(past.usage.containers.values()):
        for resource in RESOURCES:
            steps, values = past.usage.samples(column, resource)
            if len(values):
                figures[column, resource] = _figures(resource, steps, values, span)
                if choice.estimator == "percentile":
                    percentiles[column, resource] = float(
                        np.quantile(values.astype(np.float64), choice.percentile)
                    )
        if number % 100 == 0:
            told(number, len(past.usage.containers), "figures")
    told(1, 1, "figures")
    wanted = sizing.recommended(past, choice, percentiles)
    lines: list[FleetLine] = []
    gone = own = 0
    chances = {each: _risks(past, wanted, figures, each) for each in RESOURCES}
    steps_a_day = 86400 // span.step_s
    for sized, column in past.usage.containers.items():
        if sized.workload.namespace in OWN_NAMESPACES:
            own += 1
            continue
        known = [figures[key] for each in RESOURCES if (key := (column, each)) in figures]
        amounts = wanted.get(sized)
        if not known or amounts is None:
            continue
        last = max(each.last_step for each in known)
        if last < span.blocks * span.block_steps - steps_a_day and (
            sized.workload.kind not in _ENDED
        ):
            gone += 1
            continue
        first = min(each.first_step for each in known)
        # Of what comes and goes, names say nothing of how many there are at once.
        lived_s = (last + 1 - first) * span.step_s
        pods = past.running.get(sized) or past.present_s.get(sized, lived_s) / lived_s
        resources = {
            resource: _line(past, sized, resource, figures[column, resource], amounts[resource],
                            chances[resource].get(sized), pods)
            for resource in amounts if (column, resource) in figures
        }  # fmt: skip
        is_scaling = past.scaled.get(sized.workload)
        lines.append(FleetLine(
            sized, pods, is_scaling is not None, bool(is_scaling),
            (last + 1 - first) / steps_a_day, past.oom_kills.get(sized, 0),
            past.throttled.get(sized), resources,
        ))  # fmt: skip
    notes = list(past.notes)
    if gone:
        notes.append(f"{gone} containers have had no sample for a day, renamed or gone: left out")
    if own:
        notes.append(f"{own} containers of podscale's ballast and headroom: left out, the nodes "
                     "part sizes them")  # fmt: skip
    made = FleetReport(lines, span, notes, prices, knows_requests=bool(past.requests))
    return replace(made, lines=sorted(lines, key=made.worth, reverse=True))


def _figures(
    resource: str, steps: NDArray[np.intp], values: NDArray[np.float32], span: FleetSpan
) -> _Figures:
    share = THROTTLED if resource == "cpu" else 0.0
    ordered = np.sort(values)
    at = np.ceil(np.array(_QUANTILES) * (len(ordered) - 1)).astype(np.intp)
    return _Figures(
        ordered[at].astype(np.float64),
        sizing.shape_of(resource, steps, values, ordered, 3600 // span.step_s),
        needs(steps, values, span.block_steps, span.blocks, share),
        int(steps.min()),
        int(steps.max()),
    )


def _line(
    past: FleetPast,
    sized: FleetContainer,
    resource: str,
    figures: _Figures,
    wanted: sizing.SizedAmount,
    risks: tuple[Chance, float] | None,
    pods: float,
) -> ResourceLine:
    request = past.requests.get(sized, {}).get(resource)
    p50, p95, p99, largest = figures.quantiles.tolist()
    is_known = bool(past.requests)  # without kube-state-metrics no request is known
    return ResourceLine(
        request, past.limits.get(sized, {}).get(resource), p50, p95, p99, largest, figures.shape,
        wanted.amount, wanted.bounds, risks[0] if risks else None, risks[1] if risks else 0.0,
        ((request or 0.0) - wanted.amount) * pods if is_known else 0.0,
    )  # fmt: skip


def _risks(
    past: FleetPast,
    wanted: Mapping[FleetContainer, Mapping[str, sizing.SizedAmount]],
    figures: Mapping[tuple[int, str], _Figures],
    resource: str,
) -> dict[FleetContainer, tuple[Chance, float]]:
    # Chances of the recommendation and of the 99th percentile, by container.
    named = [(sized, figures[column, resource], wanted[sized][resource].amount)
             for sized, column in past.usage.containers.items()
             if (column, resource) in figures and resource in wanted.get(sized, {})]  # fmt: skip
    if not named:
        return {}
    histories = np.stack([each.needs for _, each, _ in named])
    groups = np.array(
        [sizing.CLASSES.index(each.shape.usage_class) for _, each, _ in named], np.intp
    )
    requests = np.array([[amount, each.quantiles[2]] for _, each, amount in named])
    blocks = histories.shape[1]
    known = blocks - np.argmax(~np.isnan(histories), axis=1)  # blocks since the first
    length = np.searchsorted(risk.LENGTHS, known, side="right") - 1  # -1: less than a day
    found: dict[FleetContainer, tuple[Chance, float]] = {}
    for place in np.unique(length[length >= 0]):
        whole, of_class = _lines(histories, groups, int(place))
        is_last = place == len(risk.LENGTHS) - 1
        for group in np.unique(groups[length == place]):
            rows = np.flatnonzero((length == place) & (groups == group))
            seen = histories[rows] if is_last else histories[rows, -risk.LENGTHS[place + 1] :]
            stated = risk.of_week(seen, requests[rows], of_class.get(int(group), whole))
            for at, row in enumerate(rows):
                bounds = (stated.chance, stated.low, stated.high)
                chance = Chance(*(float(each[at, 0]) for each in bounds))
                found[named[row][0]] = chance, float(stated.chance[at, 1])
    return found


def _lines(
    histories: Floats, groups: NDArray[np.intp], place: int
) -> tuple[risk.Calibration, Mapping[int, risk.Calibration]]:
    # Without back-tests those of a shorter history are the best there are.
    drawn = risk.calibrated(histories, groups, risk.LENGTHS[place])
    return drawn if drawn[0].backtests or not place else _lines(histories, groups, place - 1)


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
