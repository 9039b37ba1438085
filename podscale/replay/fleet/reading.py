"""A cluster's weeks from Prometheus: a bounded number of range queries, one after the other.

Series of usage come without most of their labels, in slices of time; what is known of requests,
owners and bounds comes from kube-state-metrics, and what is missing there is named.
"""

from collections.abc import AsyncIterator, Callable, Mapping

import numpy as np
from msgspec import Struct

from podscale.core.goquote import quote
from podscale.feed.errors import QueryError
from podscale.feed.range_reader import HistorySeries, HistorySlice, RangeReader
from podscale.replay.fleet.usage import (
    BLOCK_S,
    FleetContainer,
    FleetUsage,
    FleetWorkload,
    Owned,
    workload_of,
)


class FleetNames(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Names of metrics and labels, as kube-prometheus has them; YAML in camel case."""

    cpu: str = "container_cpu_usage_seconds_total"
    memory: str = "container_memory_working_set_bytes"
    throttled: str = "container_cpu_cfs_throttled_periods_total"
    periods: str = "container_cpu_cfs_periods_total"
    oom_events: str = "container_oom_events_total"
    namespace: str = "namespace"  # labels of cAdvisor's series
    pod: str = "pod"
    container: str = "container"
    cadvisor: str = ""  # further matchers, as job="kubelet"
    rate_window: str = ""  # of CPU; empty: a step, which needs two samples in it
    requests: str = "kube_pod_container_resource_requests"
    limits: str = "kube_pod_container_resource_limits"
    pod_owner: str = "kube_pod_owner"
    replicaset_owner: str = "kube_replicaset_owner"
    job_owner: str = "kube_job_owner"
    terminated: str = "kube_pod_container_status_last_terminated_reason"
    hpa: str = "kube_horizontalpodautoscaler_info"
    hpa_condition: str = "kube_horizontalpodautoscaler_status_condition"
    allocatable: str = "kube_node_status_allocatable"
    limit_range: str = "kube_limitrange"
    kube_state_metrics: str = ""  # further matchers


class FleetQueries:
    """The queries of one report; ``only`` is a namespace, or empty."""

    def __init__(self, names: FleetNames, only: str, step_s: int) -> None:
        self.names = names
        self._only = only
        self._step = f"{step_s}s"

    @property
    def cpu(self) -> str:
        """Cores by container, in whole micro-cores: more digits would be half of the answer."""
        window = self.names.rate_window or self._step
        cores = self._by("sum", f"rate({self._cadvisor(self.names.cpu)}[{window}])")
        return f"round({cores}, 1e-6)"

    @property
    def memory(self) -> str:
        """The peak of bytes in each step, by container."""
        return self._by("max", f"max_over_time({self._cadvisor(self.names.memory)}[{self._step}])")

    @property
    def running(self) -> str:
        """Containers that run at the moment asked for: for five minutes there is an answer for
        those that have gone, too."""
        return self._by("group", f"timestamp({self._cadvisor(self.names.memory)}) > time() - 180")

    def presence(self, span_s: int) -> str:
        """Return the query of the seconds that each container was there, by its samples and
        the most that were taken of any in ten minutes, the last or, where samples have just ended,
        those before."""
        memory = self.names.memory
        samples = self._by("sum", f"count_over_time({self._cadvisor(memory)}[{span_s}s])")
        last, before = (f"max(count_over_time({memory}[10m]{ago}))" for ago in ("", " offset 10m"))
        most = f"{last} > {before} or {before} or {last}"
        return f"{samples} * on () group_left () (600 / ({most}))"

    @property
    def throttled(self) -> str:
        """The share of a day's CPU periods that were throttled, by container."""
        throttled, periods = (
            self._by("sum", f"increase({self._cadvisor(each)}[1d])")
            for each in (self.names.throttled, self.names.periods)
        )
        return f"{throttled} / {periods}"

    @property
    def oom_events(self) -> str:
        """A day's kills by container, as cAdvisor counts them."""
        return self._by("sum", f"increase({self._cadvisor(self.names.oom_events)}[1d])") + " > 0"

    def requests(self, metric: str) -> str:
        """Return the query of requests or limits: cores and bytes by container."""
        return f"max by (namespace, pod, container, resource) ({self._ksm(metric, _BOTH)})"

    def owners(self, metric: str, name: str) -> str:
        """Return the query of owners; ``name`` is the label of what is owned."""
        return f"group by (namespace, {name}, owner_kind, owner_name) ({self._ksm(metric)})"

    @property
    def terminated(self) -> str:
        """Containers whose last end was a kill for memory."""
        which = self._ksm(self.names.terminated, 'reason="OOMKilled"')
        return f"max by (namespace, pod, container) (max_over_time({which}[1d])) > 0"

    @property
    def hpas(self) -> str:
        """Targets of HPAs: 1 where it scales."""
        keys = "namespace, horizontalpodautoscaler"
        info = self._ksm(self.names.hpa)
        active = self._ksm(self.names.hpa_condition, 'condition="ScalingActive",status="true"')
        return (
            f"max by ({keys}, scaletargetref_kind, scaletargetref_name) ({info}) "
            f"* on ({keys}) group_left max by ({keys}) ({active})"
        )

    @property
    def allocatable(self) -> str:
        """CPU and memory of each node."""
        return f"max by (node, resource) ({self._ksm(self.names.allocatable, _BOTH, True)})"

    @property
    def limit_ranges(self) -> str:
        """Bounds of containers and pods, the tightest of each namespace."""
        keys = "namespace, type, resource, constraint"
        ours = self._ksm(self.names.limit_range, f'{_BOTH},constraint=~"%s"')
        return (
            f"max by ({keys}) ({ours % 'min'}) or min by ({keys}) ({ours % 'max'}) "
            f"or max by ({keys}) ({ours % 'default'})"
        )

    def _by(self, how: str, inner: str) -> str:
        names = self.names
        return f"{how} by ({names.namespace}, {names.pod}, {names.container}) ({inner})"

    def _cadvisor(self, metric: str) -> str:
        names = self.names
        # Sandboxes and cgroups of whole pods are no containers.
        found = [f'{names.pod}!=""', f'{names.container}!=""', f'{names.container}!="POD"']
        if self._only:
            found.append(f"{names.namespace}={quote(self._only)}")
        return _selected(metric, [*found, names.cadvisor])

    def _ksm(self, metric: str, matchers: str = "", is_of_cluster: bool = False) -> str:
        of = f"namespace={quote(self._only)}" if self._only and not is_of_cluster else ""
        return _selected(metric, [matchers, of, self.names.kube_state_metrics])


_BOTH = 'resource=~"cpu|memory"'


def _selected(metric: str, matchers: list[str]) -> str:
    return f"{metric}{{{','.join(each for each in matchers if each)}}}"


POINTS = 1_000_000  # of one slice: a day of 3,500 containers at five minutes
_DAY_S = 86400
_OWNERS_S = 3600  # a pod that lived for less is known by its name

ProgressListener = Callable[[int, int, str], None]  # done, of how many, what
Amounts = dict[str, float]  # cores and bytes by resource


class FleetSpan(Struct, frozen=True):
    """How far back, how dense, and which namespace (empty: all)."""

    end_s: int
    blocks: int  # of six hours
    step_s: int = 300
    namespace: str = ""

    @property
    def block_steps(self) -> int:
        return BLOCK_S // self.step_s

    @property
    def start_s(self) -> int:
        """When the first step ends."""
        return self.end_s - (self.blocks * self.block_steps - 1) * self.step_s


class FleetPast(Struct, frozen=True):
    """What Prometheus remembers of a cluster."""

    usage: FleetUsage
    running: Mapping[FleetContainer, float]  # pods at the end; absent: none, or not known
    present_s: Mapping[FleetContainer, float]  # of all pods
    requests: Mapping[FleetContainer, Amounts]
    limits: Mapping[FleetContainer, Amounts]
    throttled: Mapping[FleetContainer, float]  # share of CPU periods
    oom_kills: Mapping[FleetContainer, int]
    scaled: Mapping[FleetWorkload, bool]  # those with an HPA, and whether it acts
    nodes: Mapping[str, Amounts]
    bounds: Mapping[tuple[str, str], Mapping[str, Amounts]]  # (namespace, type) → constraint
    notes: list[str]


class FleetReader:
    """Reads one report's history."""

    def __init__(
        self, reader: RangeReader, names: FleetNames, span: FleetSpan, told: ProgressListener
    ) -> None:
        self._reader, self._span, self._told = reader, span, told
        self._names = names
        self._queries = FleetQueries(names, span.namespace, span.step_s)
        self._pods: dict[tuple[str, str], tuple[str, str]] = {}
        self._parents: dict[str, Owned] = {}
        self._sized: dict[tuple[str, str, str], FleetContainer] = {}
        self._notes: list[str] = []
        self._absent: list[tuple[str, str]] = []  # what is not known, and the metric it needs

    async def past(self, *, is_autopilot: bool = False) -> FleetPast:
        """Return what there is; raises ``QueryError`` where usage itself cannot be read."""
        names, queries = self._names, self._queries
        self._pods = await self._owned(names.pod_owner, "pod")
        self._parents = {
            "ReplicaSet": await self._owned(names.replicaset_owner, "replicaset"),
            "Job": await self._owned(names.job_owner, "job_name"),
        }
        usage = FleetUsage(self._span.start_s, self._span.step_s, is_autopilot=is_autopilot)
        await self._usage("cpu", queries.cpu, usage)
        await self._usage("memory", queries.memory, usage)
        oom_kills: dict[FleetContainer, int] = {}
        for text, metric in (
            (queries.terminated, names.terminated), (queries.oom_events, names.oom_events)
        ):  # fmt: skip
            # Either may count a kill that the other has missed.
            counted: dict[FleetContainer, int] = {}
            async for each in self._series(text, metric, _DAY_S, "kills", is_optional=True):
                sized = self._sized_of(each)
                counted[sized] = counted.get(sized, 0) + int(np.ceil(each.values).sum())
            for sized, kills in counted.items():
                oom_kills[sized] = max(oom_kills.get(sized, 0), kills)
        throttled = {
            self._sized_of(each): float(np.nanmean(each.values))
            async for each in self._series(queries.throttled, names.periods, _DAY_S, "throttling")
            if not np.isnan(each.values).all()
        }
        return FleetPast(
            usage,
            await self._summed(queries.running),
            await self._summed(queries.presence(self._span.blocks * BLOCK_S)),
            await self._amounts(names.requests, "requests"),
            await self._amounts(names.limits, "limits"),
            throttled,
            oom_kills,
            {
                FleetWorkload(each.labels.get("namespace", ""),
                         each.labels.get("scaletargetref_kind", ""),
                         each.labels.get("scaletargetref_name", "")): bool(each.values[-1] > 0)
                async for each in self._series(queries.hpas, names.hpa, 0, "HPAs", is_optional=True)
            },
            await self._nodes(),
            await self._bounds(),
            self._notes + self._absences(),
        )  # fmt: skip

    async def _usage(self, resource: str, query: str, usage: FleetUsage) -> None:
        span = self._span
        row_of: dict[bytes, int] = {}  # labels of most series are those of the slice before
        async for part in self._slices(query, span.step_s, resource, span.start_s):
            if not len(part.series.values):
                continue
            rows = np.empty(len(part.series), np.intp)
            for place, text in enumerate(map(bytes, part.series.label_texts)):
                row = row_of.get(text)
                if row is None:
                    each = part.series[place]
                    pod = each.labels.get(self._names.pod, "")
                    row = row_of[text] = usage.row(self._sized_of(each), pod)
                rows[place] = row
            first = round((part.start_s - span.start_s) / span.step_s)
            steps = np.rint((part.series.time_s - part.start_s) / span.step_s).astype(np.intp)
            grid = np.full((len(rows), int(steps.max()) + 1), np.nan)
            values = part.series.values
            # Less than nothing is no usage: a counter that a proxy has mixed up.
            usable = np.isfinite(values) & (values >= 0.0)
            begins = np.repeat(np.arange(len(rows)) * grid.shape[1], part.series.counts)
            grid.ravel()[begins + steps] = np.where(usable, values, np.nan)
            usage.add(resource, rows, grid, first)

    def _sized_of(self, series: HistorySeries) -> FleetContainer:
        labels, names = series.labels, self._names
        namespace = labels.get(names.namespace) or labels.get("namespace") or self._span.namespace
        pod = labels.get(names.pod) or labels.get("pod", "")
        container = labels.get(names.container) or labels.get("container", "")
        key = namespace, pod, container
        found = self._sized.get(key)
        if found is None:
            workload = workload_of(namespace, pod, self._pods, self._parents)
            found = self._sized[key] = FleetContainer(workload, container)
        return found

    async def _owned(self, metric: str, name: str) -> dict[tuple[str, str], tuple[str, str]]:
        is_optional = metric == self._names.job_owner  # there may be none
        return {
            (each.labels.get("namespace", ""), each.labels.get(name, "")): (
                each.labels.get("owner_kind", ""), each.labels.get("owner_name", ""),
            )
            async for each in self._series(self._queries.owners(metric, name), metric, _OWNERS_S,
                                           "owners", is_optional=is_optional)
        }  # fmt: skip

    async def _amounts(self, metric: str, what: str) -> dict[FleetContainer, Amounts]:
        # Of all pods the largest: during a roll-out both templates are there.
        found: dict[FleetContainer, Amounts] = {}
        async for each in self._series(self._queries.requests(metric), metric, 0, what):
            amounts = found.setdefault(self._sized_of(each), {})
            resource = each.labels.get("resource", "")
            amounts[resource] = max(amounts.get(resource, 0.0), float(each.values[-1]))
        return found

    async def _summed(self, query: str) -> dict[FleetContainer, float]:
        found: dict[FleetContainer, float] = {}
        async for each in self._series(query, self._names.memory, 0, "pods", is_optional=True):
            sized = self._sized_of(each)
            found[sized] = found.get(sized, 0.0) + float(each.values[-1])
        return found

    async def _nodes(self) -> dict[str, Amounts]:
        found: dict[str, Amounts] = {}
        query, metric = self._queries.allocatable, self._names.allocatable
        async for each in self._series(query, metric, 0, "nodes"):
            node = found.setdefault(each.labels.get("node", ""), {})
            node[each.labels.get("resource", "")] = float(each.values[-1])
        return found

    async def _bounds(self) -> dict[tuple[str, str], dict[str, Amounts]]:
        found: dict[tuple[str, str], dict[str, Amounts]] = {}
        query, metric = self._queries.limit_ranges, self._names.limit_range
        async for each in self._series(query, metric, 0, "LimitRanges", is_optional=True):
            labels = each.labels
            of_type = found.setdefault((labels.get("namespace", ""), labels.get("type", "")), {})
            amounts = of_type.setdefault(labels.get("constraint", ""), {})
            amounts[labels.get("resource", "")] = float(each.values[-1])
        return found

    async def _series(
        self, query: str, metric: str, step_s: int, what: str, *, is_optional: bool = False
    ) -> AsyncIterator[HistorySeries]:
        # What helps, and may be missing: then it is named. Step 0: as it is now.
        is_there = False
        span = self._span
        # The last step is now: what a day has counted would else be missed by up to a day.
        steps = (span.end_s - span.start_s) // step_s if step_s else 0
        step_s = step_s or span.step_s
        try:
            async for part in self._slices(query, step_s, what, span.end_s - steps * step_s):
                for each in part.series:
                    if len(each.values):
                        is_there = True
                        yield each
        except QueryError as error:
            self._notes.append(f"not known: {what}; {metric}: {error}")
            return
        if not is_there and not is_optional:
            self._absent.append((what, metric))

    def _absences(self) -> list[str]:
        metrics: dict[str, list[str]] = {}
        for what, metric in self._absent:
            metrics.setdefault(what, []).append(metric)
        return [f"not known: {what}; Prometheus has no {' and no '.join(named)}"
                for what, named in metrics.items()]  # fmt: skip

    async def _slices(
        self, query: str, step_s: int, what: str, start_s: int
    ) -> AsyncIterator[HistorySlice]:
        async for part in self._reader.read(
            query, start_s, self._span.end_s, step_s, points=POINTS
        ):
            yield part
            self._told(round(100 * part.done), 100, what)
