"""From the wire to what is decided on: defaults filled in, quantities in milli-units.

Defaults follow ``SetDefaults_HorizontalPodAutoscaler`` of autoscaling/v2, Kubernetes
1.37. Objects from an API server have most of them already; files and the CRD need them.
"""

from typing import Literal

from msgspec import structs

from hpa.decide.api.options import read_options
from hpa.decide.api.spec import (
    HPA,
    LONGEST_POLICY_S,
    LONGEST_WINDOW_S,
    Behavior,
    Condition,
    HpaStatus,
    MetricSpec,
    MetricStatus,
    Rules,
)
from podscale.core import quantity
from podscale.kube.client.wire import Quantity
from podscale.kube.objects.autoscaler import (
    Autoscaler,
    AutoscalerCondition,
    AutoscalerMetric,
    AutoscalerSource,
    AutoscalerStatus,
    Policy,
    ScalingBehavior,
    ScalingRules,
)

UP = Rules(0, "Max", (Policy("Pods", 4, 15), Policy("Percent", 100, 15)))
DOWN = Rules(None, "Max", (Policy("Percent", 100, 15),))
DEFAULT_METRIC = MetricSpec("Resource", "cpu", target_type="Utilization", average_utilization=80)


def read(written: Autoscaler) -> HPA:
    """Return the object to decide on.

    Raises ``quantity.QuantityError`` for a quantity that is none, which an API server
    does not let through.
    """
    spec = written.spec
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
        options=read_options(written.metadata.annotations or {}, spec.max_replicas),
    )


def read_behavior(behavior: ScalingBehavior | None) -> Behavior | None:
    """Return both directions, filled field by field; None stays None (the legacy path)."""
    if behavior is None:
        return None
    return Behavior(read_rules(behavior.scale_up, UP), read_rules(behavior.scale_down, DOWN))


def read_rules(rules: ScalingRules | None, default: Rules) -> Rules:
    """Return ``rules`` over ``default``; a list of policies replaces the whole default list."""
    if rules is None:
        return default
    window = rules.stabilization_window_seconds
    select = default.select if rules.select_policy is None else rules.select_policy
    return Rules(
        default.window_s if window is None else min(window, LONGEST_WINDOW_S),
        select,
        default.policies if rules.policies is None else _deciding(rules.policies, select),
        None if rules.tolerance is None else quantity.from_wire(rules.tolerance).approximate,
    )


def _deciding(policies: tuple[Policy, ...], select: str) -> tuple[Policy, ...]:
    # Of those of one type and period one decides: of thousands few are left.
    found: dict[tuple[str, int], Policy] = {}
    for each in policies:
        key = each.type, min(each.period_seconds, LONGEST_POLICY_S)
        known = found.get(key)
        sign = -1 if select == "Min" else 1
        if known is None or sign * each.value > sign * known.value:
            found.pop(key, None)  # of equals the first in order is named
            found[key] = structs.replace(each, period_seconds=key[1])
    return tuple(found.values())


def read_metric(metric: AutoscalerMetric) -> MetricSpec:
    """Return one metric; a type nobody knows keeps only its type."""
    source = metric.sources.get(metric.type)
    if source is None:
        return MetricSpec(metric.type)
    target = source.target
    return MetricSpec(
        metric.type,
        _name(metric, source),
        container=source.container,
        described=source.described_object,
        selector=source.metric.selector,
        target_type=target.type,
        value_milli=_milli(target.value),
        average_value_milli=_milli(target.average_value),
        average_utilization=target.average_utilization,
    )


def read_status(status: AutoscalerStatus) -> HpaStatus:
    return HpaStatus(
        status.current_replicas,
        status.desired_replicas,
        _seconds(status.last_scale_time),
        tuple(_current(each) for each in status.current_metrics or ()),
        tuple(_condition(each) for each in status.conditions or ()),
        status.observed_generation,
    )


def _current(metric: AutoscalerMetric) -> MetricStatus:
    source = metric.sources.get(metric.type)
    if source is None:
        return MetricStatus(metric.type)
    return MetricStatus(
        metric.type,
        _name(metric, source),
        source.container,
        source.described_object,
        source.metric.selector,
        _shown(source.current.value),
        _shown(source.current.average_value),
        source.current.average_utilization,
    )


def _name(metric: AutoscalerMetric, source: AutoscalerSource) -> str:
    return source.name if metric.type in ("Resource", "ContainerResource") else source.metric.name


def _seconds(time: float | None) -> float | None:
    # The wire's own class of float has no form in a stored trace.
    return None if time is None else float(time)


def _shown(amount: Quantity | None) -> int | None:
    try:
        return _milli(amount)
    except quantity.QuantityError:
        return None  # only a CRD lets it through; the next write puts it right


def _condition(condition: AutoscalerCondition) -> Condition:
    statuses: dict[str, Literal["True", "False"]] = {"True": "True", "False": "False"}
    return Condition(
        condition.type,
        statuses.get(condition.status, "Unknown"),
        condition.reason,
        condition.message,
        _seconds(condition.last_transition_time),
        condition.observed_generation,
    )


def _milli(amount: Quantity | None) -> int | None:
    return None if amount is None else quantity.from_wire(amount).milli_int64
