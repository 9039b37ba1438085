"""From the feed's rows to the answers of ``podscale.core.metrics``.

Pure. Here NaN, ±Inf and what does not fit stop being values (upstream serves them as 0 or as
-9223372036854775808m, and autoscalers believed it), floats become
milli-units, and absences get their reason.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import overload

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from adapter.stages import Stage
from podscale.core.metrics import (
    Answer,
    ExternalSample,
    ExternalSamples,
    Failure,
    NoData,
    ObjectSample,
    PodSamples,
    Sample,
    SampleGap,
    Samples,
    Stale,
)
from podscale.feed.plan import NO_ROW, Outcome, Reading

_LIMIT = float(2**63)


def milli(value: float) -> int | None:
    """Return ``value`` in thousandths, truncated towards zero; ``None``: not a number.

    The product is taken in float64 as upstream does: 1.005 is 1004, 1.001 is 1000.
    """
    product = value * 1000.0
    # False for NaN as well.
    return int(product) if -_LIMIT < product < _LIMIT else None


def all_milli(samples: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Return ``milli`` of every value; ``None``: one of them is no number."""
    with np.errstate(over="ignore", invalid="ignore"):
        products = samples * 1000.0
        # False for NaN as well.
        if len(products) and not np.abs(products).max() < _LIMIT:
            return None
    return products.astype(np.int64)


def fitting(samples: NDArray[np.float64]) -> Sequence[int]:
    """Return the places of the values for which ``milli`` returns a number."""
    with np.errstate(over="ignore", invalid="ignore"):
        fits = np.abs(samples * 1000.0) < _LIMIT
    # 100,000 integers would take the loop 2 ms, and nearly always it is all of them.
    if fits.all():
        return range(len(samples))
    found: list[int] = np.flatnonzero(fits).tolist()
    return found


def usage_milli(value: float) -> int | None:
    """Return a usage in thousandths; a negative one is no measurement either."""
    found = milli(value)
    return None if found is None or found < 0 else found


# A scalar answer has no labels at all, which the API writes as null (upstream does).
NO_LABELS: Mapping[str, str] = MappingProxyType({})


_AT_ONCE = 250  # external samples; more are made page by page


class Origin(Struct, frozen=True):
    """What a reason names: where the metric comes from."""

    metric: str
    rule: str  # "rules[3]"
    window_s: float | None = None


def pods(outcome: Outcome, names: Iterable[str], origin: Origin) -> PodSamples | Failure:
    """Return the samples of the pods (or other objects) called ``names``, in that order."""
    if not isinstance(outcome, Reading):
        return outcome
    objects = outcome.objects
    known = [name for name in names if name in objects]
    rows = [objects[name] for name in known]
    # Whole rows of numbers at once: to take single ones out of an array costs five times as much.
    numbers, times = outcome.values[rows].tolist(), outcome.time_s[rows].tolist()
    found = {
        name: Sample(number, None if time_s != time_s else time_s, origin.window_s)
        for name, number, time_s in zip(known, map(milli, numbers), times, strict=True)
        if number is not None
    }
    stale = frozenset(name for name in names if name in outcome.stale) if outcome.stale else _NONE
    return PodSamples(found, outcome.asked_s, stale)


_NONE: frozenset[str] = frozenset()


def single(outcome: Outcome, name: str, origin: Origin) -> ObjectSample | Failure:
    """Return the sample of one object, or why there is none."""
    if not isinstance(outcome, Reading):
        return outcome
    row = outcome.objects.get(name, NO_ROW)
    if row == NO_ROW:
        return _absence(outcome, name, origin)
    sample = _sample(outcome, row, origin)
    if sample is None:
        text = f"{origin.rule}: {origin.metric} of {name} is {float(outcome.values[row])}"
        return NoData(Stage.NOT_A_NUMBER, text)
    return ObjectSample(sample, outcome.asked_s)


def external(outcome: Outcome, origin: Origin) -> ExternalSamples | Failure:
    """Return every series of an external metric; those that are no number are only counted."""
    if not isinstance(outcome, Reading):
        return outcome
    series = _Series(outcome, fitting(outcome.values), origin)
    if not series and outcome.stale:
        return _stale(outcome, "", origin)
    left_out = len(outcome.values) - len(series)
    listed = series if len(series) > _AT_ONCE else tuple(series)
    return ExternalSamples(listed, outcome.asked_s, left_out)


