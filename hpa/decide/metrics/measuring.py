"""One metric of the spec and its answer, turned into a proposal or a reason why not.

Follows ``computeReplicasForMetric`` and the ``computeStatusFor…`` functions, Kubernetes
1.37: calculations, texts, and what the status shows. Nothing here raises: what cannot be
used is ``Invalid``.
"""

from collections.abc import Mapping
from typing import Literal, TypeGuard

from msgspec import Struct, structs

from hpa.decide.api.spec import MetricSpec, MetricStatus
from hpa.decide.metrics.answers import (
    checked,
    failure_of,
    is_bad_selector,
    summed,
    text_of,
    too_old,
)
from hpa.decide.metrics.replicas import (
    NO_MATCH,
    Calculation,
    Tolerance,
    by_average,
    by_average_value,
    by_plain_average,
    by_utilization,
    by_value,
)
from hpa.decide.metrics.requests import RequestProblem, requests_of
from hpa.decide.numbers import Amount, ceil32
from hpa.decide.observation import MetricAnswer, MetricFailure, Observation, Scale
from hpa.decide.pods import PodGroups, Pods, group
from hpa.decide.settings import Settings
from hpa.decide.variation import Variation
from podscale.coordinate.anchor import counted_requests
from podscale.core.metrics import (
    ExternalSamples,
    ObjectSample,
    PodSamples,
    Sample,
    Stale,
)
from podscale.core.samplecolumns import SampleColumns

NO_PODS = "no pods returned by selector while calculating replica count"
NO_READY_SAMPLES = "did not receive metrics for targeted pods (pods might be unready)"

# What each type of source is called in texts, and the API it comes from.
_API = {
    "Resource": "resource",
    "ContainerResource": "resource",
    "Pods": "custom",
    "Object": "custom",
    "External": "external",
}


class Valid(Struct, frozen=True, gc=False, tag=True):
    """A metric that can decide."""

    calculation: Calculation
    status: MetricStatus

    @property
    def replicas(self) -> int:
        return self.calculation.replicas


class Invalid(Struct, frozen=True, gc=False, tag=True):
    """A metric that cannot be used, and why.

    ``cause`` is one word for the explanation; ``text`` goes into condition and event,
    ``error`` (with all of upstream's prefixes) into what the pass returns.
    """

    condition: str  # reason of the condition and of the event
    text: str
    error: str
    cause: Literal[
        "Failure", "NoPods", "NoReadySamples", "NoMatch", "Request", "SpecInvalid", "NoTarget"
    ]
    label: Literal["spec", "internal"] = "internal"
    failure: MetricFailure | None = None
    problem: RequestProblem | None = None
    groups: PodGroups | None = None


class _Unusable(Struct, frozen=True, gc=False):
    text: str
    cause: Literal["Failure", "NoPods", "NoReadySamples", "NoMatch", "Request", "NoTarget"]
    failure: MetricFailure | None = None
    problem: RequestProblem | None = None
    groups: PodGroups | None = None


def name_of(spec: MetricSpec) -> str:
    """Return a metric's name as upstream writes it into reasons and conditions."""
    is_average = spec.average_value_milli is not None
    match spec.type:
        case "Resource" | "ContainerResource" if is_average:
            return f"{spec.name} resource"
        case "Resource":
            return f"{spec.name} resource utilization (percentage of request)"
        case "ContainerResource":
            return f"{spec.name} container resource utilization (percentage of request)"
        case "Pods":
            return f"pods metric {spec.name}"
        case "Object" if spec.target_type == "Value":
            return f"{spec.described.kind if spec.described else ''} metric {spec.name}"
    # Upstream says so of an Object metric with an AverageValue target, too.
    return f"external metric {spec.name}({'nil' if spec.selector is None else spec.selector})"


def is_utilization_of_cpu(spec: MetricSpec) -> bool:
    """Return whether a metric is a share of requests of CPU: one that an anchor can hold."""
    return (
        spec.name == "cpu"
        and spec.type in ("Resource", "ContainerResource")
        and spec.average_utilization is not None
    )


class MetricEvaluation(Struct, frozen=True, gc=False):
    """What all metrics of one pass share."""

    observation: Observation
    pods: Pods
    scale: Scale
    tolerance: Tolerance
    settings: Settings
    now: float
    variation: Variation


