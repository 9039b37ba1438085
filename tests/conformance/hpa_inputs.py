"""From the case files' schema to the values that ``hpa.decide`` works on.

Ages count back from ``NOW``; the schema is the header of ``cases/hpa.yaml`` with the
extensions of ``hpa-executed.yaml`` and ``explain.yaml``.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hpa.decide.api.options import read_options
from hpa.decide.api.reading import DOWN, UP, read_behavior, read_rules
from hpa.decide.api.spec import HPA, HpaStatus, MetricSpec, MetricStatus, Rules
from hpa.decide.decision import Outcome
from hpa.decide.observation import (
    MetricAnswer,
    Observation,
    Past,
    Recommendation,
    Scale,
    ScaleEvent,
    ScaleUnreadable,
)
from hpa.decide.pods import Pods
from hpa.decide.settings import Gates, Settings
from podscale.core import metrics as core
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.core.selectors.selector import SelectorError, parse
from podscale.kube.client.wire import LabelSelector
from podscale.kube.objects import autoscaler as wire
from podscale.kube.objects.autoscaler import (
    AutoscalerCondition,
    CrossVersionObjectReference,
    Policy,
)
from podscale.kube.objects.pod import TemplateContainer, WirePodTemplate

NOW = 1_750_000_000.0
ZERO_TIME = -62_135_596_800.0
LABELS = {"name": "test-pod"}

_READY = {
    True: PodReadiness.TRUE,
    False: PodReadiness.FALSE,
    "unknown": PodReadiness.UNKNOWN,
    "absent": PodReadiness.ABSENT,
}
_GATES = {
    "HPAScaleToZero": "scale_to_zero",
    "HPAConfigurableTolerance": "configurable_tolerance",
    "HPAGeneration": "generation",
    "HPAOptimizedSelectorStore": "optimized_selector_store",
    "PodLevelResources": "pod_level_resources",
}
_CLASSES = {
    "NotFound": core.NotFound,
    "NoData": core.NoData,
    "Stale": core.Stale,
    "Unavailable": core.Unavailable,
    "Refused": core.Refused,
}


def at(age: Any) -> float | None:
    if age == "absent":
        return None
    return ZERO_TIME if age == "zero" else NOW - age


def releases(case: Mapping[str, Any]) -> list[str]:
    """Return the releases whose behaviour the case describes."""
    since, until = case.get("since", "1.36"), case.get("until", "1.38")
    return [each for each in ("1.36", "1.37", "1.38") if since <= each <= until]


def expected(case: Mapping[str, Any], release: str) -> Any:
    """Return what the case expects, in the words of ``release``.

    Where an Object metric is told of, cases executed by 1.36 do not say until when; 1.37 puts
    the words in order, which ``tests/cluster/test_hpa_executed.py`` asks the released code.
    """
    if release == "1.36" or "1.36" not in releases(case):
        return case["expected"]
    text = json.dumps(case["expected"])
    misplaced = r"get metric (\S+): (\S+) on (\S+) ([^/\s]+)/"
    return json.loads(re.sub(misplaced, r"get metric \1 on \2 \3/\4: ", text))


def settings(case: Mapping[str, Any]) -> Settings:
    inputs = case["inputs"]
    flags = inputs.get("flags", inputs)
    gates = Gates(
        **{_GATES[name]: is_on for name, is_on in inputs.get("gates", {}).items()},
    )
    return Settings(
        release=case.get("release", "1.37"),
        gates=gates,
        mode=inputs.get("mode", "replace"),
        tolerance=flags.get("tolerance", 0.1) if inputs.get("flags") else 0.1,
        downscale_stabilization_s=float(flags.get("downscale_stabilization_s", 300)),
        cpu_initialization_s=float(flags.get("cpu_initialization_period_s", 300)),
        initial_readiness_delay_s=float(flags.get("initial_readiness_delay_s", 30)),
        metric_max_age_s=flags.get("metric_max_age_s"),
    )


def template(pod: Mapping[str, Any], resources: Sequence[str]) -> WirePodTemplate:
    def amounts(milli: int | None) -> dict[str, int]:
        return {} if milli is None else dict.fromkeys(resources, milli)

    if "containers" in pod:
        containers = [
            TemplateContainer(each["name"], amounts(each.get("request")))
            for each in pod["containers"]
        ]
    else:
        containers = [
            TemplateContainer(name, amounts(milli))
            for name, milli in pod.get("requests", {}).items()
        ]
    level = dict(pod.get("pod_level_other_requests", {})) | amounts(pod.get("pod_level_request"))
    init = [
        TemplateContainer(
            each["name"],
            amounts(each.get("request")),
            is_sidecar=each.get("restart_policy") == "Always",
        )
        for each in pod.get("init_containers", [])
    ]
    overhead = amounts(pod.get("overhead"))
    return WirePodTemplate(tuple(containers), tuple(init), level, overhead)


def owner_of(pod: Mapping[str, Any], target: str) -> str:
    owner = pod.get("owner")
    return f"{owner['kind']}/{owner['name']}" if owner else target


def pods(listed: Sequence[Mapping[str, Any]], resources: Sequence[str], target: str = "") -> Pods:
    owners = sorted({owner_of(pod, target) for pod in listed})
    return Pods(
        names=tuple(pod["name"] for pod in listed),
        phase=bytes(PodPhase[pod.get("phase", "Running").upper()] for pod in listed),
        ready=bytes(_READY[pod.get("ready", True)] for pod in listed),
        deleted=bytes(bool(pod.get("deleted")) for pod in listed),
        started=tuple(at(pod.get("start_age_s", "zero")) for pod in listed),
        ready_since=tuple(at(pod.get("ready_transition_age_s", "zero")) for pod in listed),
        template=tuple(range(len(listed))),
        templates=tuple(template(pod, resources) for pod in listed),
        owner=tuple(owners.index(owner_of(pod, target)) for pod in listed) if target else (),
        owners=tuple(owners) if target else (),
    )


def sample(entry: Mapping[str, Any], value: int) -> core.Sample:
    age = entry.get("age_s", "zero")
    return core.Sample(value, at(age), float(entry.get("window_s", 60)))


def resource_answer(listed: Sequence[Mapping[str, Any]] | None, container: str) -> MetricAnswer:
    """Return what the metrics client makes of the API's items."""
    if not listed:
        return core.NoData("EmptyResult", "")
    samples = {}
    for entry in listed:
        usage = entry["usage"]
        if container:
            usage = {name: milli for name, milli in usage.items() if name == container}
        if usage and None not in usage.values():
            samples[entry["pod"]] = sample(entry, sum(usage.values()))
    return core.PodSamples(samples, NOW)


