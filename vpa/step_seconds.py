"""How long the steps of a loop take, as a histogram under upstream's names."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Histogram

_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


def step_seconds(
    prefix: str, text: str, registry: CollectorRegistry
) -> Callable[[str], AbstractContextManager[object]]:
    """Return what is called with a step's name, around the step."""
    name = prefix + "execution_latency_seconds"
    seconds = Histogram(name, text, ("step",), buckets=_STEPS, registry=registry)
    return lambda step: seconds.labels(step).time()
