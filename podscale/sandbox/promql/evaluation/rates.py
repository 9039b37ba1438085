"""What a window of samples changed by: ``rate`` and its family, one float per window.

Follows ``extrapolatedRate`` and ``instantValue`` of Prometheus 3 (windows are open on the
left). None: too few samples for an answer.
"""

import numpy as np

from podscale.sandbox.promql.evaluation import sums
from podscale.sandbox.promql.values import Window

# "Close to the end of the window" is this many average intervals.
_NEAR = 1.1


def rate(window: Window) -> float | None:
    """Return the increase of a counter per second."""
    return _extrapolated(window, is_counter=True, is_rate=True)


def increase(window: Window) -> float | None:
    return _extrapolated(window, is_counter=True, is_rate=False)


def delta(window: Window) -> float | None:
    """Return the change of a gauge."""
    return _extrapolated(window, is_counter=False, is_rate=False)


def irate(window: Window) -> float | None:
    """Return the increase per second between the last two samples."""
    change = _last_change(window, is_counter=True)
    if change is None:
        return None
    return change / (float(window.times[-1] - window.times[-2]) / 1000)


def idelta(window: Window) -> float | None:
    """Return the change between the last two samples."""
    return _last_change(window, is_counter=False)


def deriv(window: Window) -> float | None:
    """Return the slope per second of the samples' line."""
    if len(window.times) < 2:
        return None
    times = window.times.tolist()
    return sums.slope(times, window.values.tolist(), times[0])[0]


def predict_linear(window: Window, now_ms: int, ahead_s: float) -> float | None:
    """Return the value ``ahead_s`` after ``now_ms`` on the samples' line."""
    if len(window.times) < 2:
        return None
    found, at_now = sums.slope(window.times.tolist(), window.values.tolist(), now_ms)
    return found * ahead_s + at_now


def resets(window: Window) -> float:
    """Return how often the value fell."""
    return float(np.count_nonzero(window.values[1:] < window.values[:-1]))


def changes(window: Window) -> float:
    """Return how often the value changed; NaN is no change from NaN."""
    old, new = window.values[:-1], window.values[1:]
    return float(np.count_nonzero((old != new) & ~(np.isnan(old) & np.isnan(new))))


def _last_change(window: Window, *, is_counter: bool) -> float | None:
    if len(window.times) < 2:
        return None
    before, last = window.values[-2:].tolist()
    is_reset = is_counter and last < before
    return float(last if is_reset else last - before)


def _extrapolated(window: Window, *, is_counter: bool, is_rate: bool) -> float | None:
    count = len(window.times)
    if count < 2:
        return None
    values = window.values
    first, last = values[0], values[-1]
    change = last - first
    if is_counter:
        for place in np.flatnonzero(values[1:] < values[:-1]):
            change += values[place]
    sampled = float(window.times[-1] - window.times[0]) / 1000
    interval = sampled / (count - 1)
    before = float(window.times[0] - window.start_ms) / 1000
    after = float(window.end_ms - window.times[-1]) / 1000
    # A gap of more than an interval means that the series starts or ends within the window:
    # half an interval is the guess of where.
    if before >= interval * _NEAR:
        before = interval / 2
    if is_counter and change > 0 and first >= 0:
        # A counter was never below zero.
        before = min(before, sampled * (first / change))
    if after >= interval * _NEAR:
        after = interval / 2
    factor = (sampled + before + after) / sampled if sampled else 1.0
    if is_rate:
        factor /= (window.end_ms - window.start_ms) / 1000
    return float(change * factor)
