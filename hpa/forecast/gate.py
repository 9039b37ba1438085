"""The gate: is any forecast worth having for this workload?

Each candidate is replayed in closed loop over the workload's own last days, learning each day
from the days before it alone, and beside it the loop without a forecast, at a row of targets. A
candidate is taken only if it leaves much less unserved than that loop does with as many pods.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from hpa.decide.api.spec import HPA, Rules
from hpa.decide.behavior import MOST
from hpa.decide.metrics.replicas import tolerance_of
from hpa.decide.settings import Settings
from hpa.forecast.demand import DAY, FEATURES, SLOT_S, DemandHistory, features, lags, peaks, seasons
from hpa.simulate.workload import Floats
from podscale.kube.objects.autoscaler import Policy

_ROUNDING = 1e-9


class LoopRules(Struct, frozen=True):
    """How an HPA moves; lanes that share it run together."""

    delay: int  # minutes until a pod serves
    up: Rules | None
    down: Rules | None
    up_window: int  # minutes
    down_window: int
    low: float  # of the tolerance
    high: float
    passes: int  # a minute

    @classmethod
    def of(cls, hpa: HPA, settings: Settings, delay_s: float) -> "LoopRules":
        """Return what holds for ``hpa`` whose pods serve ``delay_s`` after what was measured; the
        seconds that metrics are old lanes have already, a pass sees the minute before."""
        behavior, tolerance = hpa.behavior, tolerance_of(hpa, settings)
        up = 0 if behavior is None else behavior.up.window_s or 0
        down = None if behavior is None else behavior.down.window_s
        down_s = settings.downscale_stabilization_s if down is None else down
        period_s = settings.period_of(hpa)
        return cls(
            round(delay_s / SLOT_S), None if behavior is None else behavior.up,
            None if behavior is None else behavior.down,
            math.ceil(up / SLOT_S), math.ceil(down_s / SLOT_S), 1.0 - tolerance.down,
            1.0 + tolerance.up, max(1, round(SLOT_S / period_s)),
        )  # fmt: skip


def run(
    rules: LoopRules, demand: Floats, forecast: Floats, least: Floats, most: Floats
) -> tuple[Floats, Floats]:
    """Return the pods that there are, and those that serve; ``demand`` (what a pass at that minute
    sees) and ``forecast`` are pods at the target, NaN: there is none. All of them are a row a
    minute and a column a lane: one HPA with one forecast, or with none and another target.

    Reactive and forecast go through the same few lines; what ``decide`` adds to them (samples that
    come late, rounding to thousandths, the seconds within a minute) both of them lose.
    """
    steps, count = demand.shape
    total = np.clip(np.ceil(np.nan_to_num(demand[0], nan=1.0)), least, most)
    coming = np.zeros((rules.delay, count))  # pods by the minutes since they were made
    sizes, ready, asked = (np.empty((steps, count)) for _ in range(3))
    serving = total
    for step in range(steps):
        now = demand[step]
        # Pods that come up count as idle where more are asked for; nothing moves what is not known.
        is_short = now > serving
        each = now / np.where(is_short, np.maximum(total, _ROUNDING), np.maximum(serving, 1.0))
        moves = ((each < rules.low) | (each > rules.high)) & ~(is_short & (now < total))
        asked[step] = np.where(moves, np.ceil(now - _ROUNDING), total)
        # A forecast that is not there counts for nothing.
        want = np.fmax(asked[step], _ahead(rules, np.ceil(forecast[step] - _ROUNDING), total))
        lowest = highest = want
        if rules.up_window:
            lowest = np.minimum(want, asked[max(0, step - rules.up_window) : step + 1].min(axis=0))
        if rules.down_window:
            past = asked[max(0, step - rules.down_window) : step + 1]
            highest = np.maximum(want, past.max(axis=0))
        size = np.minimum(np.maximum(total, lowest), highest)
        fewest, largest = _limits(rules, sizes, step, total)
        size = np.minimum(np.maximum(size, np.minimum(fewest, total)), np.maximum(largest, total))
        size = np.minimum(np.maximum(size, least), most)
        if rules.delay:
            coming[1:] = coming[:-1].copy()
            coming[0] = 0.0
            less = total - size
            if rules.delay > 1 and (less > 0).any():
                # Those that are not ready go first, the newest of them before the others.
                left = np.maximum(np.cumsum(coming, axis=0) - np.maximum(less, 0.0), 0.0)
                coming = np.diff(left, axis=0, prepend=np.zeros((1, count)))
            coming[0] = np.maximum(-less, 0.0)
        total, serving = size, size - coming.sum(axis=0)
        sizes[step], ready[step] = total, serving
    return sizes, ready


def _ahead(rules: LoopRules, pods: Floats, total: Floats) -> Floats:
    # As decide: it raises only what is out of tolerance, and else keeps no more than it asks for.
    return np.where(pods > total * rules.high, pods, np.minimum(pods, total))


def _limits(rules: LoopRules, sizes: Floats, step: int, total: Floats) -> tuple[Floats, Floats]:
    # What the policies of both directions allow.
    if rules.up is None or rules.down is None:
        return np.zeros_like(total), np.maximum(4.0, total * 2.0**rules.passes)
    highest = [_moved(each, sizes, step, total, 1.0) for each in rules.up.policies]
    lowest = [_moved(each, sizes, step, total, -1.0) for each in rules.down.policies]
    fewest = _chosen(rules.down, lowest, total, is_up=False)
    return fewest, _chosen(rules.up, highest, total, is_up=True)


def _chosen(rules: Rules, found: list[Floats], total: Floats, *, is_up: bool) -> Floats:
    if rules.select == "Disabled" or not found:
        return total
    is_highest = is_up == (rules.select == "Max")
    chosen: Floats = np.maximum.reduce(found) if is_highest else np.minimum.reduce(found)
    return chosen


def _moved(policy: Policy, sizes: Floats, step: int, total: Floats, sign: float) -> Floats:
    # As far as one policy lets the size of a period ago be moved.
    slots = max(1, round(policy.period_seconds / SLOT_S))
    times = max(1.0, SLOT_S / policy.period_seconds)
    start = total if step < slots else sizes[step - slots]
    if policy.type == "Pods":
        return start + sign * policy.value * times
    moved: Floats = start * max(0.0, 1.0 + sign * policy.value / 100.0) ** times
    return np.ceil(moved - _ROUNDING) if sign > 0 else np.floor(moved)


NONE = "none"
# Holt-Winters without a trend of its own: the smoothed level, and the season's peak from there.
_FEATURE_OF = {"day": "day", "week": "week", "level": "level", "holt-winters": "trend"}
SEASONAL = {name: np.array([float(each == feature) for each in FEATURES])
            for name, feature in _FEATURE_OF.items()}  # fmt: skip
_RIDGE, _MEAN = "ridge", "mean"
CANDIDATES = (NONE, *SEASONAL, _RIDGE, _MEAN)  # in the order of a gate's columns
_ABOVE = 0.95  # the weight of peaks above ridge; those below weigh the rest of 1
_SHRINK = 1e-3  # of the mean of the diagonal
_ROUNDS = 5
LEARNT_EVERY = 5  # minutes between two rows that are learnt from


def learnt(rows: Floats, peak: Floats) -> dict[str, Floats]:
    """Return what each candidate weighs each feature by; ridge learns it from ``rows``, one for
    each feature, and the peaks that came after them, and is missing where they are too few.

    Seasonal ones take one feature as it is; ridge weighs all of them, so that demand rarely lies
    above the forecast in the training days (an expectile: Newey and Powell, 1987). Each errs in its
    own way, so that their mean often errs less (Bates and Granger, 1969).
    """
    found = dict(SEASONAL)
    known = ~np.isnan(rows).any(axis=0) & ~np.isnan(peak)
    if known.sum() >= DAY // LEARNT_EVERY:
        found[_RIDGE] = _ridge(rows[:, known], peak[known])
    found[_MEAN] = np.mean(list(found.values()), axis=0)
    return found


def forecast(weights: Floats, rows: Floats) -> Floats:
    """Return the forecast of each minute, in pods; NaN where a feature is not known that counts."""
    used = np.flatnonzero(weights)
    found: Floats = weights[used] @ rows[used]
    return found


def _ridge(rows: Floats, peak: Floats) -> Floats:
    size = np.sqrt((rows**2).mean(axis=1)) + 1e-9
    scaled = rows / size[:, None]
    low, more = 1.0 - _ABOVE, 2.0 * _ABOVE - 1.0
    squares, products = scaled @ scaled.T, scaled @ peak
    answer = _solved(squares, products)
    for _ in range(_ROUNDS):
        is_above = peak > answer @ scaled
        part = scaled[:, is_above]
        answer = _solved(
            low * squares + more * (part @ part.T),
            low * products + more * (part @ peak[is_above]),
        )
    weights: Floats = answer / size
    return weights


def _solved(squares: Floats, products: Floats) -> Floats:
    shrink = _SHRINK * np.trace(squares) / len(squares)
    answer: Floats = np.linalg.solve(squares + shrink * np.eye(len(squares)), products)
    return answer


MOST_DAYS = 14  # that are learnt from, and that are replayed
FEWEST_DAYS = 3  # of history before anything is taken; of the first there is no forecast
_SMALL = 1e-4  # of the demand: less is not told apart
# Of what the loop alone leaves unserved: much less over all days, and less without any one of them
# (one surge that was foreseen by luck is no reason) ...
_AT_MOST, _WITHOUT_ONE = 0.6, 0.8
_HALF = 1.0  # ... no worse in either half of them ...
LAST = 1.05  # ... nor on the last day: regret ends what has begun
_MOST_MORE = 0.3  # pod-hours, whatever they save
# Parts of the target at which the loop alone is replayed as well.
_TARGETS = np.array([0.92, 0.84, 0.76, 0.68, 0.6, 0.5, 0.4, 0.3])


class GateSubject(Struct, frozen=True, eq=False):
    """One HPA for the gate, to be replayed over the last days of its demand."""

    rules: LoopRules
    hpa: HPA
    demand: DemandHistory  # whole days, the newest last
    forecasts: Floats  # a row a minute, a column a candidate, the first is none; NaN: nothing said
    day: int = DAY  # minutes


class DaySums(Struct, frozen=True, eq=False):
    """Pod-minutes a day: a row a day; a column a candidate, then one for each lower target."""

    sizes: Floats
    lacking: Floats
    needed: Floats  # a number a day

    def until(self, count: int) -> "DaySums":
        """Return the last of the first ``count`` days, as many as a gate looks at."""
        days = slice(max(0, count - MOST_DAYS), count)
        return DaySums(self.sizes[days], self.lacking[days], self.needed[days])

    def followed_by(self, newer: "DaySums") -> "DaySums":
        """Return these days and newer ones, as many as a gate looks at."""
        pairs = zip(structs.astuple(self), structs.astuple(newer), strict=True)
        return DaySums(*(np.concatenate(pair)[-MOST_DAYS:] for pair in pairs))


class GateRow(Struct, frozen=True):
    """One candidate in the gate's table."""

    name: str
    pod_hours: float
    unserved: float
    reactive: float  # unserved by the metrics alone with as many pod-hours
    more: float  # share of pod-hours beyond those of the metrics alone at the same target
    saved: float  # the share of what the metrics alone leave unserved


class GateVerdict(Struct, frozen=True):
    """What the gate found; ``rows`` begin with the metrics alone."""

    candidate: str
    days: int
    rows: tuple[GateRow, ...]

    @property
    def taken(self) -> GateRow | None:
        return next((row for row in self.rows[1:] if row.name == self.candidate), None)


def slots_ahead(delay_s: float) -> int:
    """Return how many minutes forecasts look ahead: until pods serve, and a pass more."""
    return int(np.ceil((delay_s + 75.0) / 60.0))


class KnownPast(Struct, frozen=True, eq=False):
    """What is learnt from, worked out once: the last axis is minutes."""

    pods: Floats
    lags: Floats  # before each minute, and after the last
    peak: Floats  # of each minute and those ahead
    curves: Floats  # of the seasons, beyond the end as well
    ahead: int

    @classmethod
    def of(cls, pods: Floats, ahead: int, days: int = 0) -> "KnownPast":
        """Return what is known of ``pods``, and the seasons of ``days`` after them."""
        peak = peaks(pods, ahead)
        return cls(pods, lags(pods), peak, seasons(pods, peak, days), ahead)

    def rows(self, minutes: slice) -> Floats:
        """Return the features of ``minutes``, of what is known when each begins."""
        return features(self.lags[:, minutes], self.curves[:, minutes])

    def forecasts(self, first_day: int, days: int) -> Floats:
        """Return what each candidate would have said, minute by minute, of the days from
        ``first_day`` until ``days``: a row a minute, each day learnt before it."""
        first, end = first_day * DAY, min(len(self.pods), days * DAY)
        found = np.full((end - first, len(CANDIDATES)), np.nan)
        for start in range(first, end, DAY):
            day, said = slice(start, min(start + DAY, end)), found[start - first :][:DAY]
            rows, most = self.rows(day), MOST * np.nanmax(self.pods[:start])
            for name, weights in learnt(*self.seen(start)).items():
                said[:, CANDIDATES.index(name)] = np.minimum(forecast(weights, rows), most)
        return found

    def seen(self, until: int) -> tuple[Floats, Floats]:
        """Return the rows that are learnt from at minute ``until``, and their peaks: none that had
        not been seen by then."""
        first = max(min(DAY, until - DAY), until - MOST_DAYS * DAY)
        minutes = slice(first, until - self.ahead, LEARNT_EVERY)
        return self.rows(minutes), self.peak[minutes]


def day_sums(subjects: Sequence[GateSubject]) -> list[DaySums]:
    """Return the sums of the days of each that it has forecasts for. Those that move by the same
    rules over as many days are replayed side by side."""
    together: dict[tuple[LoopRules, tuple[int, ...]], list[int]] = {}
    for place, each in enumerate(subjects):
        together.setdefault((each.rules, each.forecasts.shape), []).append(place)
    found: dict[int, DaySums] = {}
    for (rules, (steps, tried)), places in together.items():
        some = [subjects[place] for place in places]
        parts = np.concatenate((np.ones(tried), _TARGETS))
        before = (np.concatenate((each.demand.pods[:1], each.demand.pods)) for each in some)
        demand = np.hstack([pods[-steps - 1 : -1, None] / parts for pods in before])
        ahead = np.full((steps, len(some), len(parts)), np.nan)
        for number, each in enumerate(some):
            ahead[:, number, :tried] = each.forecasts
        least = np.repeat([float(each.hpa.min_replicas) for each in some], len(parts))
        most = np.repeat([float(each.hpa.max_replicas) for each in some], len(parts))
        sizes, ready = run(rules, demand, ahead.reshape(steps, -1), least, most)
        for number, (place, each) in enumerate(zip(places, some, strict=True)):
            lanes = slice(number * len(parts), (number + 1) * len(parts))
            needed = each.demand.needed[-steps:, None]
            asked = np.nan_to_num(needed)
            minutes = (
                sizes[:, lanes] * ~np.isnan(needed), np.maximum(asked - ready[:, lanes], 0.0), asked
            )  # fmt: skip
            size, lacking, total = (
                part.reshape(-1, each.day, part.shape[1]).sum(axis=1) for part in minutes
            )
            found[place] = DaySums(size, lacking, total[:, 0])
    return [found[place] for place in range(len(subjects))]