class _Series(Sequence[ExternalSample]):
    """Samples made when somebody looks: 100,000 at once would hold the loop for 0.2 s."""

    def __init__(self, reading: Reading, rows: Sequence[int], origin: Origin) -> None:
        self._reading = reading
        self._rows = rows
        self._window_s = origin.window_s

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> ExternalSample: ...

    @overload
    def __getitem__(self, place: slice) -> list[ExternalSample]: ...

    def __getitem__(self, place: int | slice) -> ExternalSample | list[ExternalSample]:
        if isinstance(place, slice):
            return [self._one(row) for row in self._rows[place]]
        return self._one(self._rows[place])

    def _one(self, row: int) -> ExternalSample:
        reading = self._reading
        sample = Sample(int(reading.values[row] * 1000.0), time_of(reading, row), self._window_s)
        return ExternalSample(NO_LABELS if reading.is_scalar else reading.labels[row], sample)


def or_nothing(answer: Answer) -> Answer:
    """Return ``answer``, or the failure that an empty list, or a part of one, is to whoever
    decides by it.

    The in-tree HPA's client makes the same of an empty list ("no metrics returned"); only
    the APIs show it as a list.
    """
    match answer:
        case PodSamples() if not answer.pods:
            if answer.stale:
                return Stale(
                    Stage.STALE, f"the samples of {', '.join(sorted(answer.stale))} are stale"
                )
            return NoData(Stage.EMPTY_RESULT, "the query returns no sample of these pods")
        case ExternalSamples() if answer.left_out:
            # The sum of the others is not the metric: it would shrink by what cannot be read.
            return NoData(Stage.NOT_A_NUMBER, left_out(answer))
        case ExternalSamples() if not answer.series and answer.answered_by:
            return NoData("NoMetricsReturned", f"{answer.answered_by} has no sample of it")
        case ExternalSamples() if not answer.series:
            return NoData(Stage.EMPTY_RESULT, "the query returns no sample")
    return answer


def with_gap(answer: Answer, gap: SampleGap) -> Answer:
    """Return ``answer`` with the time for which its source was away."""
    if isinstance(answer, Samples):
        return structs.replace(answer, gap=gap)
    return answer


def left_out(answer: ExternalSamples) -> str:
    """Return how many series of the answer are no numbers, for a person."""
    every = len(answer.series) + answer.left_out
    return f"{answer.left_out} of {every} series are NaN, infinite or too large"


def _sample(reading: Reading, row: int, origin: Origin) -> Sample | None:
    number = milli(float(reading.values[row]))
    if number is None:
        return None
    return Sample(number, time_of(reading, row), origin.window_s)


def time_of(reading: Reading, row: int) -> float | None:
    """Return when the sample of ``row`` was taken; ``None``: not known."""
    time_s = float(reading.time_s[row])
    return None if math.isnan(time_s) else time_s


def _absence(reading: Reading, name: str, origin: Origin) -> Failure:
    if name in reading.stale:
        return _stale(reading, name, origin)
    rule, metric = origin.rule, origin.metric
    if reading.is_by_name or not (len(reading.values) or reading.nameless):
        # Whose rows a wider query brought besides says nothing about this object's query.
        text = f"{rule}: the query for {metric} of {name} returns no sample"
        return NoData(Stage.EMPTY_RESULT, text)
    if not reading.objects:
        text = (
            f"{rule}: the query for {metric} returns samples without the label of the object; "
            "aggregate by <<.GroupBy>>"
        )
        return NoData(Stage.GROUP_BY_LOST, text)
    return NoData(Stage.OBJECT_MISMATCH, f"{rule}: no sample of {metric} is for {name}")


def _stale(reading: Reading, name: str, origin: Origin) -> Stale:
    age_s = reading.stale.get(name, max(reading.stale.values()))
    if age_s == math.inf:
        known = "of a target that has gone"
    elif age_s >= 0.0:
        known = f"{age_s:.0f} s old"
    else:  # NaN as well
        known = "of a time that cannot be, which lies ahead or is none"
    text = f"{origin.rule}: the sample of {origin.metric} {name} is {known}"
    return Stale(Stage.STALE, text, age_s if 0.0 <= age_s < math.inf else None)
