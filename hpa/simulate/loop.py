"""Pass after pass over a history: what one HPA would have done with a load.

Each pass is ``hpa.decide.decide`` itself, with its own history, status and windows carried on, or
comes to the same: most of them are settled many at once (``hpa.simulate.steady``).
"""

import math
from collections.abc import Callable

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide import Observation, Past, Scale, Settings, decide
from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec
from hpa.decide.observation import ExpectedDemand, MetricAnswer
from hpa.simulate.load import Floats, LoadHistory, held, key_of
from hpa.simulate.steady import SteadyPasses, covers
from hpa.simulate.workload import Plant, SimulatedWorkload
from podscale.core.metrics import (
    ExternalSample,
    ExternalSamples,
    NoData,
    ObjectSample,
    PodSamples,
    Sample,
)

_SELECTOR = "app=replayed"
_NO_SAMPLE = NoData("NoSample", "the history has no sample of then")


class SimulatedRun(Struct, frozen=True, eq=False):
    """What came of it: one row for each pass, as things stood once it was decided."""

    time_s: Floats
    replicas: NDArray[np.int64]  # pods that there are
    ready: NDArray[np.int64]  # pods that serve
    together: int = 0  # passes that were not decided one by one


def pass_times(load: LoadHistory, period_s: float) -> Floats:
    """Return when passes take place."""
    start_s = float(load.time_s[0])
    count = max(1, math.ceil((load.end_s - start_s) / period_s))
    return start_s + period_s * np.arange(count, dtype=np.float64)


def simulate(
    hpa: HPA,
    load: LoadHistory,
    plant: Plant,
    settings: Settings,
    replicas: int,
    times: Floats,
    *,
    expected: Callable[[float], ExpectedDemand | None] | None = None,
) -> SimulatedRun:
    """Return what ``hpa`` would have done, starting with ``replicas`` ready pods.

    ``load`` has a column for each of its metrics; ``times`` are those of the passes. ``expected``
    says what is forecast at a time. Without it passes are not decided one by one where many can
    be settled together: it comes to the same.
    """
    loads = [held(load, load.columns[key_of(each)], times - plant.metric_age_s)
             for each in hpa.metrics]  # fmt: skip
    workload = SimulatedWorkload(plant, hpa.target.name, replicas, float(times[0]))
    steady = None
    if expected is None and covers(hpa, load, plant, settings):
        steady = SteadyPasses(hpa, loads, plant, settings, times)
    past = Past()
    hpa = structs.replace(hpa, status=HpaStatus(replicas, replicas))
    sizes, ready = np.empty(len(times), np.int64), np.empty(len(times), np.int64)
    moments = times.tolist()
    row = together = 0
    while row < len(moments):
        now, size = moments[row], len(workload)
        turned = None
        if steady is not None and row:
            count, serving = steady.kept(row, workload)
            if count:
                sizes[row : row + count], ready[row : row + count] = size, serving
                row += count
                together += count
                continue
            past = steady.past(row, past)
            turned = steady.turned(row, size, past)
        if turned is not None:
            replicas, past = turned
            together += 1
        else:
            answers = tuple(
                _answer(metric, float(values[row]), workload, now)
                for metric, values in zip(hpa.metrics, loads, strict=True)
            )
            seen = Observation(
                hpa, Scale(size, size, _SELECTOR), workload.pods(now), answers,
                expected=None if expected is None else expected(now),
            )  # fmt: skip
            decision = decide(seen, past, settings, now)
            past = decision.past
            if steady is not None:
                steady.decided(row, size, decision)
            if decision.is_status_changed:
                hpa = structs.replace(hpa, status=decision.status)
            replicas = size if decision.replicas is None else decision.replicas
        if replicas != size:
            workload.resize(replicas, now)
        sizes[row], ready[row] = len(workload), workload.ready(now)
        row += 1
    return SimulatedRun(times, sizes, ready, together)


def _answer(
    metric: MetricSpec, load: float, workload: SimulatedWorkload, now: float
) -> MetricAnswer:
    if math.isnan(load):
        return _NO_SAMPLE
    if metric.type in ("Object", "External"):
        # A whole that is compared with one target shrinks as pods are added: decide's own reading.
        shares = max(workload.served_by(now), 1) if metric.is_by_value else 1
        sample = Sample(round(load * 1000.0 / shares), now)
        if metric.type == "Object":
            return ObjectSample(sample, now)
        return ExternalSamples((ExternalSample({}, sample),), now)
    samples = workload.samples(load, now, in_columns=metric.type == "Pods")
    return PodSamples(samples, now) if samples else _NO_SAMPLE
