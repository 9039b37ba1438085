"""Pass after pass over a history: what one HPA would have done with a load.

Each pass is ``hpa.decide.decide`` itself, with its own history, status and windows carried on.
"""

import math

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide import Observation, Past, Scale, Settings, decide
from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec
from hpa.decide.observation import MetricAnswer
from hpa.simulate.load import Floats, LoadAt, LoadHistory, key_of
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


def pass_times(load: LoadHistory, period_s: float) -> Floats:
    """Return when passes take place."""
    start_s = float(load.time_s[0])
    count = max(1, math.ceil((load.end_s - start_s) / period_s))
    return start_s + period_s * np.arange(count, dtype=np.float64)


def simulate(
    hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings, replicas: int
) -> SimulatedRun:
    """Return what ``hpa`` would have done, starting with ``replicas`` ready pods.

    ``load`` has a column for each of its metrics (``missing_columns`` is empty).
    """
    times = pass_times(load, hpa.options.sync_period_s or settings.sync_period_s)
    sources = [LoadAt(load, load.columns[key_of(each)]) for each in hpa.metrics]
    workload = SimulatedWorkload(plant, hpa.target.name, replicas, float(times[0]))
    past = Past()
    hpa = structs.replace(hpa, status=HpaStatus(replicas, replicas))
    sizes, ready = [], []
    for now in times.tolist():
        at = now - plant.metric_age_s
        answers = tuple(
            _answer(metric, source(at), workload, now)
            for metric, source in zip(hpa.metrics, sources, strict=True)
        )
        scale = Scale(len(workload), len(workload), _SELECTOR)
        seen = Observation(hpa, scale, workload.pods(now), answers)
        decision = decide(seen, past, settings, now)
        past = decision.past
        if decision.is_status_changed:
            hpa = structs.replace(hpa, status=decision.status)
        if decision.replicas is not None:
            workload.resize(decision.replicas, now)
        sizes.append(len(workload))
        ready.append(workload.ready(now))
    return SimulatedRun(times, np.array(sizes), np.array(ready))


def missing_columns(hpa: HPA, load: LoadHistory) -> list[str]:
    """Return the metrics of ``hpa`` that the history does not have."""
    return [key for each in hpa.metrics if (key := key_of(each)) not in load.columns]


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
