"""Each candidate through the history, beside the oracle: the rows of a report.

A run is work for one core; several are spread over all of them, and come in their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from hpa.decide import Settings
from hpa.decide.api.spec import HPA
from hpa.simulate.loop import (
    NeededPods,
    RunVerdict,
    SimulatedRun,
    capacity_of,
    first_size,
    judge,
    needed,
    period_of,
    simulate,
)
from hpa.simulate.workload import LoadHistory, Plant, key_of
from podscale.replay import parallel
from podscale.replay.errors import ReplayError


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
    verdict: RunVerdict
    run: SimulatedRun | None = None


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
                f"{metric.name} is a utilization, and nobody knows what a pod requests: "
                f"say it, as with --request {container}{metric.name}=500m"
            )
    if pod_capacity is not None and len(today.metrics) > 1:
        raise ReplayError("--pod-capacity is of one metric, and the HPA has several")
    found = {}
    words = []
    for metric in today.metrics:
        capacity, why = capacity_of(metric, plant)
        if pod_capacity is not None:
            capacity, why = pod_capacity, "--pod-capacity"
        if capacity <= 0:
            raise ReplayError(f"{metric.name} has no target that a pod could be measured by")
        found[key_of(metric)] = capacity
        words.append(f"a pod serves {capacity:g} of {key_of(metric)} ({why})")
    size = first_size(today, load, plant) if replicas is None else replicas
    return ReplayQuestion(load, plant, settings, found, size), words


def need_of(asked: ReplayQuestion, hpa: HPA) -> NeededPods:
    """Return d(t) at the times at which ``hpa`` is decided on."""
    return needed(asked.load, asked.capacities, period_of(hpa, asked.settings))


def run(asked: ReplayQuestion, candidate: ReplayCandidate, *, is_drawn: bool) -> ReplayRow:
    hpa = candidate.hpa
    need = need_of(asked, hpa)
    made = simulate(hpa, asked.load, asked.plant, asked.settings, asked.replicas, need.time_s)
    verdict = judge(made, hpa, asked.load, asked.plant, need)
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
