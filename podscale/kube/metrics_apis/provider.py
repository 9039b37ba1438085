"""Answers from the aggregated metrics APIs: metrics-server, KEDA, any other adapter; and when none
of an API answered.

The second ``MetricsProvider`` of our own, beside the adapter's in-process one. Paths,
reading and the words of failures follow the in-tree HPA's client
(``pkg/controller/podautoscaler/metrics/client.go``).
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar
from urllib.parse import quote

import msgspec
import numpy as np
from msgspec import Struct, structs

from podscale.core import metrics, quantity
from podscale.core.boundedcache import BoundedCache
from podscale.core.silences import SILENT_S, QueryWindow, Silences
from podscale.core.times import duration
from podscale.kube.client.api import Api
from podscale.kube.client.errors import KubeError
from podscale.kube.client.wire import GO_ZERO_TIME_S, ListOf, Quantity, Time, decode, encode
from podscale.kube.discovery import ApiDiscovery
from podscale.kube.metrics_apis import bodies

T = TypeVar("T")

_Item = bodies.PodMetrics | bodies.NodeMetrics | bodies.CustomValue | bodies.ExternalValue
_Family = Literal["resource", "custom", "external"]
_GROUPS: dict[_Family, tuple[str, str]] = {
    "resource": ("metrics.k8s.io", "v1beta1"),
    "custom": ("custom.metrics.k8s.io", "v1beta1"),
    "external": ("external.metrics.k8s.io", "v1beta1"),
}
_TIMEOUT_S = 10.0
_AT_ONCE = 16
_RANGE_S = 300.0  # behind an answer that does not tell its window
_MOST_BYTES = 16 * 1024 * 1024  # of questions that failed, and are asked again within the hour
# prometheus-adapter serves this for NaN and infinity; taken as a number it would scale
# everything to its minimum.
_GO_OVERFLOW = -(2**63)
_CUSTOM_KNOWN = ("v1beta2", "v1beta1")


class _Call(Struct, frozen=True):
    """One GET that may answer several questions."""

    family: _Family
    path: str  # behind /apis/GROUP/VERSION
    type: (
        type[bodies.PodMetrics]
        | type[bodies.NodeMetrics]
        | type[bodies.CustomValue]
        | type[bodies.ExternalValue]
    )
    query: tuple[tuple[str, str], ...] = ()


class _Items(Struct, frozen=True):
    """What came back."""

    items: Sequence[_Item]
    asked_s: float
    answered_by: str = ""


class ApiProvider:
    """A ``MetricsProvider`` over HTTP. What a batch asks twice is fetched once."""

    patience_s = 2 * _TIMEOUT_S  # of a process that asks here for what its rules do not cover

    def __init__(
        self,
        api: Api,
        discovery: ApiDiscovery,
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._discovery = discovery
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._wall = wall
        # By API, since each has a server of its own. Nobody knows which failures are Prometheus's.
        self._silences = {family: Silences(SILENT_S) for family in _GROUPS}
        # Since when; 0: it is answered again.
        self._failing = BoundedCache[metrics.Question, float](_MOST_BYTES, age_s=3600.0)

    async def answer(self, questions: Sequence[metrics.Question]) -> Sequence[metrics.Answer]:
        """Return one answer per question, in order."""
        asked_s = self._wall()
        calls = [_calls(question) for question in questions]
        distinct = {call: None for needed in calls for call in needed}
        fetched = dict(
            zip(distinct, await asyncio.gather(*map(self._fetch, distinct)), strict=True)
        )
        answers = [
            _answer(question, [fetched[call] for call in needed])
            for question, needed in zip(questions, calls, strict=True)
        ]
        sources = [self._silences[needed[0].family] for needed in calls]
        self._note(zip(questions, answers, sources, strict=True), asked_s)
        now_s = self._wall()
        return [_with_gap(*each, now_s) for each in zip(answers, sources, strict=True)]

    def _note(
        self, rows: Iterable[tuple[metrics.Question, metrics.Answer, Silences]], asked_s: float
    ) -> None:
        """Note which APIs answered. What failed while its API answered others is its own trouble
        until it is answered, and makes no silence."""
        now_s = self._wall()
        for question, answer, silences in sorted(rows, key=_is_failed):
            is_failed, since_s = _is_failed((question, answer)), self._failing.get(question) or 0.0
            if is_failed != (since_s > 0.0):
                since_s = now_s if is_failed else 0.0
                self._failing.put(question, since_s, len(encode(question)))
            if not is_failed:
                silences.answered(now_s)
            elif since_s > silences.answered_s:
                silences.failed(asked_s, now_s)

    async def _fetch(self, call: _Call) -> _Items | metrics.Failure:
        asked_s = self._wall()
        try:
            async with self._at_once:
                answer = await self._api.request(
                    "GET",
                    self._root(call.family) + call.path,
                    query=dict(call.query),
                    timeout_s=_TIMEOUT_S,
                )
            items = decode(answer.body, ListOf[call.type]).items or []  # type: ignore[name-defined]
        except KubeError as error:
            return bodies.failure_of(
                error, f"unable to fetch metrics from {call.family} metrics API"
            )
        except msgspec.DecodeError as error:
            text = f"unable to fetch metrics from {call.family} metrics API: {error}"
            return metrics.Unavailable("BadAnswer", text)
        if (warning := answer.headers.get("warning", "")).startswith(bodies.LEFT_OUT):
            return metrics.NoData("NotANumber", warning.removeprefix(bodies.LEFT_OUT).rstrip('"'))
        return _Items(items, asked_s, answer.headers.get(bodies.ANSWERED_BY.lower(), ""))

    def _root(self, family: _Family) -> str:
        """The path of the group in its preferred version that we can read."""
        group, version = _GROUPS[family]
        served = self._discovery.mapper.versions(group)
        if family == "custom":
            version = next((known for known in served if known in _CUSTOM_KNOWN), version)
        return f"/apis/{group}/{version}"


def _calls(
    question: metrics.Question,
) -> list[_Call]:
    match question:
        case metrics.PodResource(namespace=namespace, selector=selector):
            path = f"/namespaces/{_segment(namespace)}/pods"
            return [_Call("resource", path, bodies.PodMetrics, _query(labelSelector=selector))]
        case metrics.ContainerUsage(namespaces=namespaces):
            paths = [f"/namespaces/{_segment(namespace)}/pods" for namespace in namespaces]
            return [_Call("resource", path, bodies.PodMetrics) for path in paths or ["/pods"]]
        case metrics.NodeUsage():
            return [_Call("resource", "/nodes", bodies.NodeMetrics)]
        case metrics.PodMetric():
            path = f"/namespaces/{_segment(question.namespace)}/pods/*/{_segment(question.metric)}"
            selectors = _query(
                labelSelector=question.selector, metricLabelSelector=question.metric_selector
            )
            return [_Call("custom", path, bodies.CustomValue, selectors)]
        case metrics.ObjectMetric():
            selectors = _query(metricLabelSelector=question.metric_selector)
            return [_Call("custom", _object_path(question), bodies.CustomValue, selectors)]
        case metrics.ExternalMetric(namespace=namespace, metric=metric):
            path = f"/namespaces/{_segment(namespace)}/{_segment(metric)}"
            selectors = _query(labelSelector=question.metric_selector)
            return [_Call("external", path, bodies.ExternalValue, selectors)]


def _object_path(question: metrics.ObjectMetric) -> str:
    metric = _segment(question.metric)
    if question.resource == "namespaces":
        return f"/namespaces/{_segment(question.name)}/metrics/{metric}"
    place = f"/namespaces/{_segment(question.namespace)}" if question.namespace else ""
    return f"{place}/{_segment(question.resource)}/{_segment(question.name)}/{metric}"


def _answer(
    question: metrics.Question, fetched: Sequence[_Items | metrics.Failure]
) -> metrics.Answer:
    parts: list[_Items] = []
    for part in fetched:
        if not isinstance(part, _Items):
            return part
        parts.append(part)
    items = [item for part in parts for item in part.items]
    asked_s = min(part.asked_s for part in parts)
    try:
        match question:
            case metrics.PodResource(resource=resource, container=container):
                return _pod_resources(_only(bodies.PodMetrics, items), resource, container, asked_s)
            case metrics.ContainerUsage():
                return _columns(_only(bodies.PodMetrics, items), asked_s)
            case metrics.NodeUsage(names=names):
                return _node_columns(_only(bodies.NodeMetrics, items), names, asked_s)
            case metrics.PodMetric():
                if not items:
                    return _nothing("custom")
                return _pod_values(_only(bodies.CustomValue, items), asked_s)
            case metrics.ObjectMetric():
                return _object(_only(bodies.CustomValue, items), asked_s)
            case metrics.ExternalMetric():
                if not items:
                    return _nothing("external")
                by = parts[0].answered_by
                return external_samples(_only(bodies.ExternalValue, items), asked_s, by)
    except (quantity.QuantityError, duration.DurationError) as error:
        said = error.reason if isinstance(error, quantity.QuantityError) else error
        family = _calls(question)[0].family
        return metrics.Unavailable(
            "BadAnswer", f"unable to fetch metrics from {family} metrics API: {said}"
        )


def _is_failed(row: Sequence[object]) -> bool:
    return isinstance(row[1], metrics.Failure)


def _with_gap(answer: metrics.Answer, silences: Silences, now_s: float) -> metrics.Answer:
    if not silences.ended or not isinstance(answer, metrics.Samples):
        return answer
    widths = [each.window_s or _RANGE_S for each in metrics.samples_of(answer)]
    gap = silences.gap([QueryWindow(0.0, max(widths, default=_RANGE_S))], now_s)
    if gap is None:
        return answer
    return structs.replace(answer, gap=structs.replace(gap, source=metrics.CLUSTER_APIS))


def _pod_resources(
    pods: Iterable[bodies.PodMetrics], resource: str, container: str | None, asked_s: float
) -> metrics.Answer:
    samples: dict[str, metrics.Sample] = {}
    is_empty = True
    for pod in pods:
        is_empty = False
        value_milli = _usage_milli(pod, resource, container)
        if value_milli is None:
            continue
        # As upstream's client reads it: only a custom metric's default is a minute.
        window_s = duration.parse_go(pod.window) if pod.window else 0.0
        # A null time is Go's zero time, before every start: the pod is not ready for it yet.
        taken = _taken(pod.timestamp)
        taken = GO_ZERO_TIME_S if taken is None else taken
        samples[pod.metadata.name] = metrics.Sample(value_milli, taken, window_s)
    if is_empty:
        return _nothing("resource")
    return metrics.PodSamples(samples, asked_s)


def _nothing(family: _Family) -> metrics.NoData:
    return metrics.NoData("NoMetricsReturned", f"no metrics returned from {family} metrics API")


def _usage_milli(pod: bodies.PodMetrics, resource: str, container: str | None) -> int | None:
    """The pod's usage, or that of one container; None when any counted part is missing."""
    containers = pod.containers or ()
    if container is not None:
        containers = tuple(found for found in containers if found.name == container)
    if not containers or any(resource not in found.usage for found in containers):
        return None
    usage = sum(_milli(found.usage[resource]) for found in containers)
    return min(usage, -_GO_OVERFLOW - 1)


