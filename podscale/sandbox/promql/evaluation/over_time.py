"""The ``*_over_time`` family: one float per window of at least one sample."""

import math
from collections.abc import Callable, Mapping

from podscale.sandbox.promql.evaluation import rates, sums
from podscale.sandbox.promql.values import Window


def _mad(window: Window) -> float:
    values = window.values.tolist()
    middle = sums.quantile(0.5, values)
    return sums.quantile(0.5, [abs(value - middle) for value in values])


# Of one range vector and nothing else. None as a result: no element.
BY_NAME: Mapping[str, Callable[[Window], float | None]] = {
    "rate": rates.rate,
    "increase": rates.increase,
    "delta": rates.delta,
    "irate": rates.irate,
    "idelta": rates.idelta,
    "deriv": rates.deriv,
    "resets": rates.resets,
    "changes": rates.changes,
    "avg_over_time": lambda window: sums.mean(window.values.tolist()),
    "sum_over_time": lambda window: sums.total(window.values.tolist()),
    "count_over_time": lambda window: float(len(window.values)),
    "min_over_time": lambda window: sums.least(window.values),
    "max_over_time": lambda window: sums.most(window.values),
    "last_over_time": lambda window: float(window.values[-1]),
    "first_over_time": lambda window: float(window.values[0]),
    "present_over_time": lambda _window: 1.0,
    "stdvar_over_time": lambda window: sums.variance_over_time(window.values.tolist()),
    "stddev_over_time": lambda window: math.sqrt(sums.variance_over_time(window.values.tolist())),
    "mad_over_time": _mad,
}

# These say the same thing as the sample they pick, so they keep its name.
KEEP_NAME = frozenset({"last_over_time", "first_over_time"})
