"""Production's CPU traces as a Prometheus's past: a counter of CPU seconds, and memory made
from it.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).parent.parent.parent
MINUTE_S = 60
Floats = NDArray[np.float64]


class Series:
    """One service: its cores minute by minute, laid onto the minutes before ``end_s``."""

    def __init__(self, number: str, values: Floats, days: float, end_s: int) -> None:
        self.name = f"crane-{number}"
        count = round(days * 1440)
        values = values[:count]
        # Some are requests a second; what counts here is their shape, at a container's size.
        self.cores: Floats = values / values.mean() * 0.3
        self.times: Floats = end_s - MINUTE_S * np.arange(count - 1, -1, -1, dtype=np.float64)
        # Usage of a minute is what the counter gained by its end.
        self.counter: Floats = np.cumsum(self.cores) * MINUTE_S
        slow = np.convolve(self.cores, np.ones(30) / 30, mode="full")[:count]
        self.memory: Floats = np.round(2e8 + 4e8 * slow + 1e6 * (np.arange(count) % 240))

    @property
    def pod(self) -> str:
        return f"{self.name}-6d4f9c5b7d-x2x4v"


def openmetrics(series: list[Series]) -> str:
    """Return the past as cAdvisor would have written it, for ``promtool``."""
    lines = ["# TYPE container_cpu_usage_seconds counter"]
    for one in series:
        labels = f'{{namespace="default",pod="{one.pod}",container="main"}}'
        lines += [
            f"container_cpu_usage_seconds_total{labels} {value:.6f} {at:.0f}"
            for at, value in zip(one.times, one.counter, strict=True)
        ]
    lines.append("# TYPE container_memory_working_set_bytes gauge")
    for one in series:
        labels = f'{{namespace="default",pod="{one.pod}",container="main"}}'
        lines += [
            f"container_memory_working_set_bytes{labels} {value:.0f} {at:.0f}"
            for at, value in zip(one.times, one.memory, strict=True)
        ]
    return "\n".join([*lines, "# EOF\n"])
