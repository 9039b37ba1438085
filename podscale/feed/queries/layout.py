"""Where the rows of a batch's answer belong, remembered while its labels stay the same.

A steady batch brings the same label sets in the same order every time: 400,000 of them a
round at ten thousand autoscalers. They are then neither decoded nor sorted out again; values
and times go to their namespaces by index. Whatever is out of the ordinary (duplicates, stale
samples, rows without object) is left to ``answer_rows``, which marks it.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from podscale.feed.decoding.wire import PAGE_ROWS, InstantAnswer
from podscale.feed.plan import QueryPlan, Reading
from podscale.feed.queries.answer_rows import AHEAD_S, SAME_TIME_S, AnswerRows

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
    """The places of one batch's rows."""

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
        """Return what each namespace is served; ``None``: only ``snapshot`` can tell."""
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
    """Return the layout of an answer that ``snapshot`` sorted into ``rows``, if it is plain.

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
