"""How long the steps of a loop take, as a histogram under upstream's names."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Histogram

_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class StepSeconds:
    """Call it with a step's name, around the step."""

    def __init__(self, prefix: str, text: str, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            prefix + "execution_latency_seconds", text, ("step",),
            buckets=_STEPS, registry=registry,
        )  # fmt: skip

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        finally:
            self._seconds.labels(name).observe(time.monotonic() - begun)
