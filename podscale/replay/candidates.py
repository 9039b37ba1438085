"""Each candidate through the history, beside the oracle: the rows of a report.

A run is work for one core; several share the cores as child processes, and come in their order.
"""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context

from msgspec import Struct

from hpa.decide import Settings
from hpa.decide.api.spec import HPA
from hpa.simulate.load import LoadHistory, key_of
from hpa.simulate.loop import SimulatedRun, simulate
from hpa.simulate.verdict import (
    NeededPods,
    RunVerdict,
    capacity_of,
    first_size,
    judge,
    needed,
    period_of,
)
from hpa.simulate.workload import Plant
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
    """Return the row of one candidate."""
    hpa = candidate.hpa
    made = simulate(hpa, asked.load, asked.plant, asked.settings, asked.replicas)
    verdict = judge(made, hpa, asked.load, asked.plant, need_of(asked, hpa))
    return ReplayRow(candidate.name, verdict, made if is_drawn else None)


def rows(
    asked: ReplayQuestion,
    candidates: Sequence[ReplayCandidate],
    *,
    is_drawn: bool,
    cores: int | None = None,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Iterator[ReplayRow]:
    """Yield the rows in the order of ``candidates``, each as soon as it is done."""
    count = min(cores or len(os.sched_getaffinity(0)), len(candidates))
    if count <= 1:
        for number, each in enumerate(candidates, 1):
            yield run(asked, each, is_drawn=is_drawn)
            progress(number, len(candidates), each.name)
        return
    # Forked: the history is megabytes, and nothing else runs in this process.
    pool = ProcessPoolExecutor(count, get_context("fork"), _begin, (asked, is_drawn))
    try:
        # An interruption between a fork and its note would leave a child that nobody ends.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            made = [pool.submit(_run, each) for each in candidates]
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for number, (each, future) in enumerate(zip(candidates, made, strict=True), 1):
            yield future.result()
            progress(number, len(candidates), each.name)
    except BrokenProcessPool:
        raise ReplayError(
            "a child process that replays was ended: is there enough memory?"
        ) from None
    finally:
        for child in active_children():  # of an interrupted replay some are still at it
            child.terminate()
        pool.shutdown()


_shared: list[tuple[ReplayQuestion, bool]] = []  # of a child process


def _begin(asked: ReplayQuestion, is_drawn: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us
    _shared[:] = [(asked, is_drawn)]


def _run(candidate: ReplayCandidate) -> ReplayRow:
    asked, is_drawn = _shared[0]
    return run(asked, candidate, is_drawn=is_drawn)
