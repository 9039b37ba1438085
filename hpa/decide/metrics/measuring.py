"""One metric of the spec and its answer, turned into a proposal or a reason why not.

Follows ``computeReplicasForMetric`` and the ``computeStatusFor…`` functions, Kubernetes
1.37: calculations, texts, and what the status shows. Nothing here raises: what cannot be
used is ``Invalid``.
"""

from collections.abc import Callable, Mapping
from typing import Literal, TypeGuard

from msgspec import Struct, structs

from hpa.decide.api.spec import MetricSpec, MetricStatus
from hpa.decide.metrics import answers
from hpa.decide.metrics import replicas as calculations
from hpa.decide.metrics.requests import RequestProblem, requests_of
from hpa.decide.numbers import Amount, ceil32
from hpa.decide.observation import MetricAnswer, MetricFailure, Observation, Scale
from hpa.decide.pods import PodGroups, Pods, group
from hpa.decide.settings import Settings, Variation
from podscale.coordinate.anchor import counted_requests
from podscale.core.metrics import ExternalSamples, ObjectSample, PodSamples, Sample, Stale
from podscale.core.samplecolumns import SampleColumns

NO_PODS = "no pods returned by selector while calculating replica count"
NO_READY_SAMPLES = "did not receive metrics for targeted pods (pods might be unready)"

Cause = Literal[
    "Failure", "NoPods", "NoReadySamples", "NoMatch", "Request", "SpecInvalid", "NoTarget"
]


class Valid(Struct, frozen=True, gc=False, tag=True):
    """A metric that can decide."""

    calculation: calculations.Calculation
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
    cause: Cause
    label: Literal["spec", "internal"] = "internal"
    failure: MetricFailure | None = None
    problem: RequestProblem | None = None
    groups: PodGroups | None = None


class _Unusable(Struct, frozen=True, gc=False):
    text: str
    cause: Cause
    failure: MetricFailure | None = None
    problem: RequestProblem | None = None
    groups: PodGroups | None = None
    before: str = ""  # what the error, not the text of the condition, says before ``text``


_Found = calculations.Calculation | _Unusable


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
    tolerance: calculations.Tolerance
    settings: Settings
    now: float
    variation: Variation


