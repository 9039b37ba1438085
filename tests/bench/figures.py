"""Goals and what was measured beside them.

Absolute times are printed, never judged: what gates is a ratio to a yardstick of the same
run, CPU time of ours against a goal in CPU, or a count.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
goals: list[str] = []  # of all benches of this process, as they were printed


@dataclass
class Figures:
    """Collects the goals of one bench and prints them as they are met or missed."""

    title: str
    held: list[bool] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Print a figure that no goal depends on."""
        print(f"   {text}", flush=True)

    def at_most(self, what: str, value: float, limit: float, detail: str = "") -> None:
        """Hold ``value <= limit``."""
        self._goal(what, value, f"<= {limit:g}", value <= limit, detail)

    def at_least(self, what: str, value: float, limit: float, detail: str = "") -> None:
        """Hold ``value >= limit``."""
        self._goal(what, value, f">= {limit:g}", value >= limit, detail)

    def _goal(self, what: str, value: float, wanted: str, is_held: bool, detail: str) -> None:
        self.held.append(is_held)
        sign = "HELD  " if is_held else "MISSED"
        line = f" {sign} {what}: {value:.4g} (goal {wanted}){' ' + detail if detail else ''}"
        goals.append(line)
        print(line)

    def finish(self) -> int:
        """Print ``N of M goals held`` and return the exit status."""
        print(f"{self.title}: {sum(self.held)} of {len(self.held)} goals held", flush=True)
        return 0 if self.held and all(self.held) else 1


def cpu_s(pid: int) -> float:
    """Return the CPU seconds, user and system, that process ``pid`` has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    """Return the resident memory of process ``pid`` in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)
