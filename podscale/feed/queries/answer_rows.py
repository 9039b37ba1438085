"""Answers as readings: rows sorted out by namespace, with the time of every sample.

Pure. prometheus-adapter's reading rules are kept (the last sample of an object wins, of a node
the first). What a query over several namespaces cannot tell for one of them is marked in
``AnswerRows`` (``duplicated``, ``nameless``), never guessed.

A steady batch brings the same label sets in the same order every time: 400,000 of them a round at
ten thousand autoscalers. Where their rows belong is remembered (``RowLayout``): they are then
neither decoded nor sorted out again. Whatever is out of the ordinary (duplicates, stale samples,
rows without object) is left to ``AnswerRows``, which marks it.
"""

import math
from array import array
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from podscale.feed.decoding.wire import PAGE_ROWS, InstantAnswer, LabelSets
from podscale.feed.plan import KeyLabels, QueryPlan, Reading
from podscale.feed.prover.proof import Default

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
    labels: LabelSets = field(default_factory=LabelSets)
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
        labels=LabelSets.of(answer.metrics),
        is_scalar=answer.kind == "scalar",
    )


def reading(
    rows: AnswerRows, plan: QueryPlan, max_sample_age_s: float, default: Default | None = None
) -> Reading:
    """Return what is served: stale rows apart, times filled in, the default applied."""
    values: Sequence[float] = rows.values
    labels: Sequence[dict[str, str]] = rows.labels
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
        # Few ones are copied: the rows may still grow.
        labels=labels if len(labels) > LabelSets.MOST_FREED else tuple(labels),
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


Index = NDArray[np.int32]
Share = Callable[[str, Mapping[str, int]], Mapping[str, int]]


class NamespaceRows(Struct, frozen=True, eq=False):
    """One namespace's part of an answer."""

    namespace: str
    rows: Index  # of the answer
    stamps: Index  # of the answer with the times, one for each of ``rows``
    objects: Mapping[str, int]
    containers: Mapping[tuple[str, str], int]


class RowLayout(Struct, frozen=True, eq=False):
    labels: bytes  # digest of the answer's labels
    stamps: bytes | None  # and of those of the times; None: they are not asked for
    places: tuple[NamespaceRows, ...]
    is_by_name: bool

    def readings(
        self,
        answer: InstantAnswer,
        stamps: InstantAnswer | None,
        asked_s: float,
        max_sample_age_s: float,
    ) -> list[tuple[str, Reading]] | None:
        """Return what each namespace is served; ``None``: only ``reading`` can tell."""
        if answer.digest != self.labels or (stamps and stamps.digest) != self.stamps:
            return None
        values = np.array(answer.values, dtype=np.float64)
        if len(values) and np.abs(np.array(answer.times) - asked_s).max() > SAME_TIME_S:
            return None
        times = np.full(len(values), np.nan)
        if stamps is not None:
            times = np.array(stamps.values, dtype=np.float64)
            oldest_s = max(0.0, asked_s - max_sample_age_s)
            if len(times) and not (times.min() >= oldest_s and times.max() <= asked_s + AHEAD_S):
                return None
        return [
            (
                place.namespace,
                Reading(
                    asked_s=asked_s,
                    values=values[place.rows],
                    time_s=times[place.stamps],
                    objects=place.objects,
                    containers=place.containers,
                    labels=(),
                    is_by_name=self.is_by_name,
                ),
            )
            for place in self.places
        ]


def laying_out(
    answer: InstantAnswer,
    stamps: InstantAnswer | None,
    plan: QueryPlan,
    rows: Mapping[str, AnswerRows],
    metrics: Sequence[Mapping[str, str]],
    stamp_metrics: Sequence[Mapping[str, str]],
    wanted: Callable[[str], Iterable[str]] = lambda _namespace: (),
    shared: Share = lambda _namespace, index: index,
) -> Generator[None, None, RowLayout | None]:
    """Return the layout of an answer that was sorted into ``rows``, if it is plain.

    ``metrics`` and ``stamp_metrics`` are the label sets of the two answers; ``wanted`` are
    the objects asked for in a namespace, whose names are then kept once, and ``shared`` returns
    an equal index of a namespace, if there is one. Yields wherever others may run; the rows must
    not grow meanwhile.
    """
    if plan.api == "external" or answer.digest is None:
        return None
    if not all(_is_plain(each, plan) for each in rows.values()):
        return None
    namespace, name = plan.labels.namespace, plan.labels.object
    numbers: dict[str, list[int]] = {each: [] for each in rows}
    for number, metric in enumerate(metrics):
        if not number % PAGE_ROWS:
            yield
        found = numbers.get(metric.get(namespace, "") if namespace else "")
        if found is not None:
            found.append(number)
    stamped: dict[tuple[str, str], int] = {}
    for number, metric in enumerate(stamp_metrics):
        if not number % PAGE_ROWS:
            yield
        stamped[metric.get(namespace, ""), metric.get(name, "")] = number
    places = []
    for scope, mine in rows.items():
        yield
        here = numbers[scope]
        if len(here) != len(mine.names):
            return None
        times = here
        if stamps is not None:
            times = [stamped.get((scope, each), -1) for each in mine.names]
            if -1 in times:
                return None
        known = {each: each for each in wanted(scope)}
        placed = np.array(here, dtype=np.int32)
        places.append(
            NamespaceRows(
                scope,
                placed,
                # Mostly both answers are in one order.
                placed if times == here else np.array(times, dtype=np.int32),
                # Copies: rows of other batches may still join these.
                shared(scope, {known.get(each, each): row for each, row in mine.objects.items()}),
                dict(mine.containers),
            )
        )
    is_by_name = any(each.is_by_name for each in rows.values())
    times_digest = None if stamps is None else stamps.digest
    return RowLayout(answer.digest, times_digest, tuple(places), is_by_name)


def _is_plain(rows: AnswerRows, plan: QueryPlan) -> bool:
    index = rows.containers if plan.labels.container else rows.objects
    return len(index) == len(rows.names) and not rows.times and not rows.nameless
