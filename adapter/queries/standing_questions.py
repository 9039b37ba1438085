"""The questions of autoscalers, which come again every period, and what was made of them before.

A question about pods is prepared again when its pods or its query change; what is asked of one
namespace is joined once for all who ask, and comes out of a snapshot together, as columns.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from adapter.discovery.objects import WatchedObjects
from adapter.queries import readings, values
from adapter.queries.readings import Origin
from podscale.core.metrics import Answer, PodMetric, PodSamples
from podscale.core.samplecolumns import SampleColumns
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import Selector
from podscale.feed.plan import Demand, Outcome, QueryPlan, Reading
from podscale.kube.columns.cohorts import Version

_TIMES = 4  # what was not asked for while everything else was so often grows older
_FEW = 1000
_BYTES = 8  # of a value, and of a time
_LARGEST_SUM = 2**63 - 1

K = TypeVar("K")
V = TypeVar("V")


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


class _Listed(Struct, eq=False, gc=False):
    """The pods of one selector in one namespace."""

    names: tuple[str, ...]  # sorted
    version: Version  # of these pods in the store
    changed: int  # of the namespace, when ``version`` was looked at last


class StandingQuestion(Struct, frozen=True, eq=False, gc=False):
    """One question as it was prepared last."""

    plan: QueryPlan
    origin: Origin
    listed: _Listed


class Joined(Struct, eq=False, gc=False):
    """What is asked of one plan in one namespace, for all who ask together."""

    members: tuple[StandingQuestion, ...]
    demand: Demand
    objects: Mapping[str, int] | None = None  # of the reading that the rest is for
    rows: NDArray[np.int32] | None = None  # the members' one after the other
    starts: NDArray[np.intp] | None = None  # where they begin; None: one of them has none
    reported: tuple[tuple[str, ...], ...] = ()  # the pods of each member that have a row

    def answers(self, outcome: Outcome) -> list[Answer]:
        """Return the answer of each member."""
        if not isinstance(outcome, Reading):
            return [outcome] * len(self.members)
        if self.objects is not outcome.objects or self.rows is None:
            self._lay_out(outcome.objects)
        milli = None if outcome.stale else values.all_milli(outcome.values[self.rows])
        if milli is None or not len(milli):
            return [
                readings.or_nothing(readings.pods(outcome, each.listed.names, each.origin))
                for each in self.members
            ]
        numbers, asked_s = milli.tobytes(), outcome.asked_s
        stamps = outcome.time_s[self.rows]
        # One for them all where one target exports them, or where none is known: NaN, as bits.
        is_one = bool((stamps.view(np.int64) == stamps[:1].view(np.int64)).all())
        times = (stamps[:1] if is_one else stamps).tobytes()
        totals, oldest = self._totals(milli), self._oldest(stamps, is_one=is_one)
        found: list[Answer] = []
        start = 0
        for member, names, total, oldest_s in zip(
            self.members, self.reported, totals, oldest, strict=True
        ):
            columns = SampleColumns(
                names, numbers, times, member.origin.window_s, total, oldest_s, start
            )
            answer = PodSamples(columns, asked_s)
            found.append(answer if names else readings.or_nothing(answer))
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
            names = member.listed.names
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


class Standings:
    """Everything prepared."""

    def __init__(self, objects: WatchedObjects) -> None:
        self._objects = objects
        self._known: _Aging[PodMetric, StandingQuestion] = _Aging()
        self._listed: _Aging[tuple[str, str], _Listed] = _Aging()
        self._joined: _Aging[tuple[QueryPlan, str], Joined] = _Aging()
        self._names: _Aging[str, tuple[str, ...]] = _Aging()  # by namespace, as asked last
        self._asked = 0  # in this generation

    def grow_older(self) -> None:
        """Forget what is not asked for any more; between two batches of questions.

        All grow older together, by how often ``of`` is called: of what its answers are joined to
        there is a tenth, and with every kind of question counted it would not last a round.
        """
        if self._asked > _TIMES * len(self._known) + _FEW:
            self._asked = 0
            for each in (self._known, self._listed, self._joined, self._names):
                each.grow_older()

    def of(
        self, question: PodMetric, plan: QueryPlan, origin: Origin, changed: int
    ) -> StandingQuestion | None:
        """Return the question as it stands; ``None``: it has no pods. ``changed`` is that of its
        namespace's pods now.

        Raises ``SelectorError`` for a selector that is none.
        """
        self._asked += 1
        found = self._known.get(question)
        if found is not None and found.plan is plan and found.listed.changed == changed:
            return found
        listed = self._pods(question.namespace, question.selector, changed)
        if listed is None:
            return None
        if found is None or found.listed is not listed or found.plan is not plan:
            found = StandingQuestion(plan, origin, listed)
            self._known.put(question, found)
        return found

    def joined(
        self, plan: QueryPlan, namespace: str, members: Iterable[StandingQuestion]
    ) -> Joined:
        """Return what is to be asked for ``members``, the same as before while they are."""
        members = tuple(members)
        known = self._objects.count(namespace)
        found = self._joined.get((plan, namespace))
        if found is None or found.members != members:
            names = set(chain.from_iterable(each.listed.names for each in members))
            demand = Demand(plan, namespace, self._shared(namespace, tuple(sorted(names))), known)
            found = Joined(members, demand)
            self._joined.put((plan, namespace), found)
        elif found.demand.known != known:
            found.demand = Demand(plan, namespace, found.demand.names, known)
        return found

    def _shared(self, namespace: str, names: tuple[str, ...]) -> tuple[str, ...]:
        # Several metrics are asked of the same pods.
        found = self._names.get(namespace)
        if found != names:
            self._names.put(namespace, found := names)
        return found

    def _pods(self, namespace: str, selector: str, changed: int) -> _Listed | None:
        found = self._listed.get((namespace, selector))
        if found is not None and found.changed == changed:
            return found
        before = None if found is None else found.version
        version = self._objects.unchanged(namespace, lambda: parse(selector), before)
        if found is None or version is not before:
            names = self._objects.names_at(version)
            if not names:
                return None
            found = _Listed(names, version, changed)
            self._listed.put((namespace, selector), found)
        found.changed = changed
        return found


def parse(text: str) -> Selector:
    """Return the selector; raises ``SelectorError``."""
    return selectors.parse(text) if text else Selector()
