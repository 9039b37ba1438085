"""What expressions of PromQL evaluate to, and label sets as sorted pairs."""

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

NAME = "__name__"
# Prometheus drops these together wherever a function changes what a value means.
_METADATA = frozenset({NAME, "__type__", "__unit__"})

Labels = tuple[tuple[str, str], ...]  # sorted by name; an empty value is no label
Times = NDArray[np.int64]  # milliseconds since 1970
Values = NDArray[np.float64]


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
Matrix = list[Window]
Value = float | str | Vector


def label_set(pairs: Mapping[str, str] | Iterable[tuple[str, str]]) -> Labels:
    """Return labels in their one form."""
    found = pairs.items() if isinstance(pairs, Mapping) else pairs
    return tuple(sorted((name, value) for name, value in found if value))


def label(labels: Labels, wanted: str) -> str:
    """Return a label's value; empty where there is none."""
    return next((value for name, value in labels if name == wanted), "")


def nameless(labels: Labels) -> Labels:
    """Return labels without the metric's name."""
    return tuple(pair for pair in labels if pair[0] not in _METADATA)


def only(labels: Labels, names: Collection[str]) -> Labels:
    return tuple(pair for pair in labels if pair[0] in names)


def without(labels: Labels, names: Collection[str]) -> Labels:
    """Return all other labels, without the metric's name."""
    return tuple(pair for pair in nameless(labels) if pair[0] not in names)


def shown(labels: Labels) -> str:
    """Return labels as Prometheus writes them in messages."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels) + "}"
