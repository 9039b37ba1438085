"""Short ways to write a load and a spec down."""

from collections.abc import Callable, Sequence

import numpy as np

from hpa.decide.api.spec import HPA
from hpa.decide.observation import ExpectedDemand
from hpa.decide.settings import Settings
from hpa.simulate.loop import SimulatedRun, pass_times, simulate
from hpa.simulate.workload import LoadHistory, Plant
from tests.unit.hpa.decide.handwritten import hpa

START_S = 1_700_000_000.0


def load(values: Sequence[float], step_s: float = 15.0, name: str = "http_requests") -> LoadHistory:
    """Return a load that begins at ``START_S``."""
    times = START_S + step_s * np.arange(len(values), dtype=np.float64)
    column = np.array(values, np.float64)
    return LoadHistory(times, {name: column}, np.zeros(len(values), np.bool_))


def pods_metric(target: str = "50", name: str = "http_requests") -> dict[str, object]:
    """Return one entry of spec.metrics."""
    average = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}


def web(target: str = "50", **spec: object) -> HPA:
    """Return an HPA over one metric of its pods."""
    return hpa({"minReplicas": 1, "maxReplicas": 50, "metrics": [pods_metric(target)], **spec})


def no_forecast(_: float) -> None:
    """Expect nothing: every pass is decided by itself."""


def simulated(
    hpa: HPA, load: LoadHistory, plant: Plant, settings: Settings, replicas: int,
    expected: Callable[[float], ExpectedDemand | None] | None = None,
) -> SimulatedRun:  # fmt: skip
    """Return the run of passes a sync period apart."""
    times = pass_times(load, settings.period_of(hpa))
    return simulate(hpa, load, plant, settings, replicas, times, expected=expected)
