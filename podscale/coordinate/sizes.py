"""When a workload sized in both directions gets another request, and which one.

A size is an anchor and a request that belongs to it. Units are milli-units of CPU: of one pod,
or, for loads, of all pods together. Pure but for the loads that are remembered.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from podscale.coordinate.anchor import Anchor

SizeReason = Literal[
    "AnchorAdopted",
    "HorizontalIdle",
    "HorizontalMoving",
    "EstimatesSettling",
    "DayNotSeen",
    "SizedLately",
    "WithinBounds",
    "EnergyWouldRise",
    "PodsMissing",
    "OutsideBounds",
    "OutsideComfort",
]

REASONS: Mapping[SizeReason, str] = {
    "AnchorAdopted": "it has just been written, as what pods request",
    "HorizontalIdle": "the size is kept: the HPA is paused, has no metrics, or has not seen it yet",
    "HorizontalMoving": "the size is kept: the HPA rescaled these pods recently",
    "EstimatesSettling": "the size is kept: what is known is still of pods of another size",
    "DayNotSeen": "the size is kept: the load has not been watched for long enough",
    "SizedLately": "the size is kept: it has changed recently",
    "WithinBounds": "the size is kept: the size lies within the bounds of the VPA",
    "EnergyWouldRise": "the size is kept: another size would reserve more, or lack more",
    "PodsMissing": "it waits: there are not as many pods yet as that size needs",
    "OutsideBounds": "it has just moved: the size lay outside the bounds of the VPA",
    "OutsideComfort": "it has just moved: replicas lay outside the comfort band",
}


Floats = NDArray[np.float64]

LEAST_QUIET_S = 600.0  # without a rescale, before a request is changed
# Lacking cores count as 1 / (1 - 0.9) idle ones, so that the energy is least at a request that
# nine of ten samples stay below: the VPA's own target.
_LACKING = 10.0
_OFTEN = 0.9
_HEADROOM = 1.25  # over the target: the tolerance of the HPA, and the margin of the VPA
_WORTH = 0.1  # of the request, or of the energy: the updater disturbs no pod for less
_ROOM = 1.2  # that an anchor leaves to both ends of the band: loads grow
_LEAD = 1.1  # over what pods use, that a smaller one has: the tolerance of the HPA
_GRAIN = 25  # milli-cores: the VPA's histograms tell no smaller ones apart, up to 250
_HALF_LIVES = 5.0  # after which the estimates are of pods as they are now
_HALF_DAY_S = 43200.0  # as long as the updater leaves a young pod alone
_WEEK_S = 14 * _HALF_DAY_S
_FACTORS = tuple(1.1**step for step in range(-60, 61))  # from 1/300 to 300


class VerticalEstimates(Struct, frozen=True):
    """What the VPA would have of one pod, and what fits it: milli-units."""

    lower: int  # as published, the lower the less is known
    target: int
    upper: int  # as measured, with margin
    least: int  # what a pod needs to start, and what policy wants
    most: int  # what a node has, and policy allows
    half_life_s: float  # of the samples behind them


class HorizontalState(Struct, frozen=True):
    """What the HPA does and may do."""

    utilization: int  # percent of the anchor
    min_replicas: int
    max_replicas: int
    comfort: tuple[int, int]  # replicas that are neither too few nor too many, both ends in
    replicas: int  # that are wanted now
    quiet_s: float  # since another number was wanted, or the HPA came to follow the anchor
    window_s: float  # the longest stabilization window
    loads: "Sequence[SeenLoad]" = ()  # over the last days
    seen_s: float = 0.0  # how long they were seen


class SeenLoad(Struct, frozen=True, gc=False):
    """What pods used for an hour, milli-units, and how many they were."""

    load: float
    pods: float
    weight: float  # that the VPA gives samples of then


class SizeChange(Struct, frozen=True):
    """A vertical move, and the energies before and after in milli-units."""

    anchor: Anchor
    reason: SizeReason
    before: float
    after: float


class SizeKept(Struct, frozen=True):
    """Why the size stays."""

    reason: SizeReason


def choose(
    anchor: Anchor, seen: VerticalEstimates, axis: HorizontalState, now: float
) -> SizeChange | SizeKept:
    """Return the next size of a workload, or why there is none."""
    if axis.quiet_s < max(LEAST_QUIET_S, axis.window_s):
        return SizeKept("HorizontalMoving")
    settling_s = _HALF_LIVES * seen.half_life_s
    # Clocks may have been set back since.
    if abs(now - anchor.moved) < settling_s:
        return SizeKept("EstimatesSettling")
    is_small = anchor.size < seen.lower
    if not is_small and axis.seen_s < _HALF_DAY_S:
        return SizeKept("DayNotSeen")
    field = _Energies(anchor, seen, axis)
    before = field.of(anchor.milli, anchor.size)
    size = field.fitted(anchor.milli, seen.target)
    after = field.of(anchor.milli, size)
    cost = max(field.cost(anchor.milli, size), field.least_cost)
    there = field.most_comfortable(min(before, after), cost, now)
    if there is not None:
        return SizeChange(there, "OutsideComfort", before, field.of(there.milli, there.size))
    if not is_small and abs(now - anchor.sized) < settling_s:
        return SizeKept("SizedLately")
    is_outside = is_small or anchor.size > seen.upper
    if not is_outside or abs(size - anchor.size) < max(_WORTH * anchor.size, 2 * _GRAIN):
        return SizeKept("WithinBounds")
    if after >= before:
        return SizeKept("EnergyWouldRise")
    sized = math.floor(now) if axis.seen_s >= _HALF_DAY_S else anchor.sized
    return SizeChange(
        structs.replace(anchor, size=size, sized=sized), "OutsideBounds", before, after
    )


def may_shrink(anchor: Anchor, load: float | None, pods: int) -> bool:
    """Return whether so many pods of the anchor's size carry the load: nothing shrinks before
    there are as many as the anchor asks for, whoever is to make them."""
    return load is not None and _LEAD * load <= anchor.size * pods


class _Energies:
    # Reserved cores and the cores outside the bands, as means over the loads of a day.

    def __init__(self, anchor: Anchor, seen: VerticalEstimates, axis: HorizontalState) -> None:
        self._anchor, self._seen, self._axis = anchor, seen, axis
        held = axis.replicas * axis.utilization * anchor.milli / 100.0
        loads = axis.loads or (SeenLoad(held, float(axis.replicas), 1.0),)
        self._loads: Floats = np.array([each.load for each in loads])
        self._present: Floats = np.maximum(np.array([each.pods for each in loads]), 1.0)
        weights = np.array([each.weight for each in loads])
        self._weights: Floats = weights / weights.sum()
        # Windows and bursts within an hour keep more pods than its mean asks for.
        self._surplus: Floats = np.maximum(self._present / self._wanted(anchor.milli), 1.0)
        # What a pod needs for each milli-unit that it uses, so that 0.9 of them need the target.
        self._need = seen.target / max(self._usual(self._present), 1e-9)
        # Of small pods the VPA knows up to one grain too much, which does not grow with them.
        self._need_elsewhere = self._need * (1.0 - _GRAIN / max(seen.target, 2 * _GRAIN))

    def of(self, milli: int, size: int) -> float:
        """Return the energy of a size: what is reserved, what is outside the comfort band, and
        ten times what pods need and lack."""
        pods = self._pods(milli)
        need = self._need if milli == self._anchor.milli else self._need_elsewhere
        lacking = np.maximum(need * self._loads - pods * size, 0.0)
        return self._mean(pods * size + _LACKING * lacking) + self._outside(pods, size)

    def cost(self, milli: int, size: int) -> float:
        """Return what is reserved."""
        return self._mean(self._pods(milli) * size)

    @property
    def least_cost(self) -> float:
        """What no anchor does without: pods that are as many as maxReplicas may reserve less."""
        return _HEADROOM * self._mean(self._loads)

    def fitted(self, milli: int, size: int) -> int:
        """Return the request of a pod that needs ``size`` at an anchor: never less than what the
        HPA lets it use before there are more pods."""
        least = max(self._seen.least, round(_HEADROOM * self._axis.utilization * milli / 100.0))
        return min(max(size, least), self._seen.most)

    def most_comfortable(self, below: float, cost: float, now: float) -> Anchor | None:
        """Return the anchor with which least is outside the comfort band, of those whose energy
        lies ``below`` and that reserve no more than ``cost``: in the middle of the band, among
        equals. None where the present one is as good."""
        if self._axis.seen_s < 2 * _HALF_DAY_S:
            return None  # a band is left at noon and come back to at night: only a whole day tells
        unit = _WORTH * max(self._mean(self._need * self._loads), 1e-9)
        # Part of the way would keep the rest from being gone while the estimates settle.
        steps = round(self._outside(self._present, self._anchor.size) / unit)
        best = steps // 4 + 1.0, -math.inf, -math.inf
        found = None
        middle = math.sqrt(self._axis.comfort[0] * self._axis.comfort[1])
        for factor in _FACTORS if steps else ():
            if factor < 1.0 and self._axis.seen_s < _WEEK_S:
                continue  # small pods meet maxReplicas sooner: a quiet day is no reason for them
            milli = max(round(self._anchor.milli * factor), 1)
            pods = self._pods(milli)
            needed = round(self._need_elsewhere * self._usual(pods))
            size = self.fitted(milli, needed)
            energy = self.of(milli, size)
            is_dear = self.cost(milli, size) > (1.0 + _WORTH) * cost
            if needed > size or energy >= below or is_dear:
                continue
            outside = float(round(self._outside(pods, size, _ROOM) / unit))
            away = abs(math.log(self._mean(pods) / middle))
            rank = outside, float(round(energy / unit)), away
            if rank < best:
                best, found = rank, structs.replace(self._anchor, milli=milli, size=size)
        at = math.floor(now)
        return found and structs.replace(found, moved=at, sized=at)

    def _outside(self, pods: Floats, size: int, room: float = 1.0) -> float:
        # Pods beyond the band, whole, and what those that it lacks would have carried.
        low, high = map(float, self._axis.comfort)
        room = min(room, math.sqrt(high / low))
        low, high = low * room, high / room
        lacking = self._need * self._loads * np.maximum(1.0 - pods / low, 0.0)
        return self._mean(np.maximum(pods - high, 0.0) * size + lacking)

    def _mean(self, values: Floats) -> float:
        return float((values * self._weights).sum())

    def _pods(self, milli: int) -> Floats:
        axis = self._axis
        if milli == self._anchor.milli:
            return self._present
        wanted = np.ceil(self._wanted(milli) * self._surplus)
        return np.minimum(wanted, axis.max_replicas)

    def _wanted(self, milli: int) -> Floats:
        axis = self._axis
        wanted = np.ceil(self._loads * 100.0 / (axis.utilization * milli) - 1e-9)
        return np.clip(wanted, max(axis.min_replicas, 1), axis.max_replicas)

    def _usual(self, pods: Floats) -> float:
        # What nine of ten samples of pods stay below.
        used = self._loads / pods
        order = np.argsort(used)
        counts = np.cumsum((pods * self._weights)[order])
        place = int(np.searchsorted(counts, _OFTEN * counts[-1]))
        return float(used[order][min(place, len(used) - 1)])


DAY_S = 86400.0
_DAYS = 8  # that are remembered, as the VPA remembers usage
_SLOT_S = 3600.0  # a burst that is over sooner asks for more pods, not for other ones
_LONGEST_GAP_S = 3600.0  # beyond which what was seen before says nothing
_LATEST_S = 600.0  # longer than the windows of metrics, and than pods take to leave


class LatestLoads:
    """The loads of the last minutes. Times given must not go back."""

    def __init__(self) -> None:
        self._since = 0.0
        self._loads: deque[tuple[float, float]] = deque()  # times and loads

    def add(self, load_milli: float, now: float) -> None:
        """Take in what all pods used at one time."""
        if not self._loads or now - self._loads[-1][0] > _LONGEST_GAP_S:
            self._loads.clear()
            self._since = now
        self._loads.append((now, load_milli))
        # One from before stays: after a gap the newest alone is of pods that have just come.
        while len(self._loads) > 1 and self._loads[1][0] <= now - _LATEST_S:
            self._loads.popleft()

    @property
    def highest(self) -> float | None:
        """The highest of them; None where they have not been watched for long enough: pods that
        have just come or gone make each of the others look less loaded than it is."""
        if not self._loads or self._loads[-1][0] - self._since < _LATEST_S:
            return None
        return max(load for _, load in self._loads)


class LoadOfDays:
    """Means of hours. Times given must not go back."""

    def __init__(self) -> None:
        self._since = self._last = 0.0
        self._slots: dict[int, tuple[float, int, int]] = {}  # sums and count, by number

    def add(self, load_milli: float, pods: int, now: float) -> None:
        """Take in what all pods used at one time."""
        self.follow(now)
        self._last = now
        slot = int(now // _SLOT_S)
        total, replicas, count = self._slots.get(slot, (0.0, 0, 0))
        self._slots[slot] = (total + load_milli, replicas + pods, count + 1)
        oldest = int((now - _DAYS * DAY_S) // _SLOT_S)
        for each in [each for each in self._slots if each < oldest]:
            del self._slots[each]

    def follow(self, now: float) -> None:
        """Forget all, where the load has not been seen for long by now."""
        if now - self._last > _LONGEST_GAP_S:
            self._slots.clear()
            self._since = self._last = now

    @property
    def seen_s(self) -> float:
        """How long the load has been seen without a gap."""
        return self._last - self._since

    def loads(self, half_life_s: float) -> list[SeenLoad]:
        """Return the means of the hours."""
        latest = max(self._slots, default=0)
        return [
            SeenLoad(total / count, pods / count, 2.0 ** ((slot - latest) * _SLOT_S / half_life_s))
            for slot, (total, pods, count) in self._slots.items()
        ]
