"""The status on its way to the API server: quantities as upstream writes them."""

from collections.abc import Mapping
from typing import Any

from hpa.decide.spec import Condition, MetricSelector, MetricStatus, ObjectReference, Status
from hpa.decide.times import to_rfc3339
from podscale.core.quantity import Format, format_milli

Json = dict[str, Any]  # what goes into a JSON body


def resource_format(resource: str) -> Format:
    """Return the notation of a resource's quantities; memory counts in powers of two."""
    return "BinarySI" if resource == "memory" else "DecimalSI"


def to_wire(status: Status) -> Json:
    """Return ``status`` as the body of a PUT has it; absent fields are left out."""
    written: Json = {
        "currentReplicas": status.current_replicas,
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": [_metric(each) for each in status.metrics] or None,
        "conditions": [_condition(each) for each in status.conditions],
    }
    if status.last_scale_s is not None:
        written["lastScaleTime"] = to_rfc3339(status.last_scale_s)
    if status.observed_generation is not None:
        written["observedGeneration"] = status.observed_generation
    return written


def _condition(condition: Condition) -> Json:
    written: Json = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.transition_s is not None:
        written["lastTransitionTime"] = to_rfc3339(condition.transition_s)
    return written


def _metric(metric: MetricStatus) -> Json:
    current = _present(
        {
            "value": _text(metric.value_milli, metric.name),
            "averageValue": _text(metric.average_value_milli, metric.name),
            "averageUtilization": metric.average_utilization,
        }
    )
    identifier: Json = {"name": metric.name}
    if metric.selector is not None:
        identifier["selector"] = _selector(metric.selector)
    match metric.type:
        case "Resource":
            source: Json = {"name": metric.name, "current": current}
        case "ContainerResource":
            source = {"name": metric.name, "container": metric.container, "current": current}
        case "Object":
            source = {
                "metric": identifier,
                "describedObject": _reference(metric.described),
                "current": current,
            }
        case "Pods" | "External":
            source = {"metric": identifier, "current": current}
        case _:
            return {"type": ""}
    return {"type": metric.type, metric.type[0].lower() + metric.type[1:]: source}


def _text(milli: int | None, name: str) -> str | None:
    return None if milli is None else format_milli(milli, resource_format(name))


def _reference(reference: ObjectReference | None) -> Json:
    if reference is None:
        return {}
    found = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "name": reference.name,
    }
    return {key: value for key, value in found.items() if value}


def _selector(selector: MetricSelector) -> Json:
    written: Json = {}
    if selector.match_labels:
        written["matchLabels"] = dict(selector.match_labels)
    if selector.match_expressions:
        written["matchExpressions"] = [
            _present({"key": e.key, "operator": e.operator, "values": list(e.values) or None})
            for e in selector.match_expressions
        ]
    return written


def _present(fields: Mapping[str, Any]) -> Json:
    return {key: value for key, value in fields.items() if value is not None}
