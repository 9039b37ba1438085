"""From the wire to what is decided on: defaults filled in, quantities in milli-units.

Defaults follow ``SetDefaults_HorizontalPodAutoscaler`` of autoscaling/v2, Kubernetes
1.37. Objects from an API server have most of them already; files and the CRD need them. What v1
has no field for it keeps in annotations (``pkg/apis/autoscaling/v1`` conversion); of its status
numbers and conditions are read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

from hpa.decide.api.options import read_options, shown
from hpa.decide.api.spec import (
    HPA,
    LONGEST_POLICY_S,
    LONGEST_WINDOW_S,
    Behavior,
    HpaStatus,
    MetricSpec,
    MetricStatus,
    Rules,
)
from hpa.decide.numbers import INT32_MAX, INT32_MIN
from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.core.settings import SYNC_PERIOD
from podscale.kube.client.wire import LabelSelector, Quantity, convert
from podscale.kube.objects import autoscaler as wire

UP = Rules(0, "Max", (wire.Policy("Pods", 4, 15), wire.Policy("Percent", 100, 15)))
DOWN = Rules(None, "Max", (wire.Policy("Percent", 100, 15),))
DEFAULT_METRIC = MetricSpec("Resource", "cpu", target_type="Utilization", average_utilization=80)


def read(written: wire.Autoscaler) -> HPA:
    """Return the object to decide on.

    Raises ``quantity.QuantityError`` for a quantity that is none, which an API server
    does not let through.
    """
    spec = written.spec
    options = read_options(written.metadata.annotations or {}, spec.max_replicas)
    texts = [
        f"{path}: podscale does not know this field, and decides without it" for path in spec.unread
    ]
    remarks = [("UnknownField", text) for text in shown(texts)]
    own_s = spec.sync_period_seconds
    if own_s is not None and options.sync_period_s is not None:
        text = f"spec.syncPeriodSeconds: {own_s} does not count beside the annotation {SYNC_PERIOD}"
        remarks.append(("TwoSyncPeriods", text))
    elif own_s is not None:
        options = structs.replace(options, sync_period_s=float(own_s))
    return HPA(
        namespace=written.metadata.namespace,
        name=written.metadata.name,
        target=spec.scale_target_ref,
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        max_replicas=spec.max_replicas,
        metrics=tuple(read_metric(each) for each in spec.metrics or ()) or (DEFAULT_METRIC,),
        behavior=read_behavior(spec.behavior),
        status=read_status(written.status),
        generation=written.metadata.generation,
        options=options,
        remarks=tuple(remarks),
    )


def read_behavior(behavior: wire.ScalingBehavior | None) -> Behavior | None:
    """Return both directions, filled field by field; None stays None (the legacy path)."""
    if behavior is None:
        return None
    return Behavior(read_rules(behavior.scale_up, UP), read_rules(behavior.scale_down, DOWN))


def read_rules(rules: wire.ScalingRules | None, default: Rules) -> Rules:
    """Return ``rules`` over ``default``; a list of policies replaces the whole default list."""
    if rules is None:
        return default
    window = rules.stabilization_window_seconds
    select = default.select if rules.select_policy is None else rules.select_policy
    return Rules(
        default.window_s if window is None else min(window, LONGEST_WINDOW_S),
        select,
        default.policies if rules.policies is None else _deciding(rules.policies),
        None if rules.tolerance is None else quantity.from_wire(rules.tolerance).approximate,
    )


def _deciding(policies: tuple[wire.Policy, ...]) -> tuple[wire.Policy, ...]:
    # Of those of one type and period the least or the greatest decides. Which, a pass knows: scale
    # events may take the size before them below zero, where percents turn round. Few are left.
    capped = [
        structs.replace(each, period_seconds=min(each.period_seconds, LONGEST_POLICY_S))
        for each in policies
    ]
    by_value = sorted(capped, key=lambda each: each.value)
    least = {(each.type, each.period_seconds): each for each in reversed(by_value)}
    greatest = {(each.type, each.period_seconds): each for each in by_value}
    deciding = {*least.values(), *greatest.values()}
    return tuple(each for each in dict.fromkeys(capped) if each in deciding)


def read_metric(metric: wire.AutoscalerMetric) -> MetricSpec:
    """Return one metric; a type nobody knows keeps only its type."""
    source = metric.sources.get(metric.type)
    if source is None:
        return MetricSpec(metric.type)
    target = source.target
    return MetricSpec(
        *_identity(metric, source),
        _milli(target.value),
        _milli(target.average_value),
        target.average_utilization,
        target.type,
    )


def read_status(status: wire.AutoscalerStatus) -> HpaStatus:
    return HpaStatus(
        status.current_replicas,
        status.desired_replicas,
        _seconds(status.last_scale_time),
        tuple(_current(each) for each in status.current_metrics or ()),
        status.conditions or (),
        status.observed_generation,
    )


def _current(metric: wire.AutoscalerMetric) -> MetricStatus:
    source = metric.sources.get(metric.type)
    if source is None:
        return MetricStatus(metric.type)
    return MetricStatus(
        *_identity(metric, source),
        _shown(source.current.value),
        _shown(source.current.average_value),
        source.current.average_utilization,
    )


def _identity(
    metric: wire.AutoscalerMetric, source: wire.AutoscalerSource
) -> tuple[str, str, str, wire.CrossVersionObjectReference | None, LabelSelector | None]:
    is_resource = metric.type in ("Resource", "ContainerResource")
    name, about = source.name if is_resource else source.metric.name, source.described_object
    return metric.type, name, source.container, about, source.metric.selector


def _seconds(time: float | None) -> float | None:
    # The wire's own class of float has no form in a stored trace.
    return None if time is None else float(time)


def _shown(amount: Quantity | None) -> int | None:
    try:
        return _milli(amount)
    except quantity.QuantityError:
        return None  # only a CRD lets it through; the next write puts it right


def _milli(amount: Quantity | None) -> int | None:
    return None if amount is None else quantity.from_wire(amount).milli_int64


T = TypeVar("T")
Json = dict[str, Any]
_Olds = list[dict[str, str | Json | None]]  # metrics before v2

PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS = PREFIX + "metrics"
CONDITIONS = PREFIX + "conditions"
BEHAVIOR = PREFIX + "behavior"
_OURS = (METRICS, PREFIX + "current-metrics", CONDITIONS, BEHAVIOR)

_INT64 = ("generation", "observed_generation")  # of Go; every other integer is an int32

_AS_V2 = ("autoscaling/v2", "autoscaling.podscale.io/v1")


class ConversionError(ValueError):
    """The object cannot be read as an HPA; the message says which part."""


def to_v2(written: Mapping[str, Any]) -> wire.Autoscaler:
    """Return the object in v2's form; the v1 annotations are gone from it."""
    version = written.get("apiVersion", "autoscaling/v2")
    if version == "autoscaling/v1":
        converted = _from_v1(written)
    elif version in _AS_V2:
        converted = dict(written)
    else:
        raise ConversionError(f"{version} is not a version of HorizontalPodAutoscaler")
    metadata = dict(converted.get("metadata") or {})
    annotations = metadata.get("annotations") or {}
    # Internal to the v1 form: set by hand on a v2 object they have no effect.
    metadata["annotations"] = {k: v for k, v in annotations.items() if k not in _OURS}
    converted["metadata"] = metadata
    try:
        return _fitting(converted, wire.Autoscaler)
    except msgspec.ValidationError as error:
        raise ConversionError(str(error)) from None


def _from_v1(written: Mapping[str, Any]) -> Json:
    annotations = (written.get("metadata") or {}).get("annotations") or {}
    spec, status = dict(written.get("spec") or {}), dict(written.get("status") or {})
    metrics = _annotation(annotations, METRICS, _metrics) or []
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if metrics:
        spec["metrics"] = metrics
    behavior = _annotation(annotations, BEHAVIOR, _behavior)
    if behavior is not None:
        spec["behavior"] = behavior
    conditions = _annotation(annotations, CONDITIONS, _conditions)
    if conditions is not None:
        status["conditions"] = conditions
    return {**written, "apiVersion": "autoscaling/v2", "spec": spec, "status": status}


def _annotation(annotations: Mapping[str, str], key: str, turned: Callable[[Any], Any]) -> Any:
    """Return what v1 keeps under ``key``, in v2's form; None if there is nothing.

    Upstream leaves out, without a word, what it cannot decode.
    """
    if key not in annotations:
        return None
    try:
        return turned(decode_json(annotations[key]))
    except (ConversionError, ValueError, TypeError, RecursionError):
        return None


def _metrics(value: Any) -> list[Json]:
    found = [_metric(each) for each in msgspec.convert(value, _Olds | None) or []]
    for each in _fitting(found, list[wire.AutoscalerMetric]):
        read_metric(each)  # raises for quantities that are none
    return found