def pods_answer(listed: Sequence[Mapping[str, Any]] | None) -> MetricAnswer:
    if not listed:
        return core.NoData("EmptyResult", "")
    return core.PodSamples({each["pod"]: sample(each, each["value"]) for each in listed}, NOW)


def _not_a_number(value: Any) -> MetricAnswer | None:
    if isinstance(value, str):
        return core.NoData("NotANumber", f"the value is {value}")
    return None


def object_answer(value: Any, age: Any = 0) -> MetricAnswer:
    items = value if isinstance(value, list) else [value]
    if len(items) != 1:
        count = len(items)
        text = f"the custom metrics API server returned {count} results"
        return core.Unavailable("Ambiguous", f"{text} when we asked for exactly one")
    return _not_a_number(value) or core.ObjectSample(core.Sample(items[0], at(age)), NOW)


def external_answer(values: Sequence[Any] | None, age: Any = 0) -> MetricAnswer:
    if not values:
        return core.NoData("EmptyResult", "")
    for value in values:
        wrong = _not_a_number(value)
        if wrong is not None:
            return wrong
    return core.ExternalSamples(
        [
            core.ExternalSample({"series": str(index)}, core.Sample(value, at(age)))
            for index, value in enumerate(values)
        ],
        NOW,
    )


def selector(written: Mapping[str, str] | None) -> LabelSelector | None:
    return None if written is None else LabelSelector(dict(written))


