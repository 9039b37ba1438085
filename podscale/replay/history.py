"""The load of one HPA from Prometheus, by range queries of a child process."""

import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from adapter.discovery import registry
from adapter.discovery.listing import MetricSource
from adapter.discovery.registry import MetricRegistry
from adapter.errors import RuleQueryError
from adapter.queries.plans import Plans
from adapter.rules.ruleset import RuleSet
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.simulate.workload import Floats, LoadHistory, key_of
from podscale.core.goquote import quote
from podscale.core.quantity import QuantityError, from_wire
from podscale.core.selectors.selector import EVERYTHING, SelectorError
from podscale.feed.errors import QueryError
from podscale.feed.plan import QueryPlan
from podscale.feed.range_reader import HistorySlice, RangeReader
from podscale.kube.client.errors import NoMatch
from podscale.kube.discovery import Mapper
from podscale.kube.objects.autoscaler import CrossVersionObjectReference
from podscale.replay.inputs import ReplayError


class LoadQuery(Struct, frozen=True):
    """A query whose series, added up, are the load of one metric."""

    key: str  # of the metric
    text: str
    pod: str = ""  # the label that names the pod; "": the whole is measured at once
    container: str = ""  # the label that names the container
    only: str = ""  # the container that counts; "": all of them
    is_shared: bool = False  # of a Value target: what was measured, times the pods, is the load


ResourceOf = Callable[[CrossVersionObjectReference], str]  # plural[.group]; raises ReplayError


def load_queries(
    hpa: HPA,
    rules: RuleSet,
    custom: MetricRegistry,
    external: MetricRegistry,
    resource_of: ResourceOf,
) -> list[LoadQuery]:
    """Return one query for each metric; raises ``ReplayError`` in the doctor's words."""
    plans = Plans()
    try:
        return [_query(each, hpa, rules, (custom, external), plans, resource_of)
                for each in hpa.metrics]  # fmt: skip
    except RuleQueryError as error:
        raise ReplayError(f"the rule of a metric cannot be asked: {error}") from None
    except SelectorError as error:
        raise ReplayError(f"the selector of a metric: {error}") from None


def _query(
    metric: MetricSpec,
    hpa: HPA,
    rules: RuleSet,
    listed: tuple[MetricRegistry, MetricRegistry],
    plans: Plans,
    resource_of: ResourceOf,
) -> LoadQuery:
    custom, external = listed
    if metric.type in ("Resource", "ContainerResource"):
        return _usage(metric, hpa, rules, plans)
    selector = metric.selector.parsed() if metric.selector else EVERYTHING
    text = str(selector)
    if metric.type == "External":
        source = external.find("", metric.name)
        if not isinstance(source, MetricSource):
            raise _unknown(external, "", metric.name)
        plan = plans.metric(source, "", bool(hpa.namespace), selector, text)
        return LoadQuery(key_of(metric), plan.text(hpa.namespace, ()), is_shared=metric.is_by_value)
    is_object = metric.type == "Object" and metric.described is not None
    resource = resource_of(metric.described) if is_object and metric.described else "pods"
    source = custom.find(resource, metric.name)
    if not isinstance(source, MetricSource):
        raise _unknown(custom, resource, metric.name)
    plan = plans.metric(source, resource, resource != "namespaces", selector, text)
    if not is_object or metric.described is None:
        return LoadQuery(key_of(metric), of_target(plan, hpa), plan.labels.object)
    name = hpa.namespace if resource == "namespaces" else metric.described.name
    asked = plan.text(hpa.namespace, (name,))
    return LoadQuery(key_of(metric), asked, is_shared=metric.is_by_value)


def _usage(metric: MetricSpec, hpa: HPA, rules: RuleSet, plans: Plans) -> LoadQuery:
    if rules.resource is None:
        raise ReplayError("the rules file has no resourceRules: no history of CPU and memory")
    rule = {"cpu": rules.resource.cpu, "memory": rules.resource.memory}.get(metric.name)
    if rule is None:
        raise ReplayError(f"the usage of {metric.name} is not measured: cpu and memory are")
    plan = plans.containers(rule)
    labels = plan.labels
    text = of_target(plan, hpa)
    return LoadQuery(key_of(metric), text, labels.object, labels.container, metric.container)


