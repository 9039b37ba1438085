"""What programs spend in each of several periods, and what else the machine did meanwhile.

What else it did is printed, never used: on a shared machine the same work takes up to twice the
CPU time while the other cores are busy.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tests.bench.figures import cpu_s

Pids = Mapping[str, int]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Period:
    """CPU seconds of one period."""

    used: Mapping[str, float]  # by program
    others: float  # of all other programs on this machine


def measure(pids: Pids, number: int, period_s: float) -> list[Period]:
    """Return the next ``number`` periods, one after another."""
    began, found = time.monotonic(), []
    before, busy = {name: cpu_s(pid) for name, pid in pids.items()}, _busy_s()
    for ended in range(1, number + 1):
        time.sleep(max(0.0, began + ended * period_s - time.monotonic()))
        after, now = {name: cpu_s(pid) for name, pid in pids.items()}, _busy_s()
        used = {name: after[name] - before[name] for name in pids}
        found.append(Period(used, now - busy - sum(used.values())))
        before, busy = after, now
    return found


def mean(periods: Sequence[Period]) -> dict[str, float]:
    """Return the CPU seconds of each program in the mean of ``periods``."""
    return {name: fmean(each.used[name] for each in periods) for name in periods[0].used}


def above(idle: Mapping[str, float], used: Mapping[str, float]) -> dict[str, float]:
    """Return ``used`` without what each program costs idle."""
    return {name: seconds - idle.get(name, 0.0) for name, seconds in used.items()}


def line(used: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in used.items())


def _busy_s() -> float:
    """Return the CPU seconds that this machine has been busy, those of its neighbours included."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, words[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS
