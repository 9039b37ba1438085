"""Many closed loops side by side, a minute a step: what the gate compares candidates by.

Reactive and forecast go through the same few lines; what ``decide`` adds to them (samples that
come late, rounding to thousandths, the seconds within a minute) both of them lose. One lane is
one loop: one HPA with one forecast, or with none and another target.
"""

import math

import numpy as np
from msgspec import Struct

from hpa.decide.api.spec import HPA, Rules
from hpa.decide.metrics.replicas import tolerance_of
from hpa.decide.settings import Settings
from hpa.forecast.demand import SLOT_S
from hpa.simulate.load import Floats
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
        period_s = hpa.options.sync_period_s or settings.sync_period_s
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
    minute and a column a lane."""
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