def _columns(pods: Iterable[bodies.PodMetrics], asked_s: float) -> metrics.ContainerColumns:
    rows = [
        (
            pod.metadata.namespace,
            pod.metadata.name,
            container.name,
            # Whole milli-cores and bytes, rounded up, as the VPA's own client reads them: a
            # sample near the border of a bucket falls into the same one.
            _rounded_up(container.usage.get("cpu"), 1000),
            _rounded_up(container.usage.get("memory"), 1),
            np.nan if pod.timestamp is None else pod.timestamp,
        )
        for pod in pods
        for container in pod.containers or ()
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    return metrics.ContainerColumns(
        namespace=columns[0],
        pod=columns[1],
        container=columns[2],
        cpu_cores=np.array(columns[3], np.float64),
        memory_bytes=np.array(columns[4], np.float64),
        time_s=np.array(columns[5], np.float64),
        asked_s=asked_s,
    )


def _node_columns(
    nodes: Iterable[bodies.NodeMetrics], names: Sequence[str], asked_s: float
) -> metrics.NodeUsageColumns:
    rows = {
        node.metadata.name: (
            _rounded_up(node.usage.get("cpu"), 1000),
            _rounded_up(node.usage.get("memory"), 1),
            np.nan if node.timestamp is None else node.timestamp,
        )
        for node in nodes
    }
    unmeasured = (np.nan, np.nan, np.nan)
    found = np.array([rows.get(name, unmeasured) for name in names], np.float64).reshape(-1, 3)
    found[:, :2][found[:, :2] < 0] = np.nan
    return metrics.NodeUsageColumns(found[:, 0], found[:, 1], found[:, 2], asked_s)


def _pod_values(values: Iterable[bodies.CustomValue], asked_s: float) -> metrics.PodSamples:
    samples: dict[str, metrics.Sample] = {}
    for value in values:
        # One pod's infinity is that pod's missing sample, not the failure of all.
        with contextlib.suppress(quantity.QuantityError):
            samples[value.described_object.name] = _sample(value)
    return metrics.PodSamples(samples, asked_s)


def _object(values: Sequence[bodies.CustomValue], asked_s: float) -> metrics.Answer:
    if len(values) != 1:
        text = (
            f"the custom metrics API server returned {len(values)} results when we asked "
            "for exactly one"
        )
        return metrics.Unavailable("NotExactlyOne", text)
    return metrics.ObjectSample(_sample(values[0]), asked_s)


def external_samples(
    values: Iterable[bodies.ExternalValue], asked_s: float, answered_by: str
) -> metrics.ExternalSamples:
    """Return items of external.metrics.k8s.io as samples; raises ``QuantityError``."""
    series = [metrics.ExternalSample(value.metric_labels or {}, _sample(value)) for value in values]
    return metrics.ExternalSamples(series, asked_s, answered_by=answered_by)


def _sample(value: bodies.CustomValue | bodies.ExternalValue) -> metrics.Sample:
    seconds = value.window_seconds if value.window_seconds is not None else value.window
    window_s = None if seconds is None else float(seconds)
    return metrics.Sample(_milli(value.value), _taken(value.timestamp), window_s)


def _taken(timestamp: Time | None) -> float | None:
    # The wire's own class of float has no form in a stored trace.
    return None if timestamp is None else float(timestamp)


def _milli(amount: Quantity) -> int:
    milli = quantity.parse(str(amount)).milli_int64
    if milli == _GO_OVERFLOW:
        raise quantity.QuantityError(str(amount), f"{amount} is what Go makes of NaN and infinity")
    return milli


def _rounded_up(amount: Quantity | None, steps: int) -> float:
    """The amount in units, rounded up to the next of ``steps`` per unit; NaN for none."""
    if amount is None:
        return np.nan
    return -(-quantity.parse(str(amount)).nano * steps // 10**9) / steps


def _only(type_: type[T], items: Iterable[object]) -> list[T]:
    return [item for item in items if isinstance(item, type_)]


def _query(**selectors: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in selectors.items() if value)


def _segment(text: str) -> str:
    return quote(text, safe="")