def resource_of(mapper: Mapper, described: CrossVersionObjectReference) -> str:
    """Return plural[.group] of the object of a metric; raises ``ReplayError``."""
    try:
        return mapper.for_kind(described.kind, described.key[0])[0].group_resource
    except NoMatch as error:
        raise ReplayError(f"the object of a metric: {error}") from None


def of_target(plan: QueryPlan, hpa: HPA) -> str:
    """Return the query for all pods that the target of ``hpa`` has ever had."""
    pods = pods_of(hpa)
    found = list(plan.matchers)
    if plan.labels.namespace:
        found.append(f"{plan.labels.namespace}={quote(hpa.namespace)}")
    found.append(f"{plan.labels.object}=~{quote(pods)}")
    return plan.render(
        ",".join(found), {plan.labels.namespace: hpa.namespace, plan.labels.object: pods}
    )


def pods_of(hpa: HPA) -> str:
    """Return the pattern of the names of the target's pods: a ReplicaSet's hash may be in it."""
    hashed = "([a-z0-9]+-)?" if hpa.target.kind == "Deployment" else ""
    return f"{re.escape(hpa.target.name)}-{hashed}[a-z0-9]+".replace("\\-", "-")


def _unknown(listed: MetricRegistry, resource: str, metric: str) -> ReplayError:
    waiting = registry.unlisted(listed, resource, metric)
    if waiting is not None:
        return ReplayError(waiting.message)
    return ReplayError(registry.why_unknown(listed, resource, metric).message)


_THROTTLED = 0.25  # of the periods: from here on usage says less than what was asked for
_FEWEST_PODS = 3  # whose time to Ready says something
_READY_STEP_S = 60

ProgressListener = Callable[[int, int, str], None]  # done, of how many, what