def evaluate(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    """Return what ``spec`` asks for."""
    match spec.type:
        case "Resource" | "ContainerResource":
            return _resource(spec, answer, pass_)
        case "Pods":
            return _pods(spec, answer, pass_)
        case "Object":
            return _object(spec, answer, pass_)
        case "External":
            return _external(spec, answer, pass_)
    text = f'unknown metric source type "{spec.type}"'
    return Invalid("InvalidMetricSourceType", text, text, "SpecInvalid", "spec")


def _resource(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    is_container = spec.type == "ContainerResource"
    by_use = spec.average_value_milli is not None
    prefix = f"failed to get {spec.name} {'usage' if by_use else 'utilization'}: "
    found: Calculation | _Unusable
    if not _is_target(spec.average_value_milli if by_use else spec.average_utilization):
        prefix = ""
        found = _Unusable(
            "invalid resource metric source: neither an average utilization target nor an "
            "average value (usage) target was set",
            "NoTarget",
        )
    else:
        found = _resource_calculation(spec, answer, pass_)
    if isinstance(found, _Unusable):
        outer = (
            f"failed to get {spec.container} container metric value: "
            if is_container
            else f"failed to get {spec.name} resource metric value: "
        )
        return _invalid(f"FailedGet{spec.type}Metric", prefix + found.text, outer, found)
    status = MetricStatus(
        spec.type,
        spec.name,
        container=spec.container,
        average_value_milli=found.usage,
        average_utilization=found.utilization,
    )
    return Valid(found, status)


def _resource_calculation(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Calculation | _Unusable:
    samples = _pod_samples(answer, spec, pass_, f"unable to get metrics for resource {spec.name}: ")
    if isinstance(samples, _Unusable):
        return samples
    grouped = _usage(samples, spec.name, pass_)
    if isinstance(grouped, _Unusable):
        return grouped
    usage, groups = grouped
    current, variation = pass_.scale.spec_replicas, pass_.variation
    if spec.average_value_milli is not None:
        target = spec.average_value_milli
        return by_average(current, target, usage, groups, pass_.tolerance, variation)
    requests = requests_of(
        pass_.pods,
        spec.name,
        spec.container,
        pod_level=pass_.settings.gates.pod_level_resources,
    )
    if isinstance(requests, RequestProblem):
        return _Unusable(requests.text, "Request", problem=requests, groups=groups)
    percent = spec.average_utilization or 0
    held = pass_.observation.held
    if (
        held is None
        or held.anchor is None
        or (spec.name, spec.container) != ("cpu", held.container)
    ):
        found = by_utilization(
            current, percent, usage, requests, groups, pass_.tolerance, variation
        )
    else:
        counted = counted_requests(requests, held.anchor)
        found = _by_anchor(percent, usage, _values(samples.pods), counted, groups, pass_)
    return _Unusable(NO_MATCH, "NoMatch", groups=groups) if found is None else found


def _by_anchor(
    percent: int,
    usage: dict[str, Amount],
    sampled: dict[str, Amount],
    counted: Mapping[str, int],
    groups: PodGroups,
    pass_: MetricEvaluation,
) -> Calculation | None:
    """Return what a utilization of what pods are ``counted`` for asks for; ``sampled`` is what
    all pods use, also those that leave or are not ready yet."""
    current = pass_.scale.spec_replicas
    found = by_utilization(
        current, percent, usage, counted, groups, pass_.tolerance, pass_.variation
    )
    if found is None or found.replicas >= current:
        return found
    # Whoever removes pods does not look at their size: those that stay may be the small ones,
    # and they get the whole load.
    load, smallest = sum((sampled | usage).values()), min(counted.values())
    needed = min(ceil32(float(load) * 100.0 / (percent * smallest)), current)
    if needed <= found.replicas:
        return found
    return structs.replace(found, replicas=needed, outcome="SmallPodsRemain")


def _pods(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    found: Calculation | _Unusable
    samples = _pod_samples(answer, spec, pass_, f"unable to get metric {spec.name}: ")
    if isinstance(samples, _Unusable):
        found = samples
    elif spec.average_value_milli is None or not _is_target(spec.average_value_milli):
        found = _Unusable("invalid pods metric source: no average value target was set", "NoTarget")
    elif _counts_all(pass_) and is_plain(samples.pods, pass_.pods):
        found = by_plain_average(
            pass_.scale.spec_replicas,
            spec.average_value_milli,
            samples.pods.total_milli,
            PodGroups(len(samples.pods)),
            pass_.tolerance,
        )
    else:
        grouped = _usage(samples, "", pass_)
        if isinstance(grouped, _Unusable):
            found = grouped
        else:
            found = by_average(
                pass_.scale.spec_replicas,
                spec.average_value_milli,
                *grouped,
                pass_.tolerance,
                pass_.variation,
            )
    if isinstance(found, _Unusable):
        outer = "failed to get pods metric value: "
        return _invalid("FailedGetPodsMetric", found.text, outer, found)
    status = MetricStatus(
        "Pods", spec.name, selector=spec.selector, average_value_milli=found.usage
    )
    return Valid(found, status)


def _object(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    outer = "failed to get object metric value: "
    if is_bad_selector(answer):  # upstream parses it before it looks at the target
        unusable = _failed(answer, "custom", "")
        return _invalid("FailedGetObjectMetric", unusable.text, outer, unusable)
    by_object_value = spec.target_type == "Value" and _is_target(spec.value_milli)
    if not by_object_value and not (
        spec.target_type == "AverageValue" and _is_target(spec.average_value_milli)
    ):
        text = "invalid object metric source: neither a value target nor an average value target"
        unusable = _Unusable(f"{text} was set", "NoTarget")
        return _invalid("FailedGetObjectMetric", unusable.text, outer, unusable)
    sample = checked(answer, pass_.settings.metric_max_age_s, pass_.now)
    if not isinstance(sample, ObjectSample):
        unusable = _failed(sample, "custom", _of_object(spec, pass_))
        middle = "" if by_object_value else f"failed to get {spec.name} object metric: "
        return _invalid("FailedGetObjectMetric", unusable.text, outer + middle, unusable)
    found: Calculation | _Unusable
    usage = sample.sample.value_milli
    if by_object_value:
        found = _value(spec.value_milli or 0, usage, pass_)
    else:
        found = by_average_value(
            pass_.scale.status_replicas,
            spec.average_value_milli or 0,
            usage,
            pass_.tolerance,
            guards_zero=pass_.settings.guards_zero_status,
            caps=pass_.settings.guards_zero_status,
        )
    if isinstance(found, _Unusable):
        return _invalid("FailedGetObjectMetric", found.text, outer, found)
    return Valid(found, _value_status(spec, found, is_average=not by_object_value))


def _external(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    outer = f"failed to get {spec.name} external metric value: "
    is_average = spec.average_value_milli is not None
    if not _is_target(spec.average_value_milli if is_average else spec.value_milli):
        text = "invalid external metric source: neither a value target nor an average value target"
        unusable = _Unusable(f"{text} was set", "NoTarget")
        return _invalid("FailedGetExternalMetric", unusable.text, outer, unusable)
    middle = (
        f"failed to get {spec.name} external metric: "
        if is_average
        else f"failed to get external metric {spec.name}: "
    )
    series = checked(answer, pass_.settings.metric_max_age_s, pass_.now)
    found: Calculation | _Unusable
    if not isinstance(series, ExternalSamples):
        selector = "nil" if spec.selector is None else str(spec.selector)
        where = f"{pass_.observation.hpa.namespace}/{spec.name}/{selector}"
        found = _failed(series, "external", f"unable to get external metric {where}: ")
    else:
        usage = summed([each.sample.value_milli for each in series.series])
        if is_average:
            found = by_average_value(
                pass_.scale.status_replicas,
                spec.average_value_milli or 0,
                usage,
                pass_.tolerance,
                guards_zero=pass_.settings.guards_zero_status,
            )
        else:
            found = _value(spec.value_milli or 0, usage, pass_)
    if isinstance(found, _Unusable):
        return _invalid("FailedGetExternalMetric", found.text, outer + middle, found)
    return Valid(found, _value_status(spec, found, is_average=is_average))


def _is_target(target: int | None) -> bool:
    # A target of zero, which no API server lets through, is as good as none.
    return target is not None and target > 0


def _value(target: int, usage: int, pass_: MetricEvaluation) -> Calculation | _Unusable:
    current, pods = pass_.scale.spec_replicas, pass_.pods
    counted = 0
    if current and not pass_.tolerance.holds(float(usage) / target):  # otherwise nobody counts
        if not len(pods):
            return _Unusable(f"unable to calculate ready pods: {NO_PODS}", "NoPods")
        counted = pods.ready_count() if pass_.variation.ready_only else pods.unfinished_count()
    return by_value(current, target, usage, counted, pass_.tolerance)


def _usage(
    samples: PodSamples, resource: str, pass_: MetricEvaluation
) -> tuple[dict[str, Amount], PodGroups] | _Unusable:
    # The samples of the pods that count, and how every pod counts.
    if not len(pass_.pods):
        return _Unusable(NO_PODS, "NoPods")
    groups = group(pass_.pods, samples.pods, resource, pass_.settings, pass_.now, samples.asked_s)
    usage = _values(samples.pods)
    for pod in (*groups.ignored, *groups.unready):
        usage.pop(pod, None)
    if not usage:
        failure = None
        if samples.stale and not samples.pods:
            failure = Stale("Stale", "every sample is older than the limit or of a gone target")
        return _Unusable(NO_READY_SAMPLES, "NoReadySamples", failure, groups=groups)
    limit = pass_.settings.metric_max_age_s
    if limit is not None:
        used = [samples.pods[pod] for pod in usage]
        stale = too_old(used, samples.asked_s, limit, pass_.now)
        if stale is not None:
            return _Unusable(stale.message, "Failure", stale, groups=groups)
    return usage, groups


def is_plain(samples: Mapping[str, Sample], pods: Pods) -> TypeGuard[SampleColumns]:
    """Whether the pods that reported are those that there are, and in columns."""
    return type(samples) is SampleColumns and len(pods) > 0 and samples.names == pods.names


def _counts_all(pass_: MetricEvaluation) -> bool:
    # Nobody asks how old a sample is, or what would be without one.
    return (
        pass_.pods.all_run()
        and pass_.settings.metric_max_age_s is None
        and pass_.variation.averaged is None
    )


def _values(samples: Mapping[str, Sample]) -> dict[str, Amount]:
    if type(samples) is SampleColumns:
        return dict(zip(samples.names, samples.values_milli, strict=False))
    return {pod: each.value_milli for pod, each in samples.items()}


def _pod_samples(
    answer: MetricAnswer | None, spec: MetricSpec, pass_: MetricEvaluation, prefix: str
) -> PodSamples | _Unusable:
    if not isinstance(answer, PodSamples):
        return _failed(answer, _API[spec.type], prefix)
    if not pass_.observation.hpa.options.pods_by_owner:
        return answer
    chosen = set(pass_.pods.names)
    own = {pod: sample for pod, sample in answer.pods.items() if pod in chosen}
    return PodSamples(own, answer.asked_s, answer.stale & chosen)


def _failed(answer: MetricAnswer | None, api: str, prefix: str) -> _Unusable:
    failure = failure_of(answer)
    if is_bad_selector(failure):
        prefix = ""  # nothing was asked for
    return _Unusable(prefix + text_of(failure, api), "Failure", failure)


def _of_object(spec: MetricSpec, pass_: MetricEvaluation) -> str:
    described, about = spec.described, f"unable to get metric {spec.name}"
    if described is None:
        return f"{about}: "
    kind, name, namespace = described.kind, described.name, pass_.observation.hpa.namespace
    if pass_.settings.has_new_texts:
        return f"{about} on {kind} {namespace}/{name}: "
    return f"{about}: {kind} on {namespace} {name}/"  # misplaced, as 1.36 has it


def _invalid(condition: str, text: str, outer: str, found: _Unusable) -> Invalid:
    return Invalid(
        condition,
        text,
        outer + text,
        found.cause,
        failure=found.failure,
        problem=found.problem,
        groups=found.groups,
    )


def _value_status(spec: MetricSpec, found: Calculation, *, is_average: bool) -> MetricStatus:
    return MetricStatus(
        spec.type,
        spec.name,
        described=spec.described,
        selector=spec.selector,
        value_milli=None if is_average else found.usage,
        average_value_milli=found.usage if is_average else None,
    )
