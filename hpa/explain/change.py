"""What would have to change for it to scale (or to stop): one sentence per first reason."""

import math
from collections.abc import Callable, Mapping

from hpa.decide.answers import is_bad_selector
from hpa.decide.spec import MetricSpec
from hpa.decide.steps import TargetUnreadable
from hpa.explain.amounts import age, amount, listed, verb
from hpa.explain.facts import Fact, spec_of, window_of
from hpa.explain.reading import Told, step_of
from hpa.explain.sentences import why_not
from hpa.explain.whatif import within_tolerance

Ask = Callable[[Told, Mapping[str, Fact]], str]


def change(told: Told, reason: str, facts: Mapping[str, Fact]) -> str:
    """Return the sentence for ``reason``."""
    ask = _BY_REASON.get(reason)
    return _FIXED[reason] if ask is None else ask(told, facts)


def _target(told: Told, facts: Mapping[str, Fact]) -> str:
    step = step_of(told.trace, TargetUnreadable)
    if step is not None and step.kind == "Other":
        return f"The scale of {told.target} becomes readable ({facts.get('message')})."
    return "The target exists under the name in scaleTargetRef."


def _tolerance(told: Told, facts: Mapping[str, Fact]) -> str:
    held = within_tolerance(told)
    spec = spec_of(told) if held is None else told.spec(held)
    up, down = facts.get("tolerance_up"), facts.get("tolerance_down")
    if spec is None or not isinstance(up, float) or not isinstance(down, float):
        return "The value leaves the tolerance."
    return (
        f"{spec.name} rises above {_at(spec, 1 + up)} or falls below {_at(spec, 1 - down)}, "
        "or a smaller tolerance is set in behavior."
    )


def _rounded(told: Told, facts: Mapping[str, Fact]) -> str:
    spec, current = spec_of(told), told.current
    counted = facts.get("ready_pods")
    pods = counted if isinstance(counted, int) and counted else current
    if spec is None or not current or not pods or current < 2:
        return "The load falls by a whole pod."
    return f"{spec.name} falls to {_at(spec, (current - 1) / pods)} or below."


def _at(spec: MetricSpec, ratio: float) -> str:
    if spec.average_utilization is not None and spec.average_value_milli is None:
        return f"{spec.average_utilization * ratio:.4g} %"
    target = (spec.value_milli if spec.is_by_value else spec.average_value_milli) or 0
    return amount(math.floor(target * ratio), spec.name)


def _window(told: Told, facts: Mapping[str, Fact]) -> str:  # noqa: ARG001 - one signature
    step = told.window
    if step is None or step.held_by is None:
        return "Earlier recommendations leave the window, or the window is shortened."
    is_up = step.direction == "up"
    left = window_of(told, is_up=is_up) - (told.trace.now - step.held_by.at)
    when = f"at the earliest in {age(left)}" if left >= 1 else "which it does with the next pass"
    return (
        f"The recommendation of {step.held_by.replicas} leaves the window, {when}, or the window "
        "is shortened."
    )


def _rate(told: Told, facts: Mapping[str, Fact]) -> str:  # noqa: ARG001 - one signature
    policy = None if told.limit is None else told.limit.policy
    if policy is None:
        return "The period of the policy passes, or the policy is widened."
    return (
        f"The {policy.period_seconds} s of the policy go by and the next pass goes on, or the "
        "policy is widened."
    )


def _failed_metric(told: Told, facts: Mapping[str, Fact]) -> str:
    metric = facts.get("metric") or "The metric"
    invalid = told.invalid()
    text = why_not(invalid[0][1]) if invalid else ""
    needed = f"{metric} becomes readable"
    if invalid and is_bad_selector(invalid[0][1].failure):
        needed = f"The selector of {metric} is corrected in the HPA"
    return f"{needed} ({text}), or podscale.io/fallback names what stands in."


def _request(told: Told, facts: Mapping[str, Fact]) -> str:
    container, resource = facts.get("container"), facts.get("resource")
    problem = next((result.problem for _, result in told.invalid()), None)
    who = f"Container {container} gets" if container else "The pods get"
    if not container and problem is not None:
        who = f"Pod {problem.pod} gets"
    much = " above zero" if problem is None else ""  # every pod has one, of nothing
    return (
        f"{who} a request for {resource}{much}, or the metric uses averageValue or "
        "ContainerResource."
    )


def _container(told: Told, facts: Mapping[str, Fact]) -> str:  # noqa: ARG001 - one signature
    return f"The HPA names a container that the pods have; {facts.get('container')} is in none."


def _maximum(told: Told, facts: Mapping[str, Fact]) -> str:
    desired = facts.get("desired")
    return f"maxReplicas is raised from {told.hpa.max_replicas} (the metrics ask for {desired})."


