"""Answers as readings: rows sorted out by namespace, with the time of every sample.

Pure. prometheus-adapter's reading rules are kept (the last sample of an object wins, of a node
the first). What a query over several namespaces cannot tell for one of them is marked in
``AnswerRows`` (``duplicated``, ``nameless``), never guessed.
"""

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field

from podscale.feed.decoding.wire import InstantAnswer
from podscale.feed.plan import KeyLabels, QueryPlan, Reading
from podscale.feed.prover.verdict import Default

K = TypeVar("K")

# Prometheus stamps an instant answer with the evaluation time, which says nothing of the sample.
# Other servers send the sample's own time: one that differs is taken for it.
SAME_TIME_S = 0.0015
AHEAD_S = 3600.0  # a time further in the future than this is no time

# (namespace, object) -> time of its newest sample, from a second query over ``timestamp()``.
Stamps = Mapping[tuple[str, str], float]


class AnswerRows(Struct):
    """Rows of one namespace while they are collected."""

    asked_s: float
    values: "array[float]" = field(default_factory=lambda: array("d"))
    objects: dict[str, int] = field(default_factory=dict)
    containers: dict[tuple[str, str], int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # object of each row; "" for external
    labels: list[dict[str, str]] = field(default_factory=list)
    duplicated: set[str] = field(default_factory=set)  # objects with several unequal values
    times: dict[int, float] = field(default_factory=dict)  # row -> the time that came with it
    stamps: dict[str, float] | None = None  # object -> time by the second query; None: not asked
    is_scalar: bool = False
    nameless: int = 0  # rows left out because they carry no object label
    is_by_name: bool = False  # the query named its objects

    def append(self, value: float, time_s: float) -> None:
        """Take in one sample as stamped by the source."""
        if abs(time_s - self.asked_s) > SAME_TIME_S:
            self.times[len(self.values)] = time_s
        self.values.append(value)

    def extend(self, other: "AnswerRows") -> None:
        """Take in the rows of another batch, of other objects in the same namespace."""
        shift = len(self.values)
        self.values += other.values
        self.names += other.names
        self.labels.extend(other.labels)
        self.objects |= {name: row + shift for name, row in other.objects.items()}
        self.containers |= {key: row + shift for key, row in other.containers.items()}
        self.times |= {row + shift: time_s for row, time_s in other.times.items()}
        self.duplicated |= other.duplicated
        if self.stamps is not None and other.stamps is not None:
            self.stamps |= other.stamps
        else:
            self.stamps = None
        self.nameless += other.nameless


def stamps_of(answer: InstantAnswer, labels: KeyLabels) -> Stamps:
    """Return the newest sample's time of each key."""
    return {
        (metric.get(labels.namespace, ""), metric.get(labels.object, "")): value
        for metric, value in zip(answer.metrics, answer.values, strict=True)
    }


class Collector:
    """Sorts an answer's rows out by namespace; fed in pages, so that the loop can run between."""

    def __init__(
        self,
        plan: QueryPlan,
        asked_s: float,
        namespaces: Iterable[str],
        *,
        carries_namespace: bool,
        is_by_name: bool = False,
    ) -> None:
        self._plan = plan
        self._drops_label = plan.api == "external" and not carries_namespace
        # A namespace of which no row comes is known to have none.
        self.rows = {
            namespace: AnswerRows(asked_s, is_by_name=is_by_name) for namespace in namespaces
        }

    def add(self, page: InstantAnswer) -> None:
        """Take in the rows of a batch."""
        label = self._plan.labels.namespace
        for metric, value, time_s in zip(page.metrics, page.values, page.times, strict=True):
            rows = self.rows.get(metric.get(label, "") if label else "")
            if rows is not None:
                if self._drops_label:
                    metric.pop(label, None)
                _add(rows, metric, value, time_s, self._plan)

    def expect_stamps(self) -> None:
        """Take every object for stale until ``stamp`` brings the time of its sample."""
        for rows in self.rows.values():
            rows.stamps = {}

    def stamp(self, stamps: Stamps) -> None:
        """Take in the times of some samples."""
        for (namespace, name), time_s in stamps.items():
            found = self.rows.get(namespace)
            if found is not None and found.stamps is not None:
                found.stamps[name] = time_s


def add_own(rows: AnswerRows, page: InstantAnswer, plan: QueryPlan) -> None:
    """Take in rows of a request's own query. As upstream, only the object label is looked at:
    whatever namespace label the rows carry, the query was for this one.
    """
    for metric, value, time_s in zip(page.metrics, page.values, page.times, strict=True):
        _add(rows, metric, value, time_s, plan)
    rows.is_scalar = page.kind == "scalar"


def own_at_once(answer: InstantAnswer, asked_s: float) -> AnswerRows | None:
    """Return what ``add_own`` makes of an external answer without looking at each of its rows;
    ``None``: some have times of their own.
    """
    if len(answer.times) and np.abs(np.array(answer.times) - asked_s).max() > SAME_TIME_S:
        return None
    return AnswerRows(
        asked_s,
        array("d", answer.values),
        names=[""] * len(answer.values),
        labels=list(answer.metrics),
        is_scalar=answer.kind == "scalar",
    )


def reading(
    rows: AnswerRows, plan: QueryPlan, max_sample_age_s: float, default: Default | None = None
) -> Reading:
    """Return what is served: stale rows apart, times filled in, the default applied."""
    values: Sequence[float] = rows.values
    labels: Sequence[Mapping[str, str]] = rows.labels
    times, stale, kept = _ages(rows, max_sample_age_s)
    if kept is not None:
        values = [values[row] for row in kept]
        labels = [labels[row] for row in kept] if labels else []
    if plan.api == "external" and default is not None and _is_default_due(rows, default):
        values, labels, times = [*values, default.value], [*labels, {}], [*times, math.nan]
    moved = None if kept is None else {row: place for place, row in enumerate(kept)}
    return Reading(
        asked_s=rows.asked_s,
        values=np.array(values, dtype=np.float64),
        time_s=np.array(times, dtype=np.float64),
        objects=_moved(rows.objects, moved),
        containers=_moved(rows.containers, moved),
        labels=tuple(labels),  # the rows may still grow
        is_scalar=rows.is_scalar,
        stale=stale,
        nameless=rows.nameless,
        is_by_name=rows.is_by_name,
    )


def _add(
    rows: AnswerRows, metric: dict[str, str], value: float, time_s: float, plan: QueryPlan
) -> None:
    row = len(rows.values)
    if plan.api == "external":
        rows.names.append("")
        rows.labels.append(metric)
        rows.append(value, time_s)
        return
    name = metric.get(plan.labels.object, "")
    if not name:
        rows.nameless += 1  # an absent label reads as "": never an object
        return
    rows.names.append(name)
    rows.append(value, time_s)
    if plan.labels.container:
        key = (name, metric.get(plan.labels.container, ""))
        known = rows.containers.get(key)
        rows.containers[key] = row
        rows.objects.setdefault(name, row)
    else:
        known = rows.objects.get(name)
        if known is None or plan.api != "node":
            rows.objects[name] = row
    if known is not None and not _is_same(rows.values[known], value):
        rows.duplicated.add(name)


def _ages(
    rows: AnswerRows, max_sample_age_s: float
) -> tuple[Sequence[float], dict[str, float], list[int] | None]:
    """Return the time of each kept row, the stale objects, and the rows kept (None: all)."""
    if rows.stamps is None:
        # In bulk: an external answer may have 100,000 rows, and the loop waits for us.
        unknown = array("d", (math.nan,)) * len(rows.values)
        for row, time_s in rows.times.items():
            unknown[row] = time_s
        return unknown, {}, None
    # Rows of external metrics have no object, and one time for them all.
    time_s = rows.stamps.get("", -math.inf)
    is_fresh = time_s >= 0.0 and -AHEAD_S <= rows.asked_s - time_s <= max_sample_age_s
    if not rows.objects and is_fresh:
        return array("d", (rows.stamps[""],)) * len(rows.values), {}, None
    times: list[float] = []
    stale: dict[str, float] = {}
    kept: list[int] = []
    for row, name in enumerate(rows.names):
        # One without a time has a value but no sample now: its target has gone, and the value
        # is of what its window still holds.
        time_s = rows.stamps.get(name, -math.inf)
        age_s = rows.asked_s - time_s
        if not (time_s >= 0.0 and -AHEAD_S <= age_s <= max_sample_age_s):
            stale[name] = age_s
        else:
            kept.append(row)
            times.append(time_s)
    return times, stale, kept if stale else None


def _is_default_due(rows: AnswerRows, default: Default) -> bool:
    if default.when == "no sample":
        return not rows.labels
    # The default is a row without labels, and PromQL's ``or`` adds it where there is none such.
    # Lengths are compared first, since there may be 100,000 rows.
    return not any(len(labels) < 2 and set(labels) <= {"__name__"} for labels in rows.labels)


def _moved(index: dict[K, int], moved: Mapping[int, int] | None) -> dict[K, int]:
    if moved is None:
        return index
    return {key: moved[row] for key, row in index.items() if row in moved}


def _is_same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)
