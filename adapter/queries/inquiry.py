"""A question on its way through the feed: what to ask, and what to make of the answer.

The questions of autoscalers come again every period. What is asked of the pods of one namespace
is joined for all who ask, prepared again when pods or query change, and comes out of a snapshot
together, as columns.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from adapter.discovery.objects import WatchedObjects
from adapter.queries import readings
from adapter.queries.readings import Origin
from podscale.core.metrics import Answer, Failure, PodSamples
from podscale.core.pace import LoopPace
from podscale.core.samplecolumns import SampleColumns
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import Selector
from podscale.feed.plan import Demand, Outcome, QueryPlan, Reading
from podscale.feed.source_routing import DemandReader
from podscale.kube.columns.cohorts import Version

_TIMES = 4  # what was not asked for while everything else was so often grows older
_FEW = 1000
_BYTES = 8  # of a value, and of a time
_LARGEST_SUM = 2**63 - 1

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")


class Inquiry(Struct, Generic[T_co], frozen=True):
    """Demands, and the function that reads their outcomes (in the same order): in one turn of the
    loop, or, awaited, in several.
    """

    demands: tuple[Demand, ...]
    finish: Callable[[Sequence[Outcome]], T_co | Awaitable[T_co]]


def _as_it_is(_demand: Demand, _outcome: Outcome, answer: T) -> T:
    return answer


async def ask(
    feed: DemandReader,
    inquiries: Sequence[Inquiry[T] | Failure],
    amend: Callable[[Demand, Outcome, T], T] = _as_it_is,
) -> list[T | Failure]:
    """Return the answers of all inquiries with one read of the feed.

    Demands of one asker for the same plan and namespace become one for all their objects, so that
    thousands of questions are few demands. ``amend`` is given each answer with the first of its
    demands (what was asked for; another tells what is there) and the outcome of that.
    """
    merged: dict[tuple[object, str, str], list[Demand]] = {}
    for inquiry in inquiries:
        if isinstance(inquiry, Inquiry):
            for demand in inquiry.demands:
                merged.setdefault(_key(demand), []).append(demand)
    outcomes = await feed.read([_union(demands) for demands in merged.values()])
    by_key = dict(zip(merged, outcomes, strict=True))
    answers: list[T | Failure] = []
    pace = LoopPace()
    for inquiry in inquiries:
        await pace.rest()
        if not isinstance(inquiry, Inquiry):
            answers.append(inquiry)
            continue
        found = [by_key[_key(demand)] for demand in inquiry.demands]
        answer = inquiry.finish(found)
        if isinstance(answer, Awaitable):
            answers.append(await answer)
        else:
            answers.append(amend(inquiry.demands[0], found[0], answer))
    return answers


def _key(demand: Demand) -> tuple[object, str, str]:
    return demand.plan.key, demand.namespace, demand.asker


def _union(demands: Sequence[Demand]) -> Demand:
    first = demands[0]
    if all(d.names == first.names for d in demands):
        return first
    names = sorted({name for demand in demands for name in demand.names})
    known = max((d.known for d in demands if d.known is not None), default=None)
    return structs.replace(first, names=tuple(names), known=known)


class PodsOfSelector(Struct, eq=False, gc=False):
    """The pods of one selector in one namespace."""

    names: tuple[str, ...]  # sorted
    version: Version  # of these pods in the store
    changed: int  # of the namespace, when ``version`` was looked at last


class Joined(Struct, eq=False, gc=False):
    """What is asked of one plan in one namespace, for all who ask together."""

    members: tuple[PodsOfSelector, ...]
    origin: Origin
    demand: Demand
    objects: Mapping[str, int] | None = None  # of the reading that the rest is for
    rows: NDArray[np.int32] | None = None  # the members' one after the other
    starts: NDArray[np.intp] | None = None  # where they begin; None: one of them has none
    reported: tuple[tuple[str, ...], ...] = ()  # the pods of each member that have a row

    @property
    def inquiry(self) -> Inquiry[list[Answer]]:
        return Inquiry((self.demand,), lambda got: self.answers(got[0]))

    def answers(self, outcome: Outcome) -> list[Answer]:
        """Return the answer of each member."""
        if not isinstance(outcome, Reading):
            return [outcome] * len(self.members)
        if self.objects is not outcome.objects or self.rows is None:
            self._lay_out(outcome.objects)
        milli = None if outcome.stale else readings.all_milli(outcome.values[self.rows])
        if milli is None or not len(milli):
            return [readings.pods(outcome, each.names, self.origin) for each in self.members]
        numbers, asked_s = milli.tobytes(), outcome.asked_s
        stamps = outcome.time_s[self.rows]
        # One for them all where one target exports them, or where none is known: NaN, as bits.
        is_one = bool((stamps.view(np.int64) == stamps[:1].view(np.int64)).all())
        times = (stamps[:1] if is_one else stamps).tobytes()
        totals, oldest = self._totals(milli), self._oldest(stamps, is_one=is_one)
        found: list[Answer] = []
        start = 0
        window_s = self.origin.window_s
        for names, total, oldest_s in zip(self.reported, totals, oldest, strict=True):
            columns = SampleColumns(names, numbers, times, window_s, total, oldest_s, start)
            found.append(PodSamples(columns, asked_s))
            start += _BYTES * len(names)
        return found

    def _totals(self, milli: NDArray[np.int64]) -> Sequence[int | None]:
        """Return the sum of each member's values; None: not known without a look at each."""
        if self.starts is None or int(np.abs(milli).max()) > _LARGEST_SUM // len(milli):
            return [None] * len(self.members)
        found: list[int] = np.add.reduceat(milli, self.starts).tolist()
        return found

    def _oldest(self, stamps: NDArray[np.float64], *, is_one: bool) -> Sequence[float | None]:
        """Return the oldest time of each member; None: not known without a look at each."""
        if is_one:
            return [float(stamps[0])] * len(self.members)
        if self.starts is None:
            return [None] * len(self.members)
        found: list[float] = np.fmin.reduceat(stamps, self.starts).tolist()
        return found

    def _lay_out(self, objects: Mapping[str, int]) -> None:
        rows: list[int] = []
        starts: list[int] = []
        reported: list[tuple[str, ...]] = []
        for member in self.members:
            names = member.names
            starts.append(len(rows))
            try:
                rows += [objects[name] for name in names]
            except KeyError:  # some are silent
                names = tuple(name for name in names if name in objects)
                rows += [objects[name] for name in names]
            reported.append(names)
        self.objects, self.rows, self.reported = objects, np.array(rows, np.int32), tuple(reported)
        # Of an empty stretch ``reduceat`` returns the value at its start, not 0.
        self.starts = np.array(starts, np.intp) if all(reported) else None


