"""Functions that turn each element of a vector into another: numbers, dates, labels."""

import calendar
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np

from podscale.sandbox.promql.errors import BadData, Unanswerable
from podscale.sandbox.promql.head import expression
from podscale.sandbox.promql.values import Labels, Vector, label, label_set

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _sign(value: float) -> float:
    return math.copysign(1.0, value) if value < 0 or value > 0 else value


def _of(function: Callable[[float], np.floating]) -> Callable[[float], float]:
    return lambda value: float(function(value))


# Of one number.
NUMBERS: Mapping[str, Callable[[float], float]] = {
    "abs": abs,
    "sgn": _sign,
    "deg": math.degrees,
    "rad": math.radians,
    **{
        name: _of(getattr(np, name))
        for name in ("ceil", "floor", "exp", "sqrt", "log2", "log10", "sin", "cos", "tan",
                     "sinh", "cosh", "tanh")
    },
    "ln": _of(np.log),
    **{f"a{name}": _of(getattr(np, f"arc{name}")) for name in ("sin", "cos", "tan", "sinh",
                                                              "cosh", "tanh")},
}  # fmt: skip

# Of one time in seconds, UTC.
DATES: Mapping[str, Callable[[datetime], float]] = {
    "minute": lambda at: float(at.minute),
    "hour": lambda at: float(at.hour),
    "day_of_week": lambda at: float(at.isoweekday() % 7),
    "day_of_month": lambda at: float(at.day),
    "day_of_year": lambda at: float(at.timetuple().tm_yday),
    "days_in_month": lambda at: float(calendar.monthrange(at.year, at.month)[1]),
    "month": lambda at: float(at.month),
    "year": lambda at: float(at.year),
}


def date(value: float) -> datetime:
    """Return the time of unix seconds; raises ``Unanswerable`` beyond the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(seconds=int(value))
    except (OverflowError, ValueError):
        raise Unanswerable(f"{value:g} is not a time in unix seconds") from None


def rounded(value: float, to_nearest: float) -> float:
    """Return the nearest multiple, halves upwards."""
    inverse = float(np.float64(1.0) / to_nearest)
    return float(np.floor(value * inverse + 0.5) / np.float64(inverse))


def clamped(value: float, least: float, most: float) -> float:
    """Return ``value`` within both; NaN stays."""
    return float(np.maximum(least, np.minimum(most, value)))


def with_label_replaced(vector: Vector, words: Sequence[str]) -> Vector:
    """Return ``label_replace``'s answer; raises ``BadData``."""
    to, replacement, source, text = words
    if not to:
        raise BadData(f"invalid destination label name in label_replace(): {to}")
    wanted = expression(text)
    changed = []
    for sample in vector:
        found = wanted.fullmatch(label(sample.labels, source))
        if found is None:
            changed.append(sample)
            continue
        groups: dict[str, str] = {
            str(place): value or "" for place, value in enumerate((found.group(0), *found.groups()))
        }
        groups |= {name: groups[str(place)] for name, place in wanted.groupindex.items()}
        value = _expanded(replacement, groups)
        changed.append(_relabelled(sample, to, value))
    return changed


def with_labels_joined(vector: Vector, words: Sequence[str]) -> Vector:
    """Return ``label_join``'s answer; raises ``BadData``."""
    to, separator, *sources = words
    if not to or not all(sources):
        raise BadData("invalid label name in label_join()")
    return [
        _relabelled(sample, to, separator.join(label(sample.labels, name) for name in sources))
        for sample in vector
    ]


def _relabelled(sample, to: str, value: str):  # type: ignore[no-untyped-def]
    labels: Labels = label_set({**dict(sample.labels), to: value})
    return type(sample)(labels, sample.value, sample.time_ms)


_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)


def _expanded(template: str, groups: Mapping[str, str]) -> str:
    def value(found: "re.Match[str]") -> str:
        name = found.group(1) or found.group(2)
        return "$" if name is None else groups.get(name, "")

    return _REFERENCE.sub(value, template)