def evaluate(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> Valid | Invalid:
    """Return what ``spec`` asks for."""
    if spec.type not in _BY_TYPE:
        text = f'unknown metric source type "{spec.type}"'
        return Invalid("InvalidMetricSourceType", text, text, "SpecInvalid", "spec")
    what, measure = _BY_TYPE[spec.type]
    found = measure(spec, answer, pass_)
    if isinstance(found, calculations.Calculation):
        return Valid(found, _status(spec, found))
    what = what.format(name=spec.name, container=spec.container)
    return Invalid(
        f"FailedGet{spec.type}Metric",
        found.text,
        f"failed to get {what} metric value: {found.before}{found.text}",
        found.cause,
        failure=found.failure,
        problem=found.problem,
        groups=found.groups,
    )


def _status(spec: MetricSpec, found: calculations.Calculation) -> MetricStatus:
    of = spec.container, spec.described, spec.selector
    value, average = (found.usage, None) if spec.is_by_value else (None, found.usage)
    return MetricStatus(spec.type, spec.name, *of, value, average, found.utilization)


def _resource(spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation) -> _Found:
    by_use = spec.average_value_milli is not None
    if not _is_target(spec.average_value_milli if by_use else spec.average_utilization):
        return _Unusable(
            "invalid resource metric source: neither an average utilization target nor an "
            "average value (usage) target was set",
            "NoTarget",
        )
    found = _resource_calculation(spec, answer, pass_)
    if isinstance(found, calculations.Calculation):
        return found
    share = "usage" if by_use else "utilization"
    return structs.replace(found, text=f"failed to get {spec.name} {share}: {found.text}")


def _resource_calculation(
    spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation
) -> _Found:
    about = f"unable to get metrics for resource {spec.name}: "
    samples = _pod_samples(answer, "resource", pass_, about)
    if isinstance(samples, _Unusable):
        return samples
    grouped = _usage(samples, spec.name, pass_)
    if isinstance(grouped, _Unusable):
        return grouped
    usage, groups = grouped
    current, variation = pass_.scale.spec_replicas, pass_.variation
    if spec.average_value_milli is not None:
        target = spec.average_value_milli
        return calculations.by_average(current, target, usage, groups, pass_.tolerance, variation)
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
        found = calculations.by_utilization(
            current, percent, usage, requests, groups, pass_.tolerance, variation
        )
    else:
        counted = counted_requests(requests, held.anchor)
        found = _by_anchor(percent, usage, _values(samples.pods), counted, groups, pass_)
    return _Unusable(calculations.NO_MATCH, "NoMatch", groups=groups) if found is None else found


def _by_anchor(
    percent: int,
    usage: dict[str, Amount],
    sampled: dict[str, Amount],
    counted: Mapping[str, int],
    groups: PodGroups,
    pass_: MetricEvaluation,
) -> calculations.Calculation | None:
    """Return what a utilization of what pods are ``counted`` for asks for; ``sampled`` is what
    all pods use, also those that leave or are not ready yet."""
    current = pass_.scale.spec_replicas
    found = calculations.by_utilization(
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


def _pods(spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation) -> _Found:
    samples = _pod_samples(answer, "custom", pass_, f"unable to get metric {spec.name}: ")
    if isinstance(samples, _Unusable):
        return samples
    current, target = pass_.scale.spec_replicas, spec.average_value_milli
    if not _is_target(target):
        return _Unusable("invalid pods metric source: no average value target was set", "NoTarget")
    if _is_plain(samples.pods, pass_):
        total, groups = samples.pods.total_milli, PodGroups(len(samples.pods))
        return calculations.by_plain_average(current, target, total, groups, pass_.tolerance)
    grouped = _usage(samples, "", pass_)
    if isinstance(grouped, _Unusable):
        return grouped
    return calculations.by_average(current, target, *grouped, pass_.tolerance, pass_.variation)


def _object(spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation) -> _Found:
    if answers.is_bad_selector(answer):  # upstream parses it before it looks at the target
        return _failed(answer, "custom", "")
    target = spec.value_milli if spec.is_by_value else spec.average_value_milli
    if spec.target_type not in ("Value", "AverageValue") or not _is_target(target):
        text = "invalid object metric source: neither a value target nor an average value target"
        return _Unusable(f"{text} was set", "NoTarget")
    sample = answers.checked(answer, pass_.settings.metric_max_age_s, pass_.now)
    if isinstance(sample, ObjectSample):
        return _of_whole(spec, target, sample.sample.value_milli, pass_)
    before = "" if spec.is_by_value else f"failed to get {spec.name} object metric: "
    found = _failed(sample, "custom", _of_object(spec, pass_))
    return structs.replace(found, before=before)


def _external(spec: MetricSpec, answer: MetricAnswer | None, pass_: MetricEvaluation) -> _Found:
    target = spec.value_milli if spec.is_by_value else spec.average_value_milli
    if not _is_target(target):
        text = "invalid external metric source: neither a value target nor an average value target"
        return _Unusable(f"{text} was set", "NoTarget")
    series = answers.checked(answer, pass_.settings.metric_max_age_s, pass_.now)
    found: _Found
    if isinstance(series, ExternalSamples):
        usage = answers.summed([each.sample.value_milli for each in series.series])
        found = _of_whole(spec, target, usage, pass_)
    else:
        selector = "nil" if spec.selector is None else str(spec.selector)
        where = f"{pass_.observation.hpa.namespace}/{spec.name}/{selector}"
        found = _failed(series, "external", f"unable to get external metric {where}: ")
    if isinstance(found, calculations.Calculation):
        return found
    what = f"external metric {spec.name}" if spec.is_by_value else f"{spec.name} external metric"
    return structs.replace(found, before=f"failed to get {what}: ")


# What each type of source is called in errors, and what measures it.
_BY_TYPE: Mapping[
    str, tuple[str, Callable[[MetricSpec, MetricAnswer | None, MetricEvaluation], _Found]]
] = {
    "Resource": ("{name} resource", _resource),
    "ContainerResource": ("{container} container", _resource),
    "Pods": ("pods", _pods),
    "Object": ("object", _object),
    "External": ("{name} external", _external),
}


def _is_target(target: int | None) -> TypeGuard[int]:
    # A target of zero, which no API server lets through, is as good as none.
    return target is not None and target > 0


def _of_whole(spec: MetricSpec, target: int, usage: int, pass_: MetricEvaluation) -> _Found:
    scale, pods, tolerance = pass_.scale, pass_.pods, pass_.tolerance
    if not spec.is_by_value:
        guards = pass_.settings.is_after_1_36
        return calculations.by_average_value(
            scale.status_replicas,
            target,
            usage,
            tolerance,
            guards_zero=guards,
            caps=guards or spec.type == "External",
        )
    counted = 0
    if scale.spec_replicas and not tolerance.holds(float(usage) / target):  # else nobody counts
        if not len(pods):
            return _Unusable(f"unable to calculate ready pods: {NO_PODS}", "NoPods")
        counted = pods.ready_count() if pass_.variation.ready_only else pods.unfinished_count()
    return calculations.by_value(scale.spec_replicas, target, usage, counted, tolerance)


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
        stale = answers.too_old(used, samples.asked_s, limit, pass_.now)
        if stale is not None:
            return _Unusable(stale.message, "Failure", stale, groups=groups)
    return usage, groups


def _is_plain(samples: Mapping[str, Sample], pass_: MetricEvaluation) -> TypeGuard[SampleColumns]:
    # The pods that reported are those that there are, in columns, all of them run, and nobody
    # asks how old a sample is, or what would be without one.
    pods = pass_.pods
    return (
        type(samples) is SampleColumns
        and len(pods) > 0
        and samples.names == pods.names
        and pods.all_run()
        and pass_.settings.metric_max_age_s is None
        and pass_.variation.averaged is None
    )


def _values(samples: Mapping[str, Sample]) -> dict[str, Amount]:
    if type(samples) is SampleColumns:
        return dict(zip(samples.names, samples.values_milli, strict=False))
    return {pod: each.value_milli for pod, each in samples.items()}


def _pod_samples(
    answer: MetricAnswer | None, api: str, pass_: MetricEvaluation, prefix: str
) -> PodSamples | _Unusable:
    if not isinstance(answer, PodSamples):
        return _failed(answer, api, prefix)
    if not pass_.observation.hpa.options.pods_by_owner:
        return answer
    chosen = set(pass_.pods.names)
    own = {pod: sample for pod, sample in answer.pods.items() if pod in chosen}
    return PodSamples(own, answer.asked_s, answer.stale & chosen)


def _failed(answer: MetricAnswer | None, api: str, prefix: str) -> _Unusable:
    failure = answers.failure_of(answer)
    if answers.is_bad_selector(failure):
        prefix = ""  # nothing was asked for
    return _Unusable(prefix + answers.text_of(failure, api), "Failure", failure)


def _of_object(spec: MetricSpec, pass_: MetricEvaluation) -> str:
    described, about = spec.described, f"unable to get metric {spec.name}"
    if described is None:
        return f"{about}: "
    kind, name, namespace = described.kind, described.name, pass_.observation.hpa.namespace
    if pass_.settings.is_after_1_36:
        return f"{about} on {kind} {namespace}/{name}: "
    return f"{about}: {kind} on {namespace} {name}/"  # misplaced, as 1.36 has it
