"""What the feed remembers of one plan: who wanted what, what was read, what went wrong.

No I/O and no clock: ``now_s`` is unix seconds. A group lives while somebody wants its plan.
What goes into one query: a *wide* batch reads all objects of its namespaces, a
*named* one those of a union of names. Both list their namespaces; cluster-scoped plans have the
one namespace ``""``.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field

from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand, QueryPlan, Reading
from podscale.feed.prover.proof import Verdict, Widened, prove
from podscale.feed.queries.answer_rows import RowLayout, Share

# A wide query costs half as much per series as a named one, so it may read some in vain.
WIDE_FACTOR = 3


class BatchLimits(Struct, frozen=True):
    """How much one query may hold."""

    series: int = 1000
    namespaces: int = 100
    names: int = 200
    text: int = 8 * 1024  # bytes aimed at
    hard_text: int = 16_000  # bytes beyond which one namespace's names are split


GET_LIMITS = BatchLimits(text=2048, hard_text=2048)


class Shape(Struct, frozen=True):
    """What a plan's text costs: it repeats its values once per bound selector."""

    static: int
    per_namespace: int = 0  # selectors that list the namespaces
    per_name: int = 0  # selectors that list the names

    def namespace_cost(self, namespace: str) -> int:
        """Return the bytes that one more namespace adds."""
        return self.per_namespace * (len(namespace) + 1)

    def name_cost(self, name: str) -> int:
        """Return the bytes that one more name adds."""
        return self.per_name * (len(name) + 1)


class NamespaceRequest(Struct, frozen=True):
    namespace: str
    names: tuple[str, ...]  # sorted; empty: everything (wide)
    series: int  # expected


class Batch(Struct, frozen=True):
    namespaces: tuple[str, ...]
    names: tuple[str, ...] = ()  # empty: wide

    def halves(self) -> tuple["Batch", "Batch"] | None:
        """Return two smaller batches: of the namespaces, or where there is but the one of a
        cluster-scoped plan, of its names.
        """
        if len(self.namespaces) > 1:
            middle = len(self.namespaces) // 2
            return (
                Batch(self.namespaces[:middle], self.names),
                Batch(self.namespaces[middle:], self.names),
            )
        if self.namespaces == ("",) and len(self.names) > 1:
            middle = len(self.names) // 2
            return Batch(("",), self.names[:middle]), Batch(("",), self.names[middle:])
        return None


def is_wide(wanted: int, known: int | None) -> bool:
    """Return whether to read all objects of a namespace rather than those wanted."""
    return known is not None and known <= WIDE_FACTOR * wanted


def pack(wants: Iterable[NamespaceRequest], shape: Shape, limits: BatchLimits) -> list[Batch]:
    """Return the batches that cover the wants, filled in order of namespaces.

    The same wants give the same batches. A namespace over a limit goes alone; only its
    names, where the text would pass the hard limit, are spread over several batches.
    """
    ordered = sorted(wants, key=lambda want: want.namespace)
    wide = [want for want in ordered if not want.names]
    named = [want for want in ordered if want.names]
    return [*_fill(wide, shape, limits), *_fill(named, shape, limits)]


def _fill(wants: Sequence[NamespaceRequest], shape: Shape, limits: BatchLimits) -> Iterator[Batch]:
    namespaces: list[str] = []
    names: set[str] = set()
    series, text = 0, shape.static
    for want in wants:
        fresh = [name for name in want.names if name not in names]
        cost = shape.namespace_cost(want.namespace) + sum(map(shape.name_cost, fresh))
        if namespaces and (
            series + want.series > limits.series
            or len(namespaces) >= limits.namespaces
            or len(names) + len(fresh) > limits.names
            or text + cost > limits.text
        ):
            yield from _split(namespaces, names, shape, limits)
            namespaces, names, fresh = [], set(), list(want.names)
            series, text = 0, shape.static
            cost = shape.namespace_cost(want.namespace) + sum(map(shape.name_cost, fresh))
        namespaces.append(want.namespace)
        names.update(fresh)
        series, text = series + want.series, text + cost
    if namespaces:
        yield from _split(namespaces, names, shape, limits)


def _split(
    namespaces: Sequence[str], names: set[str], shape: Shape, limits: BatchLimits
) -> Iterator[Batch]:
    room = limits.hard_text - shape.static - sum(map(shape.namespace_cost, namespaces))
    piece: list[str] = []
    used = 0
    for name in sorted(names):
        cost = shape.name_cost(name)
        if piece and used + cost > room:
            yield Batch(tuple(namespaces), tuple(piece))
            piece, used = [], 0
        piece.append(name)
        used += cost
    yield Batch(tuple(namespaces), tuple(piece))


