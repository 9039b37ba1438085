"""CPU and memory of containers and nodes: what metrics.k8s.io, the HPA and the VPA read, now
(``UsageByRules``) and in the past (``past_queries``).

NaN, negative and absent usage is no usage: such a container lacks that resource, it is
not idle.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct

from adapter.discovery.objects import Names, WatchedObjects
from adapter.errors import RuleQueryError
from adapter.queries import readings
from adapter.queries.inquiry import Inquiry
from adapter.queries.plans import Plans
from adapter.rules.ruleset import ResourceRule, ResourceRules
from adapter.stages import Stage
from podscale.core.goquote import quote
from podscale.core.metrics import (
    ContainerColumns,
    Failure,
    NoData,
    NodeUsageColumns,
    NotFound,
    PodResource,
    PodSamples,
    Refused,
    Sample,
)
from podscale.core.pace import LoopPace
from podscale.core.selectors import selector as selectors
from podscale.core.selectors.selector import EVERYTHING
from podscale.feed.plan import NO_ROW, Demand, Outcome, QueryPlan, Reading
from podscale.feed.prover.proof import Widened, prove

_NAMESPACES = 100  # that one query of the past names, as the feed's batches

T = TypeVar("T")
_ByPod = Mapping[str, Sequence[tuple[str, int]]]  # pod -> its containers and their rows


class ContainerQuery(Struct, frozen=True):
    """A query and the labels that name the container of a series."""

    text: str
    pod: str
    container: str
    namespace: str  # "" where all series are of ``only``
    only: str = ""


class PastQueries(Struct, frozen=True):
    """What to ask for each resource."""

    cpu: tuple[ContainerQuery, ...]
    memory: tuple[ContainerQuery, ...]


class Amounts(Struct, frozen=True):
    """CPU and memory of one container or node, in thousandths; ``None``: not measured."""

    cpu_milli: int | None = None
    memory_milli: int | None = None  # thousandths of a byte
    time_s: float | None = None  # the earliest of what is here; None: not known


class UsageByRules:
    """The resource rules, as questions."""

    def __init__(
        self, rules: Callable[[], ResourceRules | None], objects: WatchedObjects, plans: Plans
    ) -> None:
        """``rules`` returns the newest ones, ``None`` when the file has none."""
        self._rules = rules
        self._objects = objects
        self._plans = plans
        # The containers of each pod, once per reading: a thousand HPAs of one namespace ask
        # about a few pods each, and all containers would be walked for every one of them.
        self._by_pod: WeakKeyDictionary[Reading, _ByPod] = WeakKeyDictionary()

    @property
    def rules(self) -> ResourceRules | None:
        """The resource rules in force."""
        return self._rules()

    def pods(
        self, namespace: str, names: Sequence[str], known: int | None
    ) -> Inquiry[Mapping[str, Mapping[str, Amounts]] | Failure] | Failure:
        """Return how to ask for pod -> container -> amounts; pods without any are absent."""
        demands = self._containers(namespace, Names(tuple(names), known))
        return _both(demands, lambda cpu, memory: _per_pod(cpu, memory, names))

    def nodes(self, names: Sequence[str]) -> Inquiry[Mapping[str, Amounts] | Failure] | Failure:
        """Return how to ask for node -> amounts."""
        return _both(self._nodes(names), lambda cpu, memory: _per_node(cpu, memory, names))

    def node_columns(self, names: Sequence[str]) -> Inquiry[NodeUsageColumns | Failure] | Failure:
        """Return how to ask for the same in columns."""
        return _both(self._nodes(names), lambda cpu, memory: _node_columns(cpu, memory, names))

    def pod_resource(self, question: PodResource) -> Inquiry[PodSamples | Failure] | Failure:
        """Return how to ask for one resource of the running pods that match."""
        rules = self._rules()
        if rules is None:
            return _no_rules()
        wanted = selectors.parse(question.selector) if question.selector else EVERYTHING
        found = self._objects.running(question.namespace, wanted)
        if not found.names:
            text = f"no running pod in {question.namespace} matches {question.selector!r}"
            return NoData(Stage.OBJECT_MISMATCH, text)
        # Both: only the other resource tells that a container is there and has no sample.
        demands = self._containers(question.namespace, found)
        if isinstance(demands, tuple) and question.resource != "cpu":
            demands = demands[1], demands[0]
        container, window_s = question.container, rules.window_s or None
        return _both(
            demands,
            lambda used, other: self._sums(used, other, found.names, container, window_s),
        )

    def _sums(
        self,
        used: Reading,
        other: Reading,
        names: Sequence[str],
        container: str | None,
        window_s: float | None,
    ) -> PodSamples:
        rows, others = self._containers_of(used), self._containers_of(other)
        found: dict[str, Sample] = {}
        for name in names:
            made = _sum(used, rows.get(name, ()), others.get(name, ()), container, window_s)
            if made is not None:
                found[name] = made
        stale = frozenset(name for name in names if name in used.stale)
        return PodSamples(found, used.asked_s, stale)

    def _containers_of(self, reading: Reading) -> _ByPod:
        known = self._by_pod.get(reading)
        if known is None:
            known = self._by_pod[reading] = _grouped(reading)
        return known

    def containers(
        self, namespaces: Sequence[str]
    ) -> Inquiry[ContainerColumns | Failure] | Failure:
        """Return how to ask for all containers of running pods, in columns."""
        asked: list[tuple[str, Names]] = []
        demands: list[Demand] = []
        for namespace in namespaces or self._objects.namespaces():
            found = self._objects.running(namespace, EVERYTHING)
            if not found.names:
                continue
            pair = self._containers(namespace, found)
            if not isinstance(pair, tuple):
                return pair
            asked.append((namespace, found))
            demands += pair
        return Inquiry(tuple(demands), lambda got: _columns(got, asked))

    def _containers(self, namespace: str, pods: Names) -> tuple[Demand, Demand] | Failure:
        return self._demands(self._plans.containers, namespace, pods)

    def _nodes(self, names: Sequence[str]) -> tuple[Demand, Demand] | Failure:
        return self._demands(self._plans.nodes, "", Names(tuple(names), len(names)))

    def _demands(
        self, plan_of: Callable[[ResourceRule], QueryPlan], namespace: str, objects: Names
    ) -> tuple[Demand, Demand] | Failure:
        rules = self._rules()
        if rules is None:
            return _no_rules()
        names = tuple(sorted(objects.names))
        demands: list[Demand] = []
        for rule in (rules.cpu, rules.memory):
            try:
                demands.append(Demand(plan_of(rule), namespace, names, objects.known))
            except RuleQueryError as error:
                return Refused(Stage.QUERY_INVALID, f"{rule.id}: {error}")
        cpu, memory = demands
        return cpu, memory


def _no_rules() -> NotFound:
    return NotFound(Stage.NO_SERIES, "the rules file has no resourceRules: CPU and memory unknown")


def _both(
    demands: tuple[Demand, Demand] | Failure, read: Callable[[Reading, Reading], T]
) -> Inquiry[T | Failure] | Failure:
    """Return how to ask for both resources.

    One that cannot be read fails the answer: half of it would look like pods that use none of
    the other.
    """
    if not isinstance(demands, tuple):
        return demands

    def finish(outcomes: Sequence[Outcome]) -> T | Failure:
        first, second = outcomes
        if not isinstance(first, Reading):
            return first
        return read(first, second) if isinstance(second, Reading) else second

    return Inquiry(demands, finish)


def _per_pod(
    cpu: Reading, memory: Reading, names: Sequence[str]
) -> Mapping[str, Mapping[str, Amounts]]:
    wanted = set(names)
    pods: dict[str, dict[str, Amounts]] = {}
    for pod, container in sorted(cpu.containers.keys() | memory.containers.keys()):
        if pod not in wanted:
            continue
        key = pod, container
        amounts = _amounts(
            cpu, cpu.containers.get(key, NO_ROW), memory, memory.containers.get(key, NO_ROW)
        )
        if amounts is not None:
            pods.setdefault(pod, {})[container] = amounts
    return pods


def _per_node(cpu: Reading, memory: Reading, names: Sequence[str]) -> Mapping[str, Amounts]:
    nodes = {}
    for name in names:
        amounts = _amounts(cpu, cpu.row(name), memory, memory.row(name))
        if amounts is not None:
            nodes[name] = amounts
    return nodes


def _node_columns(cpu: Reading, memory: Reading, names: Sequence[str]) -> NodeUsageColumns:
    pairs = [(_float(cpu, cpu.row(name)), _float(memory, memory.row(name))) for name in names]
    found = np.array(pairs, np.float64).reshape(len(names), 2, 2)
    return NodeUsageColumns(
        found[:, 0, 0],
        found[:, 1, 0],
        np.fmin(found[:, 0, 1], found[:, 1, 1]),
        min(cpu.asked_s, memory.asked_s),
    )


def _amounts(cpu: Reading, cpu_row: int, memory: Reading, memory_row: int) -> Amounts | None:
    times: list[float | None] = []
    found: list[int | None] = []
    for reading, row in ((cpu, cpu_row), (memory, memory_row)):
        milli = readings.usage_milli(float(reading.values[row])) if row != NO_ROW else None
        found.append(milli)
        if milli is not None:
            times.append(readings.time_of(reading, row))
    if not times:
        return None
    known = [time_s for time_s in times if time_s is not None]
    return Amounts(found[0], found[1], min(known) if len(known) == len(times) else None)


def _grouped(reading: Reading) -> _ByPod:
    pods: dict[str, list[tuple[str, int]]] = {}
    for (pod, container), row in reading.containers.items():
        pods.setdefault(pod, []).append((container, row))
    return pods


def _sum(
    reading: Reading,
    rows: Sequence[tuple[str, int]],
    others: Sequence[tuple[str, int]],
    container: str | None,
    window_s: float | None,
) -> Sample | None:
    # As the HPA reads metrics.k8s.io: a container listed without the resource, and be it that
    # only the other resource lists it, breaks the sum of its pod.
    wanted = {name: row for name, row in rows if container is None or name == container}
    if any(name not in wanted for name, _ in others if container is None or name == container):
        return None
    total, times = 0, list[float | None]()
    for row in wanted.values():
        milli = readings.usage_milli(float(reading.values[row]))
        if milli is None:  # a pod of which a part is not measured has no sum
            return None
        total += milli
        times.append(readings.time_of(reading, row))
    known = [time_s for time_s in times if time_s is not None]
    if not times:
        return None
    return Sample(total, min(known) if len(known) == len(times) else None, window_s)


async def _columns(
    outcomes: Sequence[Outcome], asked: Sequence[tuple[str, Names]]
) -> ContainerColumns | Failure:
    failures = [outcome for outcome in outcomes if not isinstance(outcome, Reading)]
    rows: list[tuple[str, str, str, float, float, float]] = []
    asked_s, pace = math.inf, LoopPace()
    for (namespace, names), cpu, memory in zip(asked, outcomes[::2], outcomes[1::2], strict=True):
        if not isinstance(cpu, Reading) or not isinstance(memory, Reading):
            continue
        asked_s = min(asked_s, cpu.asked_s, memory.asked_s)
        wanted = set(names.names)
        keys = sorted(cpu.containers.keys() | memory.containers.keys())
        for pod, container in keys:
            await pace.rest()
            if pod not in wanted:
                continue
            key = pod, container
            cores, cpu_time = _float(cpu, cpu.containers.get(key, NO_ROW))
            used, memory_time = _float(memory, memory.containers.get(key, NO_ROW))
            if not (math.isnan(cores) and math.isnan(used)):
                time_s = float(np.fmin(cpu_time, memory_time))
                rows.append((namespace, pod, container, cores, used, time_s))
    if failures and not rows:
        return failures[0]
    return ContainerColumns(
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        np.array([row[3] for row in rows], np.float64),
        np.array([row[4] for row in rows], np.float64),
        np.array([row[5] for row in rows], np.float64),
        asked_s if math.isfinite(asked_s) else 0.0,
    )


def _float(reading: Reading, row: int) -> tuple[float, float]:
    if row == NO_ROW:
        return math.nan, math.nan
    value = float(reading.values[row])
    if not value >= 0 or math.isinf(value):
        return math.nan, math.nan
    return value, float(reading.time_s[row])


def past_queries(rules: ResourceRules | None, namespaces: Sequence[str]) -> PastQueries:
    """Return the queries for the usage of all containers over time; raises ``ValueError`` where
    the rules cannot ask for usage.

    Several namespaces share a query only where the prover says that this is the same; in any
    other case each namespace has its own.
    """
    if rules is None:
        raise ValueError("the rules file has no resourceRules: no history of CPU and memory")
    return PastQueries(
        tuple(_queries(rules.cpu, namespaces)), tuple(_queries(rules.memory, namespaces))
    )


def _queries(rule: ResourceRule, namespaces: Sequence[str]) -> Iterator[ContainerQuery]:
    try:
        plan = Plans().containers(rule)
    except RuleQueryError as error:
        raise ValueError(f"{rule.id}: {error}") from error
    labels = plan.labels
    verdict = prove(plan)
    if isinstance(verdict, Widened) and verdict.default is None:
        for start in range(0, len(namespaces), _NAMESPACES):
            text = verdict.text(tuple(namespaces[start : start + _NAMESPACES]))
            yield ContainerQuery(text, labels.object, labels.container, labels.namespace)
        return
    for namespace in namespaces:
        every_pod = f'{labels.namespace}={quote(namespace)},{labels.object}=~".+"'
        text = plan.render(every_pod, {labels.namespace: namespace})
        yield ContainerQuery(text, labels.object, labels.container, "", namespace)