def metric(written: Mapping[str, Any]) -> MetricSpec:
    target = written.get("target", {})
    described = written.get("describedObject")
    return MetricSpec(
        written["type"],
        written.get("resource") or written.get("metric", ""),
        container=written.get("container", ""),
        described=described
        and CrossVersionObjectReference(
            described["kind"], described["name"], described["apiVersion"]
        ),
        selector=selector(written.get("selector")),
        target_type=target.get("type", ""),
        value_milli=target.get("value"),
        average_value_milli=target.get("averageValue"),
        average_utilization=target.get("averageUtilization"),
    )


def behavior(written: Mapping[str, Any] | None) -> Any:
    if written is None:
        return None

    def rules(side: str) -> wire.ScalingRules | None:
        return None if written.get(side) is None else wire_rules(written[side])

    return read_behavior(wire.ScalingBehavior(rules("scaleUp"), rules("scaleDown")))


def wire_rules(written: Mapping[str, Any]) -> wire.ScalingRules:
    policies = written.get("policies")
    return wire.ScalingRules(
        written.get("stabilizationWindowSeconds"),
        written.get("selectPolicy"),
        None
        if policies is None
        else tuple(Policy(p["type"], p["value"], p["periodSeconds"]) for p in policies),
        written.get("tolerance"),
    )


def rules(written: Mapping[str, Any] | None, direction: str) -> Rules:
    default = UP if direction == "up" else DOWN
    return read_rules(None if written is None else wire_rules(written), default)


def events(written: Sequence[Mapping[str, Any]] | None) -> tuple[ScaleEvent, ...]:
    return tuple(
        ScaleEvent(each["change"], at(each["age_s"]) or NOW, each.get("outdated", False))
        for each in written or ()
    )


def recommendations(
    written: Sequence[Mapping[str, Any]] | None,
) -> tuple[Recommendation, ...] | None:
    if written is None:
        return None
    return tuple(Recommendation(each["replicas"], at(each["age_s"]) or NOW) for each in written)


def status(written: Mapping[str, Any], specs: Sequence[MetricSpec]) -> HpaStatus:
    scaled = written.get("lastScaleTime_age_s")
    conditions = tuple(
        AutoscalerCondition(
            each["type"], each["status"], each["reason"], each.get("message", ""), ZERO_TIME
        )
        for each in written["conditions"]
    )
    shown = [
        metric_status(each, spec)
        for each, spec in zip(written.get("currentMetrics", []), specs, strict=False)
    ]
    return HpaStatus(
        written["currentReplicas"],
        written["desiredReplicas"],
        None if scaled is None else at(scaled),
        tuple(shown),
        conditions,
    )


def metric_status(written: Mapping[str, Any], spec: MetricSpec) -> MetricStatus:
    if not written["type"]:
        return MetricStatus()
    current = written["current"]
    return MetricStatus(
        written["type"],
        written.get("resource") or written["metric"],
        written.get("container", ""),
        spec.described,
        spec.selector,
        current.get("value"),
        current.get("averageValue"),
        current.get("averageUtilization"),
    )


def hpa(inputs: Mapping[str, Any]) -> HPA:
    written, target = inputs["hpa"], inputs["target"]
    is_core = target["kind"] == "ReplicationController"
    version = written.get("target_api_version", "v1" if is_core else "apps/v1")
    minimum = written.get("minReplicas")
    specs = tuple(metric(each) for each in written["metrics"])
    return HPA(
        namespace=written.get("namespace", "test-namespace"),
        name=written.get("name", "test-hpa"),
        target=CrossVersionObjectReference(target["kind"], target.get("name", "web"), version),
        min_replicas=1 if minimum is None else minimum,
        max_replicas=written["maxReplicas"],
        metrics=specs,
        behavior=behavior(written.get("behavior")),
        status=status(inputs["status_before"], specs),
        options=read_options(written.get("annotations", {})),
    )