def verdict(sums: DaySums) -> GateVerdict:
    """Return which candidate is taken, over all days of ``sums``."""
    days = len(sums.needed)
    every = np.arange(days)
    halves, without_one = (every < days // 2, every >= days // 2), every[:, None] != every
    parts = np.vstack((every >= 0, every == days - 1, *halves, without_one))
    limits = np.array([_AT_MOST, LAST, _HALF, _HALF] + [_WITHOUT_ONE] * days)
    unserved, alone, ratios = shares(sums, parts)
    sizes = sums.sizes.sum(axis=0)
    more = sizes[: len(CANDIDATES)] / sizes[0] - 1.0
    fits = (ratios <= limits[:, None]).all(axis=0) & (more <= _MOST_MORE)
    # Where none fits it is the first, which is none.
    best = int(np.argmin(np.where(fits & (days >= FEWEST_DAYS - 1), ratios[0], 1.0)))
    rows = (
        GateRow(name, float(sizes[place]) / 60.0, float(unserved[0, place]),
                float(alone[0, place]), float(more[place]), float(1.0 - ratios[0, place]))
        for place, name in enumerate(CANDIDATES)
    )  # fmt: skip
    return GateVerdict(CANDIDATES[best], days, tuple(rows))


def shares(sums: DaySums, parts: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """Return what each candidate leaves unserved over each of ``parts`` (a row of days), what the
    loop alone does with as many pods, and the one in times of the other."""
    sizes, lacking, needed = (parts @ each for each in structs.astuple(sums))
    unserved = lacking / np.maximum(needed, 1.0)[:, None]
    tried = sizes.shape[1] - len(_TARGETS)
    targets = [0, *range(tried, sizes.shape[1])]
    logs = np.log(unserved[:, targets] + _SMALL)
    alone = np.exp([np.interp(size[:tried], size[targets], log)
                    for size, log in zip(sizes, logs, strict=True)])  # fmt: skip
    unserved = unserved[:, :tried]
    return unserved, alone - _SMALL, (unserved + _SMALL) / alone
