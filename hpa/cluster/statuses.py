"""A status on its way to the API server: what changed, and whether it is worth a write.

Pure. Conditions, counts and times go out at once; a metric's value alone waits until it
moved by a share of its target or five minutes are over (status writes dominate the cost of
a controller, for it and for the API server).
"""

from hpa.decide.api.spec import (
    HPA,
    Condition,
    HpaStatus,
    MetricSpec,
    MetricStatus,
)
from hpa.decide.api.wire import METRIC_FIELDS
from podscale.core.quantity import format_milli
from podscale.core.times.rfc3339 import rfc3339

REPORTS_S = 300.0  # values are written once in this time, however little they moved


def is_due(hpa: HPA, new: HpaStatus, age_s: float, *, deadband: float) -> bool:
    """Return whether ``new`` is to be written, values alone having been written ``age_s`` ago."""
    return age_s >= REPORTS_S or tells_more(hpa, new, deadband=deadband)


def tells_more(hpa: HPA, new: HpaStatus, *, deadband: float) -> bool:
    """Return whether ``new`` differs from ``hpa.status`` by more than values that moved by less
    than ``deadband``, a share of each metric's target; with 0 every change is more."""
    old = hpa.status
    if deadband <= 0 or (
        old.conditions != new.conditions
        or old.current_replicas != new.current_replicas
        or old.desired_replicas != new.desired_replicas
        or old.last_scale_s != new.last_scale_s
        or old.observed_generation != new.observed_generation
        or len(old.metrics) != len(new.metrics)
    ):
        return True
    for place, (before, after) in enumerate(zip(old.metrics, new.metrics, strict=True)):
        spec = hpa.metrics[place] if place < len(hpa.metrics) else None
        if before != after and _moved(before, after, spec, deadband):
            return True
    return False


def changes(old: HpaStatus, new: HpaStatus) -> dict[str, object]:
    """Return the fields of ``status`` that differ, for a merge patch; lists are whole."""
    fields: dict[str, object] = {}
    if old.current_replicas != new.current_replicas:
        fields["currentReplicas"] = new.current_replicas
    # Required by the schema: a first status needs it, whatever its value.
    if old.desired_replicas != new.desired_replicas or not old.conditions:
        fields["desiredReplicas"] = new.desired_replicas
    if old.last_scale_s != new.last_scale_s:
        fields["lastScaleTime"] = None if new.last_scale_s is None else rfc3339(new.last_scale_s)
    if old.observed_generation != new.observed_generation:
        fields["observedGeneration"] = new.observed_generation
    if old.metrics != new.metrics:
        fields["currentMetrics"] = [_metric(each) for each in new.metrics] or None
    if old.conditions != new.conditions:
        fields["conditions"] = [_condition(each) for each in new.conditions]
    return fields


def _condition(condition: Condition) -> dict[str, object]:
    at, observed = condition.transition_s, condition.observed_generation
    written: dict[str, object] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": None if at is None else rfc3339(at),
    }
    return written if observed is None else {**written, "observedGeneration": observed}


def _moved(
    before: MetricStatus, after: MetricStatus, spec: MetricSpec | None, deadband: float
) -> bool:
    if spec is None or before.type != after.type or before.name != after.name:
        return True
    if after.average_utilization is not None:
        # The average belongs to it and moves with it.
        both = before.average_utilization, after.average_utilization
        return _is_apart(*both, spec.average_utilization, deadband)
    averages = before.average_value_milli, after.average_value_milli
    return _is_apart(*averages, spec.average_value_milli, deadband) or _is_apart(
        before.value_milli, after.value_milli, spec.value_milli, deadband
    )


def _is_apart(was: int | None, now: int | None, target: int | None, deadband: float) -> bool:
    if was is None or now is None:
        return was is not now
    return not target or abs(now - was) >= deadband * target


def _metric(metric: MetricStatus) -> dict[str, object]:
    field = METRIC_FIELDS.get(metric.type)
    if field is None:
        return {"type": metric.type}
    is_resource = metric.type in ("Resource", "ContainerResource")
    current: dict[str, object] = {}
    if metric.value_milli is not None:
        current["value"] = format_milli(metric.value_milli)
    if metric.average_value_milli is not None:
        is_memory = is_resource and metric.name == "memory"
        current["averageValue"] = format_milli(
            metric.average_value_milli, "BinarySI" if is_memory else "DecimalSI"
        )
    if metric.average_utilization is not None:
        current["averageUtilization"] = metric.average_utilization
    source: dict[str, object] = {"current": current}
    if is_resource:
        source["name"] = metric.name
        if metric.container:
            source["container"] = metric.container
    else:
        identifier: dict[str, object] = {"name": metric.name}
        source["metric"] = identifier
        if metric.selector is not None:
            identifier["selector"] = metric.selector.fields()
        if (described := metric.described) is not None:
            written = {"kind": described.kind, "name": described.name}
            if described.api_version:
                written["apiVersion"] = described.api_version
            source["describedObject"] = written
    return {"type": metric.type, field: source}