def answers(inputs: Mapping[str, Any]) -> tuple[MetricAnswer | None, ...]:
    faults = inputs.get("faults", {})
    errors = {each["metric"]: each for each in inputs.get("metric_errors", [])}
    found: list[MetricAnswer | None] = []
    for index, spec in enumerate(inputs["hpa"]["metrics"]):
        api = {"Pods": "custom", "Object": "custom", "External": "external"}.get(
            spec["type"], "resource"
        )
        if index in errors:
            error = errors[index]
            found.append(_CLASSES[error["class"]](error["class"], error.get("message", "")))
        elif f"{api}_metrics" in faults:
            found.append(core.Unavailable("Unavailable", faults[f"{api}_metrics"]))
        else:
            found.append(answer(spec, inputs))
    return tuple(found)


def answer(spec: Mapping[str, Any], inputs: Mapping[str, Any]) -> MetricAnswer | None:
    match spec["type"]:
        case "Resource" | "ContainerResource":
            return resource_answer(inputs.get("resource_metrics"), spec.get("container", ""))
        case "Pods":
            return pods_answer(inputs.get("custom_pod_metrics"))
        case "Object":
            return object_answer(inputs.get("object_metric"), inputs.get("object_metric_age_s", 0))
        case "External":
            age = inputs.get("external_metric_age_s", 0)
            return external_answer(inputs.get("external_metric"), age)
    return None


def scale(inputs: Mapping[str, Any]) -> Scale | ScaleUnreadable:
    faults, target = inputs.get("faults", {}), inputs["target"]
    if target["kind"] == "Gizmo":
        return ScaleUnreadable('no matches for kind "Gizmo" in group "apps"', "mapping")
    if "scale_get" in faults:
        return ScaleUnreadable(faults["scale_get"], kind=faults.get("scale_get_class", "Other"))
    return Scale(target["spec_replicas"], target["status_replicas"], target["selector"] or "")


def selected(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the pods behind the target's selector, as the pod list would."""
    try:
        ours = parse(inputs["target"]["selector"] or "")
    except SelectorError:
        return []
    return [pod for pod in inputs["pods"] if ours.matches(pod.get("labels", LABELS))]


def rivals(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the registered HPAs that select one of the pods behind our own selector."""
    behind = [pod.get("labels", LABELS) for pod in selected(inputs)]
    return tuple(
        name
        for name, text in inputs.get("other_hpa_selectors", {}).items()
        if any(parse(text).matches(labels) for labels in behind)
    )


def observation(inputs: Mapping[str, Any]) -> Observation:
    read = hpa(inputs)
    target = inputs["target"]
    resources = {each.get("resource", "cpu") for each in inputs["hpa"]["metrics"]}
    same = tuple(
        name
        for name, other in inputs.get("other_hpa_targets", {}).items()
        if (other["kind"], other["name"]) == (target["kind"], read.target.name)
    )
    return Observation(
        read,
        scale(inputs),
        pods(selected(inputs), sorted(resources), f"{target['kind']}/{read.target.name}"),
        answers(inputs),
        rivals(inputs),
        same,
    )


def past(inputs: Mapping[str, Any]) -> Past:
    return Past(
        recommendations(inputs["recommendations"]),
        events(inputs.get("scale_up_events")),
        events(inputs.get("scale_down_events")),
    )


def outcome(inputs: Mapping[str, Any]) -> Outcome:
    faults, target = inputs.get("faults", {}), inputs["target"]
    status_error = faults.get("status_update")
    if "scale_update" in faults:
        return Outcome("failed", faults["scale_update"], status_error)
    if faults.get("scale_update_conflicts", 0) >= 5:
        is_core = target["kind"] == "ReplicationController"
        resource = f"{target['kind'].lower()}s" + ("" if is_core else ".apps")
        text = f'Operation cannot be fulfilled on {resource} "web": the object has been modified'
        return Outcome("conflict", text, status_error)
    return Outcome("written", "", status_error)