class _Aging(Generic[K, V]):
    """A dict that forgets what has not been looked up for two generations."""

    def __init__(self) -> None:
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __len__(self) -> int:
        return len(self._young)  # what this generation has looked up

    def get(self, key: K) -> V | None:
        found = self._young.get(key)
        if found is None and (found := self._old.pop(key, None)) is not None:
            self._young[key] = found
        return found

    def put(self, key: K, value: V) -> None:
        self._young[key] = value

    def grow_older(self) -> None:
        self._old, self._young = self._young, {}


class JoinedQuestions:
    """Everything prepared."""

    def __init__(self, objects: WatchedObjects) -> None:
        self._objects = objects
        self._pods: _Aging[tuple[str, str], PodsOfSelector] = _Aging()
        self._joined: _Aging[tuple[QueryPlan, str], Joined] = _Aging()
        self._asked = 0  # in this generation

    def grow_older(self) -> None:
        """Forget what is not asked for any more; between two batches of questions.

        Both grow older together, by how often ``joined`` is called: with every kind of question
        counted, what is joined would not last a round.
        """
        if self._asked > _TIMES * len(self._joined) + _FEW:
            self._asked = 0
            self._pods.grow_older()
            self._joined.grow_older()

    def pods(self, namespace: str, selector: str) -> PodsOfSelector | None:
        """Return the pods that match; ``None``: there are none.

        Raises ``SelectorError`` for a selector that is none.
        """
        found = self._pods.get((namespace, selector))
        changed = self._objects.changed(namespace)
        if found is not None and found.changed == changed:
            return found
        before = None if found is None else found.version
        version = self._objects.unchanged(namespace, lambda: parse(selector), before)
        if found is None or version is not before:
            names = self._objects.names_at(version)
            if not names:
                return None
            found = PodsOfSelector(names, version, changed)
            self._pods.put((namespace, selector), found)
        found.changed = changed
        return found

    def joined(
        self, plan: QueryPlan, origin: Origin, namespace: str, members: Sequence[PodsOfSelector]
    ) -> Joined:
        """Return what is to be asked for ``members``, the same as before while they are."""
        self._asked += 1
        members = tuple(members)
        known = self._objects.count(namespace)
        found = self._joined.get((plan, namespace))
        if found is None or found.members != members:
            names = set(chain.from_iterable(each.names for each in members))
            demand = Demand(plan, namespace, tuple(sorted(names)), known)
            found = Joined(members, origin, demand)
            self._joined.put((plan, namespace), found)
        elif found.demand.known != known:
            found.demand = structs.replace(found.demand, known=known)
        return found


def parse(text: str) -> Selector:
    """Return the selector; raises ``SelectorError``."""
    return selectors.parse(text) if text else Selector()
