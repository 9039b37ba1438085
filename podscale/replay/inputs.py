"""What a replay is given in files, and what can be wrong with it: a load as CSV, prices. Pure.

ReplayError
└── TraceInvalid     a file of samples, with its line

The first line of a load names the columns: a time, and a value for each metric. Times are unix
seconds, RFC 3339 or ``2026-01-31 10:00:00`` (UTC); a value that is empty, NaN or infinite is a load
that nobody knows.
"""

import csv
import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.simulate.workload import LoadHistory, Plant, key_of


class ReplayError(ValueError):
    """It cannot be replayed before something is changed; the text says what."""


class TraceInvalid(ReplayError):
    """A file of samples is not what it is taken for."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


_FEWEST = 2  # rows
_YEAR_S, _MOST_YEARS = 31_556_952, 5  # every 15 s of a trace is a row, its load known or not
_LATEST_S = 32_503_680_000  # the year 3000: a larger number is of a finer unit
_FINER = (("milliseconds", 10**3), ("microseconds", 10**6), ("nanoseconds", 10**9))


def read_trace(text: str) -> tuple[LoadHistory, list[str]]:
    """Return the load and what is to be said about it; raises ``TraceInvalid``."""
    rows = csv.reader(io.StringIO(text))
    header = next(rows, [])
    names = [each.strip() for each in header]
    if len(names) < 2:
        raise TraceInvalid(
            "a header is wanted: a column of times and one for each metric, with commas between", 1
        )
    if _number(names[0]) is not None or _time(names[0]) is not None:
        raise TraceInvalid("the first line has to name the columns, and begins with a time", 1)
    if len(set(names)) < len(names):
        raise TraceInvalid(f"a column is there twice: {', '.join(names)}", 1)
    times: list[float] = []
    values: list[list[float]] = []
    lines: list[int] = []
    repeated = 0
    for row in rows:
        if not row:
            continue
        at, found = _row(row, names, rows.line_num)
        if times and at < times[-1]:
            raise TraceInvalid(f"{row[0]} lies before the line above: sort by time", rows.line_num)
        if times and at == times[-1]:
            repeated += 1  # the later one is the correction
            values[-1] = found
            continue
        times.append(at)
        values.append(found)
        lines.append(rows.line_num)
    if len(times) < _FEWEST:
        raise TraceInvalid("at least two lines of samples are needed", rows.line_num)
    if (years := (times[-1] - times[0]) / _YEAR_S) > _MOST_YEARS:
        gap = int(np.argmax(np.diff(times)))
        stray = lines[gap if 2 * gap < len(times) - 1 else gap + 1]  # on the shorter side
        text = (
            f"the times span {years:.0f} years (at most {_MOST_YEARS}); the largest gap is before"
        )
        raise TraceInvalid(f"{text} line {lines[gap + 1]}: remove what is on one side of it", stray)
    matrix = np.array(values)
    unknown = int(np.isnan(matrix).any(axis=1).sum())
    notes = [f"{repeated} times are there more than once: the last line counts"] if repeated else []
    if unknown:
        notes.append(f"{unknown} lines have a value that is no number: left out")
    columns = {name: matrix[:, place] for place, name in enumerate(names[1:])}
    hidden = np.zeros(len(times), np.bool_)
    return LoadHistory(np.array(times), columns, hidden), notes


def with_columns_of(load: LoadHistory, hpas: Sequence[HPA], where: str = "") -> LoadHistory:
    """Return ``load``, whose only column is that of the only metric, whatever it is called.

    Raises ``ReplayError`` for a metric that no column has; ``where`` is what it begins with.
    """
    wanted = list(dict.fromkeys(key_of(metric) for hpa in hpas for metric in hpa.metrics))
    if len(wanted) == 1 and len(load.columns) == 1:
        (column,) = load.columns.values()
        return LoadHistory(load.time_s, {wanted[0]: column}, load.hidden, load.replicas)
    for key in wanted:
        if key not in load.columns:
            known = ", ".join(load.columns)
            raise ReplayError(
                f"{where}no column is called {key}, which is a metric; there are: {known}"
            )
    return load


def _row(row: Sequence[str], names: Sequence[str], line: int) -> tuple[float, list[float]]:
    if len(row) != len(names):
        raise TraceInvalid(f"{len(row)} columns, and the first line has {len(names)}", line)
    at = _time(row[0].strip())
    if at is None:
        raise TraceInvalid(f"{row[0]!r} is no time: unix seconds or 2026-01-31 10:00:00", line)
    if at > _LATEST_S and _number(row[0].strip()) is not None:
        unit, by = next((each for each in _FINER if at / each[1] <= _LATEST_S), _FINER[-1])
        said = f"{row[0]} is a time in the year {1970 + at // _YEAR_S:.0f}"
        raise TraceInvalid(f"{said}: {unit}? divide by {by}", line)
    found = []
    for name, text in zip(names[1:], row[1:], strict=True):
        value = _number(text.strip()) if text.strip() else math.nan
        if value is None:
            raise TraceInvalid(f"{name}: {text!r} is no number", line)
        if value < 0:
            raise TraceInvalid(f"{name}: {text} is below zero, which no load is", line)
        found.append(value if math.isfinite(value) else math.nan)
    return at, found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _time(text: str) -> float | None:
    number = _number(text)
    if number is not None:
        return number if math.isfinite(number) else None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


_GIB_MILLI = 1000 * 2**30


class PriceList(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Prices of an hour; YAML: ``{currency: EUR, coreHour: 0.04, gibHour: 0.005}``."""

    currency: str = ""
    core_hour: float = 0.0
    gib_hour: float = 0.0
    pod_hour: float = 0.0

    def of_pod_hour(self, plant: Plant) -> float:
        """Return what one pod costs by what it requests."""
        cores = plant.request_milli("cpu", "") / 1000.0
        gib = plant.request_milli("memory", "") / _GIB_MILLI
        return cores * self.core_hour + gib * self.gib_hour + self.pod_hour