EXCLUDED_S = 300.0
FORGET_EVERY_S = 1.0
FAILURES_TO_EXCLUDE = 3
VERIFIED_REQUESTS = 64  # of one namespace, whose texts were compared with the skeleton
_ONE_REQUEST_S = 5.0  # one that is answered later is refused by most clients
_GROUP_BYTES = 4_000
_TEXT_BYTES = 24  # of each character of a selector, in plan, proof and queries


class NamespaceRead(Struct, frozen=True, eq=False, gc=False):
    """A successful read of one namespace."""

    reading: Reading
    covered: frozenset[str] | None  # the names asked for; None: all
    # Objects whose rows differ: each takes its own query. One empty set for all who have none.
    duplicated: frozenset[str] = frozenset()

    def covers(self, names: Iterable[str]) -> bool:
        """Return whether the names were asked for, with or without result."""
        return self.covered is None or self.covered.issuperset(names)


class _Memory(Struct):
    last: Demand
    wanted_s: float  # when it came last
    older: dict[str, float] = field(default_factory=dict)  # name not in ``last`` -> wanted when
    oldest_s: float = 0.0  # none of ``older`` was wanted before
    verified: dict[tuple[str, ...], None] = field(default_factory=dict)  # names that fit the proof

    def __len__(self) -> int:
        return len(self.last.names) + len(self.older)

    def names(self) -> list[str]:
        return [*self.last.names, *self.older]

    def take(self, demand: Demand, now_s: float) -> None:
        """Note what is wanted now; costs what this and the last demand name, not all names."""
        if demand.names != self.last.names:
            older = self.older
            self.oldest_s = min(self.oldest_s, self.wanted_s) if older else self.wanted_s
            older.update(dict.fromkeys(self.last.names, self.wanted_s))
            for name in demand.names:
                older.pop(name, None)
            if len(older) * 4 < len(demand.names):
                self.older = dict(older)  # a dict keeps the room of what was in it
        self.last, self.wanted_s = demand, now_s

    def forget(self, oldest_s: float) -> bool:
        """Drop names that were last wanted before; return whether there were any."""
        if not self.older or self.oldest_s >= oldest_s:
            return False
        count = len(self.older)
        self.older = {name: at for name, at in self.older.items() if at >= oldest_s}
        self.oldest_s = min(self.older.values(), default=oldest_s)
        return len(self.older) < count