def _minimum(told: Told, facts: Mapping[str, Fact]) -> str:
    desired = facts.get("desired")
    return f"minReplicas is lowered from {told.hpa.min_replicas} (the metrics ask for {desired})."


def _pods(text: str) -> Ask:
    def ask(told: Told, facts: Mapping[str, Fact]) -> str:  # noqa: ARG001 - one signature
        given = facts.get("pods")
        names = [str(each) for each in given] if isinstance(given, list) else []
        return text.format(
            pods=listed(names) or "pods",
            s=verb(names, "s", ""),
            have=verb(names, "has", "have"),
            are=verb(names, "is", "are"),
        )

    return ask


_BY_REASON: Mapping[str, Ask] = {
    "TargetNotFound": _target,
    "WithinTolerance": _tolerance,
    "RoundedUpToCurrent": _rounded,
    "ScaleUpStabilized": _window,
    "ScaleDownStabilized": _window,
    "ScaleUpRateLimited": _rate,
    "ScaleDownRateLimited": _rate,
    "MaxReplicasReached": _maximum,
    "MinReplicasReached": _minimum,
    "RequestMissing": _request,
    "ContainerNotFound": _container,
    **dict.fromkeys(
        ("MetricUnavailable", "MetricNotFound", "MetricNoData", "MetricStale", "MetricRefused"),
        _failed_metric,
    ),
    "ForeignPodsCounted": _pods(
        "{pods} get{s} other labels, or podscale.io/pods-by: owner leaves them out."
    ),
    "StalePodsInAnswer": _pods("The query stops returning {pods}, which {are} gone."),
    "NotReadyPodsLeftOut": _pods("{pods} become{s} ready, or the target is an AverageValue."),
    "MissingPodMetrics": _pods("{pods} report{s} the metric."),
    "CpuInitialization": _pods("{pods} {have} a whole sample window after becoming ready."),
    "NeverReadyPods": _pods("{pods} become{s} ready."),
    "PendingPods": _pods("{pods} {are} scheduled and start{s}."),
    "AllPodsUnready": _pods("At least one pod becomes ready ({pods} {are} not)."),
}

PUT_OFF = (
    "Nothing: it is decided anew with the next pass, and written once every watch is current and "
    "the write gets its turn."
)

_FIXED: Mapping[str, str] = {
    "Paused": "The annotation podscale.io/paused is removed.",
    "ShadowMode": "podscale runs in replace mode, or the controller that acts follows.",
    "ScaleForbidden": "get and update on the target's scale subresource are granted.",
    "SelectorMissing": "The target's scale reports status.selector.",
    "SelectorInvalid": "The target's scale reports a selector that can be parsed.",
    "SameTargetAsOtherHPA": "All but one of the HPAs are deleted; one HPA may hold all metrics.",
    "AmbiguousSelector": "The selectors of the targets no longer share a pod.",
    "DisabledAtZero": "The target is scaled to at least 1 by hand.",
    "NoWakeUpMetric": (
        "An Object or External metric is added, or minReplicas is set to 1 and the target scaled "
        "up by hand."
    ),
    "IdleAtZero": "The metric rises above zero.",
    "BelowMinCorrected": "minReplicas is lowered to keep fewer.",
    "AboveMaxCorrected": "maxReplicas is raised to keep more.",
    "NoPodsMatched": "Pods with the labels of the selector come into being.",
    "MetricNotANumber": "The query yields a number; a denominator of zero is the usual cause.",
    "MetricAmbiguous": "The query is aggregated to one series per object.",
    "AllMetricsInvalid": "At least one metric can be read.",
    "ScaleDownBlockedByInvalidMetric": "The unreadable metric is repaired, removed, or given a "
    "fallback.",
    "InvalidMetricIgnored": "Nothing for now; the metric is repaired before the load falls.",
    "SeriesSummed": "The metric selects one series, or the target is set for the sum.",
    "RolloutReplicasDiffer": "The rollout ends.",
    "FinishedPodsIgnored": "Nothing; the finished pods may be deleted.",
    "TerminatingPodsIgnored": "Nothing.",
    "LargestProposalWins": "The metric with the largest proposal falls.",
    "DirectionWouldFlip": "The silent pods report.",
    "LegacyScaleUpLimit": "Nothing: the next pass goes on. behavior sets another limit.",
    "ScaleUpDisabled": "behavior.scaleUp.selectPolicy is set to Max or Min.",
    "ScaleDownDisabled": "behavior.scaleDown.selectPolicy is set to Max or Min.",
    "MinEqualsMax": "minReplicas and maxReplicas are set apart.",
    "MetricAboveTarget": "The metric falls, or its target is raised.",
    "AllMetricsBelowTarget": "A metric rises, or a target is lowered.",
    "ScaleUpdateFailed": "What refuses the write (permission, webhook, validation) is removed.",
    "ScaleUpdateConflict": "The other writer of the target is stopped.",
}
