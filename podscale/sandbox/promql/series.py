"""The series in memory, each in two growing columns: append, select by matchers, forget; what
PromQL evaluates to; and why a query has no answer, in the words of Prometheus's API.

PromqlError
├── BadData      400: the query or a parameter is wrong
└── Unanswerable 422: this query on this data, or a construct that the stand-in does not know
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import re2
from msgspec import Struct
from numpy.typing import NDArray

from podscale.feed.prover.tree import Matcher

NAME = "__name__"
# Prometheus drops these together wherever a function changes what a value means.
_METADATA = frozenset({NAME, "__type__", "__unit__"})

Labels = tuple[tuple[str, str], ...]  # sorted by name; an empty value is no label
Times = NDArray[np.int64]  # milliseconds since 1970
Values = NDArray[np.float64]


class PromqlError(Exception):
    """A refusal; ``kind`` is the API's errorType."""

    status = 500
    kind = "internal"


class BadData(PromqlError):
    """What was sent cannot be read."""

    status = 400
    kind = "bad_data"


class Unanswerable(PromqlError):
    """It was read, and cannot be evaluated."""

    status = 422
    kind = "execution"


def unsupported(construct: str) -> Unanswerable:
    """Return the refusal of a construct, by its name."""
    return Unanswerable(
        f"{construct} is not in the subset of PromQL that the demo's stand-in evaluates; "
        "put a real prometheus on PATH for the rest"
    )


class PointSample(Struct, frozen=True, gc=False):
    """One element of an instant vector."""

    labels: Labels
    value: float


class Window(Struct, frozen=True, eq=False):
    """One element of a range vector: samples within (``start_ms``, ``end_ms``], oldest first."""

    labels: Labels
    times: Times
    values: Values
    start_ms: int
    end_ms: int


Vector = list[PointSample]
Value = float | Vector


def label_set(pairs: Mapping[str, str]) -> Labels:
    """Return labels in their one form."""
    return tuple(sorted((name, value) for name, value in pairs.items() if value))


def label(labels: Labels, name: str) -> str:
    """Return a label's value; empty where there is none."""
    return next((value for key, value in labels if key == name), "")


def nameless(labels: Labels) -> Labels:
    """Return labels without the metric's name."""
    return without(labels, _METADATA)


def only(labels: Labels, names: Collection[str]) -> Labels:
    return tuple(pair for pair in labels if pair[0] in names)


def without(labels: Labels, names: Collection[str]) -> Labels:
    return tuple(pair for pair in labels if pair[0] not in names)


def distinct(vector: Vector) -> Vector:
    """Return ``vector``; raises ``Unanswerable`` when two elements have the same labels."""
    if len({sample.labels for sample in vector}) < len(vector):
        raise Unanswerable("vector cannot contain metrics with the same labelset")
    return vector


RETENTION_MS = 6 * 3600 * 1000
# Prometheus's staleness marker: a NaN told from others by its bits.
_STALE = struct.pack("<Q", 0x7FF0000000000002)
(STALE,) = struct.unpack("<d", _STALE)


class SeriesColumns:
    """One series: times and values, markers included, oldest first."""

    def __init__(self) -> None:
        self.times, self.values = array("q"), array("d")

    def append(self, time_ms: int, value: float) -> None:
        """Add a sample; one that is not newer than the last is dropped, as Prometheus does."""
        if not self.times or time_ms > self.times[-1]:
            self.times.append(time_ms)
            self.values.append(value)

    def forget(self, before_ms: int) -> None:
        """Drop what is older."""
        count = bisect_left(self.times, before_ms)
        del self.times[:count], self.values[:count]

    def last(self, after_ms: int, until_ms: int) -> tuple[int, float] | None:
        """Return the newest sample within (after, until]; None also where it is a marker."""
        place = bisect_right(self.times, until_ms) - 1
        if place < 0 or self.times[place] <= after_ms:
            return None
        value = self.values[place]
        is_marker = value != value and struct.pack("<d", value) == _STALE
        return None if is_marker else (self.times[place], value)

    def window(self, after_ms: int, until_ms: int) -> tuple[Times, Values]:
        """Return the samples within (after, until], without markers."""
        low, high = (bisect_right(self.times, at_ms) for at_ms in (after_ms, until_ms))
        times, values = np.array(self.times[low:high]), np.array(self.values[low:high])
        is_sample = values.view(np.uint64) != np.frombuffer(_STALE, np.uint64)
        return times[is_sample], values[is_sample]


class SeriesHead:
    """All series, by name of metric and label set."""

    def __init__(self, retention_ms: int = RETENTION_MS) -> None:
        self._by_name: dict[str, dict[Labels, SeriesColumns]] = {}
        self._retention_ms = retention_ms

    def append(self, labels: Labels, time_ms: int, value: float) -> None:
        """Add one sample; ``labels`` carry the metric's name."""
        family = self._by_name.setdefault(label(labels, NAME), {})
        columns = family.get(labels)
        if columns is None:
            columns = family[labels] = SeriesColumns()
        columns.append(time_ms, value)

    def select(
        self, name: str | None, matchers: Iterable[Matcher]
    ) -> Iterator[tuple[Labels, SeriesColumns]]:
        """Yield the series that match; raises ``BadData`` for a bad expression."""
        tests = [(matcher.label, _test(matcher)) for matcher in matchers]
        families = self._by_name.values() if name is None else [self._by_name.get(name, {})]
        for family in families:
            for labels, columns in family.items():
                if all(test(label(labels, key)) for key, test in tests):
                    yield labels, columns

    def series(
        self, selections: Sequence[tuple[str | None, Iterable[Matcher]]], since_ms: int, to_ms: int
    ) -> list[Labels]:
        """Return the label sets that any selection matches with a sample between two times."""
        return list(
            {
                labels: None
                for name, matchers in selections
                for labels, columns in self.select(name, matchers)
                if columns.times and columns.times[0] <= to_ms and columns.times[-1] >= since_ms
            }
        )

    def forget(self, now_ms: int) -> None:
        """Drop what retention has passed."""
        for name, family in list(self._by_name.items()):
            for labels, columns in list(family.items()):
                columns.forget(now_ms - self._retention_ms)
                if not columns.times:
                    del family[labels]
            if not family:
                del self._by_name[name]


def _test(matcher: Matcher) -> Callable[[str], bool]:
    """Return what a label's value must pass; raises ``BadData``."""
    text, is_negative = matcher.value, matcher.op.startswith("!")
    if matcher.op in ("=", "!="):
        return lambda value: (value == text) is not is_negative
    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    try:
        matches = re2.compile(text, options).fullmatch
    except re2.error as error:
        raise BadData(f"error parsing regexp: {error}") from None
    return lambda value: (matches(value) is None) is is_negative