class QueryGroup:
    def __init__(
        self,
        plan: QueryPlan,
        options: FeedOptions,
        now_s: float,
        shared: Share = lambda _namespace, index: index,
    ) -> None:
        """``shared`` returns an equal index of a namespace's rows, if another plan has one."""
        self.plan = plan
        self.shared = shared
        self.options = options
        self.verdict: Verdict = prove(plan)
        self.shape = _shape(self.verdict)
        self.snapshots: dict[str, NamespaceRead] = {}
        self.layouts: dict[Batch, RowLayout] = {}
        self._packed: list[Batch] | None = None  # what ``batches`` gave, while it holds
        self.is_demoted = False  # Prometheus refuses its wide query
        self.wanted_s = self._made_s = now_s
        self._memories: dict[str, _Memory] = {}
        self._excluded: dict[str, float] = {}  # namespace -> until
        self._failures: dict[str, int] = {}
        self._forgot_s = now_s

    @property
    def came_back(self) -> bool:
        """Whether it was wanted again after the request that made it."""
        return self.wanted_s - self._made_s > _ONE_REQUEST_S

    @property
    def size(self) -> int:
        """Bytes that the plan and its proof take, about."""
        return _GROUP_BYTES + _TEXT_BYTES * sum(map(len, self.plan.matchers))

    @property
    def rows(self) -> int:
        """How many objects its snapshots hold."""
        return sum(len(snapshot.reading.objects) for snapshot in self.snapshots.values())

    def remember(self, demand: Demand, now_s: float) -> bool:
        """Note the demand; return whether batches may answer it (else its own query)."""
        self.wanted_s = now_s
        if self.is_demoted or not isinstance(self.verdict, Widened):
            return False
        until = self._excluded.get(demand.namespace)
        if until is not None:
            if now_s < until:
                return False
            del self._excluded[demand.namespace]
            self._packed = None
        memory = self._memories.get(demand.namespace)
        if memory is not None and memory.last is demand:
            memory.wanted_s = now_s
            return True
        verified = {} if memory is None else memory.verified
        if demand.names not in verified:
            try:
                if not self.verdict.skeleton.covers(demand.namespace, demand.names):
                    return False
            except ValueError:
                return False  # its own path meets the same error and reports it
            if len(verified) >= VERIFIED_REQUESTS:
                verified.clear()
            verified[demand.names] = None
        if memory is None:
            self._memories[demand.namespace] = _Memory(demand, now_s, verified=verified)
            self._packed = None
            return True
        before, was_all = len(memory), self._reads_all(len(memory), memory.last.known)
        memory.take(demand, now_s)
        is_all = self._reads_all(len(memory), demand.known)
        # Pods come and go all the time; what counts is how the namespace is read, and which of
        # its names where they are named.
        if is_all != was_all or (before != len(memory) and not is_all):
            self._packed = None
        return True

    def snapshot(self, demand: Demand, now_s: float) -> NamespaceRead | None:
        """Return the snapshot that may answer; "not asked for" never does."""
        last = self.snapshots.get(demand.namespace)
        if last is None or not is_fresh(last.reading.asked_s, now_s, self.options.max_age_s):
            return None
        return last if last.covers(demand.names) else None

    def batches(self, now_s: float, limits: BatchLimits) -> list[Batch]:
        """Return the queries that read all namespaces with demand; forget the others."""
        self._forget(now_s)
        if not isinstance(self.verdict, Widened):
            return []
        if self._packed is not None:
            return self._packed
        wants = [
            self._want(namespace, memory)
            for namespace, memory in self._memories.items()
            if namespace not in self._excluded
        ]
        self._packed = pack(wants, self.shape, limits)
        self.layouts = {each: self.layouts[each] for each in self._packed if each in self.layouts}
        return self._packed

    def wanted(self, namespace: str) -> Iterable[str]:
        memory = self._memories.get(namespace)
        return () if memory is None else memory.names()

    def succeeded(self, namespace: str, snapshot: NamespaceRead) -> None:
        self._failures.pop(namespace, None)
        before = self.snapshots.get(namespace)
        if (
            before is None
            or len(before.reading.values) != len(snapshot.reading.values)
            or before.covered != snapshot.covered
        ):
            self._packed = None  # what to expect has changed
        self.snapshots[namespace] = snapshot

    def failed(self, namespace: str, now_s: float) -> bool:
        """Count a failure of this namespace alone; return whether it is now excluded."""
        failures = self._failures.get(namespace, 0) + 1
        if failures < FAILURES_TO_EXCLUDE:
            self._failures[namespace] = failures
            return False
        self._failures.pop(namespace, None)
        self._excluded[namespace] = now_s + EXCLUDED_S
        self._packed = None
        return True

    def relisted(self) -> None:
        """Give a demoted plan another chance."""
        self.is_demoted = False

    def _reads_all(self, wanted: int, known: int | None) -> bool:
        """Whether a namespace is read whole rather than by the names wanted in it."""
        if not isinstance(self.verdict, Widened) or not self.verdict.is_by_name:
            return True
        return not self.plan.is_namespace_object and is_wide(wanted, known)

    def _want(self, namespace: str, memory: _Memory) -> NamespaceRequest:
        wanted, known = len(memory), memory.last.known
        is_all = self._reads_all(wanted, known)
        before = self.snapshots.get(namespace)
        if before is not None and (is_all or before.covers(memory.names())):
            expected = len(before.reading.values)
        else:
            expected = max(known or 0, wanted) if is_all else wanted
        names = () if is_all else tuple(sorted(memory.names()))
        return NamespaceRequest(namespace, names, max(1, expected))

    def _forget(self, now_s: float) -> None:
        # Several refreshes a second look at the same tens of thousands of names.
        if 0.0 <= now_s - self._forgot_s < FORGET_EVERY_S:
            return
        self._forgot_s = now_s
        oldest = now_s - self.options.remembered_s
        for namespace, memory in list(self._memories.items()):
            if memory.wanted_s < oldest:
                del self._memories[namespace]
                self.snapshots.pop(namespace, None)
                self._failures.pop(namespace, None)
                self._packed = None
                continue
            if memory.forget(oldest):
                self._packed = None
        for namespace, until in list(self._excluded.items()):
            if until <= now_s:
                del self._excluded[namespace]
                self._packed = None


def is_fresh(asked_s: float, now_s: float, max_age_s: float) -> bool:
    """Return whether an answer may still be served; one from the future (the clock was set
    back) may not.
    """
    return -1.0 <= now_s - asked_s <= max_age_s


def _shape(verdict: Verdict) -> Shape:
    if not isinstance(verdict, Widened):
        return Shape(0)
    labels = verdict.labels
    return Shape(
        len(verdict.text(("", ""), ("", ""))),
        verdict.selectors(labels.namespace) if labels.namespace else 0,
        verdict.selectors(labels.object) if labels.object else 0,
    )
