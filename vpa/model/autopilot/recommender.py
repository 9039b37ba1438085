"""The recommender ``autopilot``: targets and bounds per VPA and container.

Feeds both kinds of Autopilot's recommenders with the same samples as the default one, and
hands over usage in the form that ``recommendation.recommend`` takes, margin included.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from vpa.model.autopilot.ensemble import Ensemble
from vpa.model.autopilot.moving import MovingWindows, Statistics
from vpa.model.autopilot.signal import Ticker
from vpa.model.estimation.recommendation import RecommenderSettings
from vpa.model.histograms import buckets
from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats
from vpa.model.samples.aggregates import ResourceColumns
from vpa.model.samples.membership import VpaKey

Method = Literal["windows", "learned"]
CpuGoal = Literal["batch", "serving-p90", "serving-p95"]
MemoryGoal = Literal["low-oom", "intermediate", "minimal"]

_FRACTIONS = (0.5, 0.6, 0.9, 0.95, 0.98)
_RECENT = 12  # ticks of an hour: the highest recommendation of these counts
_YOUNG = 144  # ticks of half a day, the half-life of CPU


class AutopilotSettings(Struct, frozen=True):
    """Which of Autopilot's recommenders is used, and for what kind of job."""

    method: Method = "learned"
    cpu: CpuGoal = "serving-p95"
    memory: MemoryGoal = "low-oom"
    margin: float = 0.15  # of small limits; large ones get down to ``least_margin``
    least_margin: float = 0.10
    cpu_half_life_s: float = 12 * 3600.0
    memory_half_life_s: float = 48 * 3600.0


class _Resource(ColumnArrays):
    # Signal, windows and ensemble of one resource.

    recent: Floats  # (ticks, slots)
    seen: NDArray[np.bool_]
    age: NDArray[np.int64]  # ticks since the first sample

    def __init__(
        self, layout: BucketLayout, half_life_s: float, slots: int, *, peaks_only: bool
    ) -> None:
        self.ticker = Ticker(layout, slots, peaks_only=peaks_only)
        self.windows = MovingWindows(layout, half_life_s, slots)
        self.ensemble = Ensemble(layout, slots)
        super().__init__(
            slots, recent=np.zeros((_RECENT, 1)), seen=np.bool_(False), age=np.int64(0)
        )
        self.ticks = 0

    def grow(self, capacity: int) -> None:
        for part in (self.ticker, self.windows, self.ensemble):
            part.grow(capacity)
        super().grow(capacity)
        self.said = self.windows.statistics(_FRACTIONS)  # at the last tick

    def forget(self, slot: int) -> None:
        self.ticker.forget(slot)
        for part in (self.windows, self.ensemble, self):
            part.clear(slice(slot, slot + 1))


class Autopilot:
    """State of all slots; a slot is one container name of one VPA."""

    def __init__(self, settings: AutopilotSettings = AutopilotSettings()) -> None:  # noqa: B008
        self.settings = settings
        self._slots: dict[tuple[VpaKey, str], int] = {}
        self._free: list[int] = []
        self._capacity = 0
        self._of: Mapping[str, _Resource] = {
            "cpu": _Resource(buckets.CPU, settings.cpu_half_life_s, 0, peaks_only=False),
            "memory": _Resource(buckets.MEMORY, settings.memory_half_life_s, 0, peaks_only=True),
        }

    def slot(self, key: VpaKey, container: str) -> int:
        """Return the slot of a container, a new one if it has none."""
        found = self._slots.get((key, container))
        if found is None:
            found = self._free.pop() if self._free else len(self._slots)
            self._slots[key, container] = found
            if found >= self._capacity:
                self._capacity = max(64, 2 * self._capacity)
                for resource in self._of.values():
                    resource.grow(self._capacity)
        return found

    def remove(self, key: VpaKey) -> None:
        for named in [entry for entry in self._slots if entry[0] == key]:
            slot = self._slots.pop(named)
            for resource in self._of.values():
                resource.forget(slot)
            self._free.append(slot)

    def take(
        self, resource: str, tasks: Columns, slots: Columns, values: Floats, now: float
    ) -> None:
        """Add one sample per task; ticks that ended are decided on."""
        usable = np.isfinite(values) & (values >= 0.0) & (slots >= 0)
        state = self._of[resource]
        for tick in state.ticker.add(tasks[usable], slots[usable], values[usable], now):
            state.windows.observe(tick)
            state.ensemble.observe(tick)
            state.seen |= tick.seen
            state.age += state.seen
            state.said = state.windows.statistics(_FRACTIONS)
            state.recent[state.ticks % _RECENT] = self._limits(resource, state)
            state.ticks += 1

    def read(self, resource: str, named: Sequence[tuple[VpaKey, str]]) -> ResourceColumns:
        """Return lower bound, target and upper bound as usage, margins included."""
        state = self._of[resource]
        values = np.zeros((3, len(named)))
        known = [self._slots.get(each, -1) for each in named]
        slots = np.array(known, dtype=np.intp)
        found = np.flatnonzero(slots >= 0)
        seen = np.zeros(len(named), dtype=np.bool_)
        seen[found] = state.seen[slots[found]]
        chosen = slots[seen]
        target = state.recent[:, chosen].max(axis=0)
        highest = self._with_margin(state.windows.layout, state.said.maximum[chosen])
        values[0, seen] = np.minimum(state.said.percentiles[0, chosen], target)
        values[1, seen] = target
        values[2, seen] = np.maximum(highest, target)
        return ResourceColumns(values, np.full(len(named), np.inf), seen)

    def is_young(self, key: VpaKey) -> bool:
        """Return whether less is known of any container than decides by itself."""
        slots = [slot for (vpa, _), slot in self._slots.items() if vpa == key]
        return not slots or any(
            int(state.age[slot]) < _YOUNG for state in self._of.values() for slot in slots
        )

    def _limits(self, resource: str, state: _Resource) -> Floats:
        if self.settings.method == "learned":
            return state.ensemble.limits()
        said = state.said
        wanted = self._cpu(said) if resource == "cpu" else self._memory(said)
        return self._with_margin(state.windows.layout, wanted)

    def _cpu(self, said: Statistics) -> Floats:
        if self.settings.cpu == "batch":
            return said.average
        chosen: Floats = said.percentiles[3 if self.settings.cpu == "serving-p95" else 2]
        return chosen

    def _memory(self, said: Statistics) -> Floats:
        if self.settings.memory == "minimal":
            return said.maximum
        chosen: Floats = said.percentiles[4]
        if self.settings.memory == "intermediate":
            chosen = np.maximum(said.percentiles[1], 0.5 * said.maximum)
        return chosen

    def _with_margin(self, layout: BucketLayout, limits: Floats) -> Floats:
        # Falls from margin to least_margin between a hundredth of the range and its end.
        top = float(layout.starts[-1])
        large = np.clip(np.log(np.maximum(limits, 1e-12) / (top / 1e4)) / np.log(1e4), 0.0, 1.0)
        margin = self.settings.margin - (self.settings.margin - self.settings.least_margin) * large
        raised: Floats = limits * (1.0 + margin)
        return raised


def without_margin(settings: RecommenderSettings) -> RecommenderSettings:
    """Return the settings for usage that has its margin already."""
    return replace(
        settings,
        cpu=replace(settings.cpu, margin=0.0),
        memory=replace(settings.memory, margin=0.0),
    )
