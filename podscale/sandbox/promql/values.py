"""What PromQL evaluates to, and why a query has no answer, in the words of Prometheus's API.

PromqlError
├── BadData      400: the query or a parameter is wrong
└── Unanswerable 422: this query on this data, or a construct that the stand-in does not know
"""

from collections.abc import Collection, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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
    """One element of an instant vector; ``time_ms`` is when it was scraped or evaluated."""

    labels: Labels
    value: float
    time_ms: int


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
