"""The recommender ``autopilot``: targets and bounds per VPA and container.

Usage comes in ticks of five minutes. CPU: how often each bucket was seen in the tick, over all
tasks. Memory: the highest value of each task in the tick, counted once. Follows section 3 of
"Autopilot: workload autoscaling at Google" (EuroSys 2020). Hands over usage in the form that
``recommendation.recommend`` takes, margin included.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vpa.model.cluster import ClusterModel
from vpa.model.histograms import buckets
from vpa.model.histograms.buckets import BucketLayout
from vpa.model.histograms.matrix import ColumnArrays, Columns, Floats, HistogramMatrix
from vpa.model.samples.aggregates import ResourceColumns
from vpa.model.samples.membership import VpaKey

TICK_S = 300.0
_HOURS = 24  # of maxima that count as recent
_RECENT = 12  # ticks of an hour: the highest recommendation of these counts
_YOUNG = 144  # ticks of half a day, the half-life of CPU
_CPU_HALF_LIFE_S, _MEMORY_HALF_LIFE_S = 12 * 3600.0, 48 * 3600.0
_MARGIN, _LEAST_MARGIN = 0.15, 0.10  # on the highest usage: of small limits, and of large ones


class Tick(Struct, frozen=True):
    """One tick of one resource: samples per bucket and slot, and the highest value."""

    end_s: float
    counts: Floats  # (buckets, slots)
    peaks: Floats  # (slots,); 0 where nothing was seen
    seen: NDArray[np.bool_]  # (slots,)


class Ticker(ColumnArrays):
    """Collects samples of one resource until their tick is over."""

    _counts: Floats  # (buckets, slots)
    _peaks: Floats

    def __init__(self, layout: BucketLayout, slots: int, *, peaks_only: bool) -> None:
        super().__init__(slots, _counts=np.zeros((layout.count, 1)), _peaks=0.0)
        self.layout = layout
        self.peaks_only = peaks_only
        self._end = 0.0
        self._task_peaks: dict[int, tuple[int, float]] = {}  # task: slot and highest value

    def add(self, tasks: Columns, slots: Columns, values: Floats, now: float) -> list[Tick]:
        """Add one sample per task; return the ticks that ended before ``now``.

        ``tasks`` are numbers of containers; a task's samples of one tick count by their
        peak where only peaks count.
        """
        done = self._close(now)
        np.maximum.at(self._peaks, slots, values)
        if self.peaks_only:
            for task, slot, value in zip(
                tasks.tolist(), slots.tolist(), values.tolist(), strict=True
            ):
                known = self._task_peaks.get(task)
                if known is None or known[0] != slot or known[1] < value:
                    self._task_peaks[task] = (slot, value)
        else:
            np.add.at(self._counts, (self.layout.find(values), slots), 1.0)
        return done

    def forget(self, slot: int) -> None:
        """Drop what a slot has collected: another VPA takes its number."""
        self.clear(slice(slot, slot + 1))
        self._task_peaks = {t: kept for t, kept in self._task_peaks.items() if kept[0] != slot}

    def _close(self, now: float) -> list[Tick]:
        end = (now // TICK_S + 1) * TICK_S
        if self._end == 0.0:
            self._end = end
        if end <= self._end:
            return []
        if self._task_peaks:
            slots, values = zip(*self._task_peaks.values(), strict=True)
            found = self.layout.find(np.array(values))
            np.add.at(self._counts, (found, np.array(slots, dtype=np.intp)), 1.0)
        seen = self._counts.sum(axis=0) > 0.0
        tick = Tick(self._end, self._counts, self._peaks, seen)
        self._end = end
        self._counts = np.zeros_like(tick.counts)
        self._peaks = np.zeros_like(tick.peaks)
        self._task_peaks = {}
        return [tick]


class MovingWindows(ColumnArrays):
    """The windows of one resource: the recent maximum, and the median of samples that decay with
    ``half_life_s`` and weigh as much as they are, so that time at high load counts for more.
    """

    _hourly: Floats  # (hours, slots)

    def __init__(self, layout: BucketLayout, half_life_s: float, slots: int) -> None:
        self.layout = layout
        self._adjusted = HistogramMatrix(layout, half_life_s, slots)
        super().__init__(slots, _hourly=np.zeros((_HOURS, 1)))
        self._hour = 0

    def observe(self, tick: Tick) -> None:
        hour = int(tick.end_s // 3600.0)
        for passed in range(min(hour - self._hour, _HOURS)):
            self._hourly[(hour - passed) % _HOURS] = 0.0
        self._hour = hour
        recent = self._hourly[hour % _HOURS]
        np.maximum(recent, tick.peaks, out=recent)
        found, slots = np.nonzero(tick.counts)
        if found.size:
            # What a sample of a bucket is worth: its end, as percentiles are reported.
            ends = self.layout.ends
            inside = (self.layout.starts[found] + ends[found]) / 2.0
            weights = tick.counts[found, slots] * ends[found] / ends[1]
            self._adjusted.add(slots, inside, weights, np.full(slots.size, tick.end_s))

    def median(self, slots: Columns) -> Floats:
        """Return what half of the load was above, per slot."""
        half: Floats = self._adjusted.percentiles((0.5,), slots)[0]
        return half

    def maximum(self, slots: Columns) -> Floats:
        """Return the highest value of a day, per slot."""
        highest: Floats = self._hourly[:, slots].max(axis=0)
        return highest

    def grow(self, capacity: int) -> None:
        self._adjusted.allocate(capacity - self.capacity)
        super().grow(capacity)

    def clear(self, columns: Columns | slice) -> None:
        self._adjusted.clear(columns)
        super().clear(columns)


class Model(Struct, frozen=True):
    decay: float  # weight of the newest tick, 0..1
    margin_buckets: int  # added to the limit: one bucket is 5 %


class Costs(Struct, frozen=True):
    """Hyper-parameters: what each kind of mistake costs. Tuned offline in the paper."""

    decay: float = 0.02  # of a model's own cost
    overrun: float = 10.0
    underrun: float = 0.5
    limit_change: float = 0.02
    model_change: float = 0.02


# Ticks of five minutes: from half an hour to two days of memory.
DEFAULT_MODELS = tuple(
    Model(decay, margin) for decay in (0.11, 0.0285, 0.0048, 0.0012) for margin in (1, 2, 4)
)


class Ensemble(ColumnArrays):
    """Autopilot's learning recommender over all slots of one resource.

    At every tick a model picks the limit that would have cost least: overruns, underruns, and
    the change itself cost something. The ensemble follows the model that has cost least so
    far, and changes it reluctantly. Why a model leads can be read from two numbers.
    """

    # Smoothed usage per decay; overrun and underrun of any limit are sums over it.
    _usage: Floats  # (decays, buckets, slots)
    _raw: Columns  # (decays, slots)
    _limit: Columns  # (models, slots)
    _cost: Floats
    _model: Columns
    _final: Columns

    def __init__(
        self,
        layout: BucketLayout,
        slots: int,
        models: tuple[Model, ...] = DEFAULT_MODELS,
        costs: Costs = Costs(),  # noqa: B008 - frozen
    ) -> None:
        self.layout, self.models, self.costs = layout, models, costs
        self._decays = sorted({model.decay for model in models}, reverse=True)
        super().__init__(
            slots,
            _usage=np.zeros((len(self._decays), layout.count, 1)),
            _raw=np.full((len(self._decays), 1), -1, dtype=np.intp),
            _limit=np.full((len(models), 1), -1, dtype=np.intp),
            _cost=np.zeros((len(models), 1)),
            _model=np.intp(0),
            _final=np.intp(-1),
        )

    def observe(self, tick: Tick) -> None:
        """Take in one tick and decide anew for the slots that it has seen."""
        seen = np.flatnonzero(tick.seen)
        if not seen.size:
            return
        counts = tick.counts[:, seen]
        # A share of the tick's samples: what costs mean must not depend on replicas.
        share = counts / counts.sum(axis=0)
        along = np.arange(seen.size)
        over_of, under_of, raw_of = {}, {}, {}
        for number, decay in enumerate(self._decays):
            fresh = self._raw[number, seen] < 0
            rate = np.where(fresh, 1.0, decay)
            usage = self._usage[number][:, seen] * (1.0 - rate) + share * rate
            self._usage[number][:, seen] = usage
            upto = np.cumsum(usage, axis=0)
            over = upto[-1] - upto  # weight above each limit: its bucket still fits
            under = upto - usage
            price = self.costs.overrun * over + self.costs.underrun * under
            before = self._raw[number, seen]
            price += self.costs.limit_change
            price[np.maximum(before, 0), along] -= np.where(fresh, 0.0, self.costs.limit_change)
            best = price.argmin(axis=0)
            self._raw[number, seen] = best
            over_of[decay], under_of[decay], raw_of[decay] = over, under, best
        for number, model in enumerate(self.models):
            limit = np.minimum(raw_of[model.decay] + model.margin_buckets, self.layout.count - 1)
            before = self._limit[number, seen]
            changed = (limit != before) & (before >= 0)
            paid = (
                self.costs.overrun * over_of[model.decay][limit, along]
                + self.costs.underrun * under_of[model.decay][limit, along]
                + self.costs.limit_change * changed
            )
            known = self._cost[number, seen]
            rate = np.where(before < 0, 1.0, self.costs.decay)
            self._cost[number, seen] = rate * paid + (1.0 - rate) * known
            self._limit[number, seen] = limit
        self._choose(seen)

    def limits(self) -> Floats:
        """Return the limit per slot, cores or bytes; 0 where nothing was seen."""
        found: Floats = np.where(self._final >= 0, self.layout.ends[self._final], 0.0)
        return found

    def _choose(self, seen: Columns) -> None:
        price = self._cost[:, seen].copy()
        known = self._final[seen] >= 0
        price += self.costs.model_change * known
        along = np.arange(seen.size)
        price[self._model[seen], along] -= self.costs.model_change * known
        price += self.costs.limit_change * (known & (self._limit[:, seen] != self._final[seen]))
        best = price.argmin(axis=0)
        self._model[seen] = best
        self._final[seen] = self._limit[best, seen]


class _Resource(ColumnArrays):
    # Signal, windows and ensemble of one resource.

    recent: Floats  # (ticks, slots)
    seen: NDArray[np.bool_]
    age: NDArray[np.int64]  # ticks since the first sample

    def __init__(self, layout: BucketLayout, half_life_s: float, *, peaks_only: bool) -> None:
        self.ticker = Ticker(layout, 0, peaks_only=peaks_only)
        self.windows = MovingWindows(layout, half_life_s, 0)
        self.ensemble = Ensemble(layout, 0)
        super().__init__(0, recent=np.zeros((_RECENT, 1)), seen=np.bool_(False), age=np.int64(0))
        self.ticks = 0

    def grow(self, capacity: int) -> None:
        for part in (self.ticker, self.windows, self.ensemble):
            part.grow(capacity)
        super().grow(capacity)

    def forget(self, slot: int) -> None:
        self.ticker.forget(slot)
        for part in (self.windows, self.ensemble, self):
            part.clear(slice(slot, slot + 1))

    def observe(self, tick: Tick) -> None:
        self.windows.observe(tick)
        self.ensemble.observe(tick)
        self.seen |= tick.seen
        self.age += self.seen
        self.recent[self.ticks % _RECENT] = self.ensemble.limits()
        self.ticks += 1


class Autopilot:
    """State of all slots; a slot is one container name of one VPA."""

    def __init__(self) -> None:
        self._slots: dict[tuple[VpaKey, str], int] = {}
        self._free: list[int] = []
        self._capacity = 0
        self._of: Mapping[str, _Resource] = {
            "cpu": _Resource(buckets.CPU, _CPU_HALF_LIFE_S, peaks_only=False),
            "memory": _Resource(buckets.MEMORY, _MEMORY_HALF_LIFE_S, peaks_only=True),
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
            state.observe(tick)

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
        highest = _with_margin(state.windows.layout, state.windows.maximum(chosen))
        values[0, seen] = np.minimum(state.windows.median(chosen), target)
        values[1, seen] = target
        values[2, seen] = np.maximum(highest, target)
        return ResourceColumns(values, np.full(len(named), np.inf), seen)

    def is_young(self, key: VpaKey) -> bool:
        """Return whether less is known of any container than decides by itself."""
        slots = [slot for (vpa, _), slot in self._slots.items() if vpa == key]
        return not slots or any(
            int(state.age[slot]) < _YOUNG for state in self._of.values() for slot in slots
        )


def _with_margin(layout: BucketLayout, limits: Floats) -> Floats:
    # Falls from 15 % to 10 % between a hundredth of the range and its end.
    top = float(layout.starts[-1])
    large = np.clip(np.log(np.maximum(limits, 1e-12) / (top / 1e4)) / np.log(1e4), 0.0, 1.0)
    raised: Floats = limits * (1.0 + _MARGIN - (_MARGIN - _LEAST_MARGIN) * large)
    return raised


class AutopilotFeed:
    """An ``IntakeObserver`` of a cluster, for those of its VPAs that chose this recommender."""

    def __init__(self, cluster: ClusterModel, autopilot: Autopilot) -> None:
        self._cluster, self._autopilot = cluster, autopilot
        self._version = -1
        self._slot_of: Columns = np.empty(0, dtype=np.intp)
        self._known: set[VpaKey] = set()
        cluster.intake.observer = self

    def observe(
        self, resource: str, rows: Columns, columns: Columns, values: Floats, now: float
    ) -> None:
        """Hand over samples; aggregates of no VPA are left out."""
        self._follow()
        self._autopilot.take(resource, rows, self._slot_of[columns], values, now)

    def _follow(self) -> None:
        cluster = self._cluster
        if (
            self._version == cluster.version
            and self._slot_of.size == cluster.aggregates.created.size
        ):
            return
        slots = np.full(cluster.aggregates.created.size, -1, dtype=np.intp)
        mine = {key for key, entry in cluster.vpas.items() if entry.settings.is_autopilot}
        for key in mine:
            entry = cluster.vpas[key]
            for container in entry.containers():
                slot = self._autopilot.slot(key, container)
                for column in entry.columns.get(container, {}).values():
                    slots[column] = slot
        for gone in self._known - mine:
            self._autopilot.remove(gone)
        self._known = mine
        self._slot_of, self._version = slots, cluster.version