class HistoryWindow(Struct, frozen=True):
    """What is read of each query."""

    start_s: float
    end_s: float
    step_s: int
    most_samples: int

    @property
    def grid(self) -> Floats:
        """The times of the samples."""
        count = int((self.end_s - self.start_s) // self.step_s) + 1
        return self.start_s + self.step_s * np.arange(count, dtype=np.float64)


class RecordedPast(Struct, frozen=True):
    """What Prometheus remembers of one HPA."""

    load: LoadHistory
    ready_after_s: tuple[float, ...]  # deciles; empty: not known
    notes: Sequence[str]


class PastReader:
    """Reads queries one after the other, within a number of samples."""

    def __init__(self, reader: RangeReader, window: HistoryWindow, told: ProgressListener) -> None:
        self._reader = reader
        self._window = window
        self._grid = window.grid
        self._told = told
        self._first_s: dict[str, float] = {}  # of each pod, when it reported first
        self.samples = 0

    async def past(self, hpa: HPA, queries: Sequence[LoadQuery]) -> RecordedPast:
        """Return the past; raises ``ReplayError`` and, of the metrics, ``QueryError``."""
        columns, reported = await self._columns(queries)
        replicas, notes = await self._replicas(hpa, reported)
        await self._share(columns, hpa, queries, replicas)
        part = self._known(columns)
        if part.start * self._window.step_s > 2 * 60:
            late_s = part.start * self._window.step_s
            notes.append(f"the history begins {late_s} s later than asked for")
        nothing = np.zeros(len(self._grid), np.bool_)
        at_most = replicas >= hpa.max_replicas if replicas is not None else nothing
        throttled = await self._throttled(hpa)
        for flags, why in ((at_most, "at maxReplicas"), (throttled, "CPU throttled")):
            if share := float(flags[part].mean()):
                notes.append(f"the load is hidden in {share:.1%} of the time: {why}")
        load = LoadHistory(
            self._grid[part],
            {key: values[part] for key, values in columns.items()},
            (at_most | throttled)[part],
            None if replicas is None else replicas[part],
        )
        return RecordedPast(load, await self.ready_after(hpa), notes)

    async def load(self, hpa: HPA, queries: Sequence[LoadQuery]) -> LoadHistory:
        """Return the load alone: what may be hidden of it is not asked for. Raises as ``past``."""
        columns, reported = await self._columns(queries)
        if any(query.is_shared for query in queries):
            replicas, _ = await self._replicas(hpa, reported)
            await self._share(columns, hpa, queries, replicas)
        part = self._known(columns)
        found = {key: values[part] for key, values in columns.items()}
        return LoadHistory(self._grid[part], found, np.zeros(part.stop - part.start, np.bool_))

    async def _columns(self, queries: Sequence[LoadQuery]) -> tuple[dict[str, Floats], Floats]:
        # What was measured of each metric, and the pods that reported.
        columns: dict[str, Floats] = {}
        reported = np.zeros(len(self._grid))
        for query in queries:
            columns[query.key], pods = await self._total(query)
            reported = np.fmax(reported, pods)
        return columns, reported

    def _known(self, columns: Mapping[str, Floats]) -> slice:
        known = ~np.isnan(np.array(list(columns.values()))).any(axis=0)
        if not known.any():
            since = f"{self._window.end_s - self._window.start_s:.0f} s"
            raise ReplayError(f"Prometheus has no sample of the metrics in the last {since}")
        return slice(int(np.argmax(known)), len(known) - int(np.argmax(known[::-1])))

    async def by_pod(self, query: LoadQuery) -> dict[tuple[str, str], Floats]:
        """Return a column for each container and pod, NaN where there is no sample."""
        found: dict[tuple[str, str], Floats] = {}
        async for part in self._slices(query.text, self._window.step_s, query.key):
            for series in part.series:
                key = series.labels.get(query.container, ""), series.labels.get(query.pod, "")
                if not all(key):
                    continue
                column = found.setdefault(key, np.full(len(self._grid), np.nan))
                is_value = np.isfinite(series.values) & (series.values >= 0)
                column[self._rows(series.time_s[is_value])] = series.values[is_value]
        return found

    async def _total(self, query: LoadQuery) -> tuple[Floats, Floats]:
        # The sum of the series at each time, NaN where there is none, and the pods that reported.
        total, pods = np.full_like(self._grid, np.nan), np.zeros_like(self._grid)
        async for part in self._slices(query.text, self._window.step_s, query.key):
            seen: dict[str, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
            for series in part.series:
                if query.only and series.labels.get(query.container) != query.only:
                    continue
                is_value = np.isfinite(series.values) & (series.values >= 0)
                rows = self._rows(series.time_s[is_value])
                total[rows] = np.nan_to_num(total[rows]) + series.values[is_value]
                pod = series.labels.get(query.pod, "")
                seen.setdefault(pod, np.zeros_like(self._grid, np.bool_))[rows] = True
                if pod and len(rows):
                    at_s = float(self._grid[rows[0]])
                    self._first_s[pod] = min(self._first_s.get(pod, math.inf), at_s)
            for flags in seen.values():
                pods += flags
        return total, pods if query.pod else np.zeros_like(self._grid)

    async def _replicas(self, hpa: HPA, reported: Floats) -> tuple[Floats | None, list[str]]:
        matchers = f"namespace={quote(hpa.namespace)},horizontalpodautoscaler={quote(hpa.name)}"
        text = f"max(kube_horizontalpodautoscaler_status_current_replicas{{{matchers}}})"
        told, _ = await self._beside(text, "replicas")
        if not np.isnan(told).all():
            return told, []
        if reported.any():
            return np.where(reported > 0, reported, np.nan), [
                "past replica counts are inferred from reporting pods (no kube-state-metrics)"
            ]
        return None, []

    async def _share(
        self,
        columns: dict[str, Floats],
        hpa: HPA,
        queries: Sequence[LoadQuery],
        replicas: Floats | None,
    ) -> None:
        # Of a Value target the load is what was measured, times the pods that it was shared by.
        # Those that start serve nothing yet: with them a rescale would look like more load.
        shared = [query.key for query in queries if query.is_shared]
        if not shared:
            return
        matchers = f'namespace={quote(hpa.namespace)},pod=~{quote(pods_of(hpa))},condition="true"'
        ready, _ = await self._beside(f"sum(kube_pod_status_ready{{{matchers}}})", "ready pods")
        if replicas is not None:
            ready = np.where(np.isnan(ready), replicas, ready)
        ready = np.where(ready > 0, ready, np.nan)  # times none there would be no load
        if np.isnan(ready).all():
            raise ReplayError(
                f"{shared[0]} has a Value target, whose load is known with the pods of then only: "
                "neither kube_pod_status_ready nor "
                "kube_horizontalpodautoscaler_status_current_replicas has any"
            )
        for key in shared:
            columns[key] = columns[key] * ready

    async def _throttled(self, hpa: HPA) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        nothing = np.zeros(len(self._grid), np.bool_)
        if not any(metric.name == "cpu" for metric in hpa.metrics):
            return nothing
        matchers = f"namespace={quote(hpa.namespace)},pod=~{quote(pods_of(hpa))}"
        throttled, every = (
            f"sum(rate(container_cpu_cfs_{name}_total{{{matchers}}}[5m]))"
            for name in ("throttled_periods", "periods")
        )
        share, _ = await self._beside(f"{throttled} / {every}", "throttling")
        return np.nan_to_num(share) > _THROTTLED

    async def ready_after(self, hpa: HPA, step_s: int = _READY_STEP_S) -> tuple[float, ...]:
        """Return deciles of the seconds from a pod's creation to Ready, where that is not kept to
        its first sample; empty: not known. Pods that lived for less than ``step_s`` may be missed.
        """
        matchers = f"namespace={quote(hpa.namespace)},pod=~{quote(pods_of(hpa))}"
        created = f"min by (pod) (kube_pod_created{{{matchers}}})"
        ready = f"min by (pod) (kube_pod_status_ready_time{{{matchers}}})"
        least = await self._least(f"{ready} - {created}", step_s)
        if len(least) < _FEWEST_PODS and self._first_s:
            least = {  # half a step earlier: on average a sample is found so late
                pod: max(0.0, self._first_s[pod] - self._window.step_s / 2 - created_s)
                for pod, created_s in (await self._least(created, step_s)).items()
                if pod in self._first_s and created_s >= self._window.start_s
            }
        if len(least) < _FEWEST_PODS:
            return ()
        deciles = np.quantile(list(least.values()), np.arange(0.05, 1.0, 0.1))
        # Not in their order: pods of one rescale should not all be quick, or all slow.
        return tuple(float(deciles[place * 7 % 10]) for place in range(10))

    async def _least(self, text: str, step_s: int) -> dict[str, float]:
        found: dict[str, float] = {}
        try:
            async for part in self._slices(text, step_s, "ready times"):
                for series in part.series:
                    values = series.values[np.isfinite(series.values) & (series.values >= 0)]
                    if len(values):
                        pod = series.labels.get("pod", "")
                        found[pod] = min(found.get(pod, math.inf), float(values.min()))
        except QueryError:
            return {}
        return found

    async def _beside(self, text: str, what: str) -> tuple[Floats, Floats]:
        # What helps, and may be missing.
        try:
            return await self._total(LoadQuery(what, text))
        except QueryError:
            empty = np.full(len(self._grid), np.nan)
            return empty, empty

    async def _slices(self, text: str, step_s: int, what: str) -> AsyncIterator[HistorySlice]:
        window = self._window
        async for part in self._reader.read(text, window.start_s, window.end_s, step_s):
            self.samples += len(part.series.values)
            if self.samples > window.most_samples:
                raise ReplayError(
                    f"more than --max-samples {window.most_samples} were read for {part.done:.0%} "
                    f"of {what}: give a shorter --since or a longer --step"
                )
            yield part
            self._told(round(100 * part.done), 100, what)

    def _rows(self, times: Floats) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        rows = np.rint((times - self._window.start_s) / self._window.step_s).astype(np.intp)
        return np.clip(rows, 0, len(self._grid) - 1)


def requests_of_pods(template: Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Return container → resource → milli-units of a pod template's spec."""
    found: dict[str, dict[str, int]] = {}
    containers = template.get("containers")
    for each in containers if isinstance(containers, list) else ():
        asked = (each.get("resources") or {}).get("requests") or {}
        for resource, amount in asked.items():
            try:
                found.setdefault(str(each.get("name")), {})[resource] = from_wire(
                    amount
                ).milli_int64
            except QuantityError:
                continue  # no API server lets it through
    return found