def _behavior(value: Any) -> Json | None:
    found: Json = _lowered(value)
    behavior = _fitting(found, wire.ScalingBehavior)
    read_behavior(behavior)
    is_set = behavior.scale_up is not None or behavior.scale_down is not None
    return found if is_set else None


def _conditions(value: Any) -> Any:
    found = [] if value is None else value
    _fitting(found, list[wire.AutoscalerCondition])
    return found


def _fitting(value: Any, form: type[T]) -> T:
    """Return ``value`` in that form; raises where Go could not decode it."""
    found = convert(value, form)
    for path, number in _beyond_int32(found):
        raise ConversionError(f"{path}: {number} does not fit into an int32")
    return found


def _beyond_int32(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the integers of a decoded object that Go has no room for, with their fields."""
    if isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _beyond_int32(each, f"{path}[{index}]")
    elif isinstance(value, Struct):
        for field in msgspec.structs.fields(value):
            found = getattr(value, field.name)
            where = f"{path}.{field.encode_name}".lstrip(".")
            if field.type not in (int, int | None):  # amounts are of another type
                yield from _beyond_int32(found, where)
            elif field.name not in _INT64 and not INT32_MIN <= (found or 0) <= INT32_MAX:
                yield where, found


def _metric(old: Mapping[str, Any]) -> Json:
    """Return one metric of v1's annotation in v2's form."""
    kind = old.get("type", "")
    new: Json = {"type": kind}
    for field in ("resource", "containerResource"):
        if source := old.get(field):
            percent = source.get("targetAverageUtilization")
            average = source.get("targetAverageValue")
            target = {
                "type": "Utilization" if average is None else "AverageValue",
                "averageUtilization": percent,
                "averageValue": average,
            }
            new[field] = {
                "name": source.get("name", ""),
                "container": source.get("container", ""),
                "target": target,
            }
    if source := old.get("pods"):
        average = source.get("targetAverageValue")
        target = {"type": "AverageValue", "averageValue": average}
        new["pods"] = {"metric": _identifier(source, "selector"), "target": target}
    if source := old.get("object"):
        new["object"] = {
            "metric": _identifier(source, "selector"),
            "describedObject": source.get("target", {}),
            "target": _object_target(source.get("targetValue"), source.get("averageValue")),
        }
    if source := old.get("external"):
        new["external"] = {
            "metric": _identifier(source, "metricSelector"),
            "target": _value_target(source.get("targetValue"), source.get("targetAverageValue")),
        }
    return new


def _object_target(value: Any, average: Any) -> Json:
    # Before v2 the field could not be left out: beside an average zero stands for nothing.
    return _value_target(None if average is not None and _is_zero(value) else value, average)


def _is_zero(amount: Any) -> bool:
    try:
        return amount is not None and quantity.from_wire(amount).nano == 0
    except quantity.QuantityError:
        return False


def _value_target(value: Any, average: Any) -> Json:
    kind = "Value" if average is None else "AverageValue"
    return {"type": kind, "value": value, "averageValue": average}


def _identifier(source: Mapping[str, Any], selector: str) -> Json:
    return {"name": source.get("metricName", ""), "selector": source.get(selector)}


def _lowered(value: Any) -> Any:
    # The annotation holds the internal type, whose fields carry Go's capitals.
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _lowered(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_lowered(each) for each in value]
    return value
