"""The reasons of a decision, the one to name first in front.

The rule is written down in the header of ``cases/explain.yaml``: gate, target, conflict,
metrics that cannot be used; then what is *binding*, that is, without which alone the
number would be another one; then the last step that changed the number; then the plain
outcome. A decision that was not put into effect says so before everything.
"""

from collections.abc import Sequence

from hpa.decide import decision as steps
from hpa.decide.metrics.answers import BAD_SELECTOR
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import MetricFailure
from hpa.decide.pods import PodGroups
from hpa.decide.reconcile import wakes
from hpa.decide.settings import Variation
from hpa.explain import whatif
from hpa.explain.reading import ReadTrace, step_of
from podscale.core.metrics import NoData, NotFound, PodSamples, Refused, Stale

FORECAST, SCHEDULED = "ForecastAboveMetrics", "ScheduledMinimumReached"

# In the order in which binding reasons are named.
_DATA: tuple[tuple[str, whatif.WhatIf], ...] = (
    ("ForeignPodsCounted", whatif.without_foreign_pods),
    ("StalePodsInAnswer", whatif.without_gone_pods),
    ("SeriesSummed", whatif.with_one_series),
    ("RolloutReplicasDiffer", whatif.without_rollout),
    ("NotReadyPodsLeftOut", whatif.with_all_pods_ready),
    ("MissingPodMetrics", whatif.averaging("missing")),
    ("CpuInitialization", whatif.averaging("initializing")),
    ("NeverReadyPods", whatif.averaging("never_ready")),
    ("PendingPods", whatif.averaging("pending")),
    ("LargestProposalWins", whatif.without_largest),
)
_POD_TYPES = ("Resource", "ContainerResource", "Pods")
# Of a metric that its source could not answer.
FAILURES = (
    "MetricUnavailable",
    "MetricNotFound",
    "MetricNoData",
    "MetricStale",
    "MetricRefused",
    "MetricQueryInvalid",
)
# Reasons of providers that say more than the class of the failure.
_BY_REASON = {
    "NotANumber": "MetricNotANumber",
    "MetricNotANumber": "MetricNotANumber",
    "Ambiguous": "MetricAmbiguous",
    "MetricAmbiguous": "MetricAmbiguous",
    BAD_SELECTOR: "MetricNotFound",  # the spec names no series; nobody refused anything
    # The rule is wrong: who asks is refused nothing, and no permission would help.
    **dict.fromkeys(
        ("QueryInvalid", "QueryFailed", "NotNamespaced", "ResultIsHistogram", "ResultIsMatrix",
         "ResultIsScalar", "ResultIsString"),
        "MetricQueryInvalid",
    ),
}  # fmt: skip


def reasons(told: ReadTrace) -> list[str]:
    """Return every reason that took part, the first one in front, none twice."""
    named = _named(told)
    if told.is_vain and not is_put_off(told):
        named.insert(0, _ineffective(told.trace))
    return list(dict.fromkeys(named))


def is_put_off(told: ReadTrace) -> bool:
    """Return whether another size was decided, and something speaks against writing it yet."""
    is_shadow, outcome = told.trace.settings.mode == "shadow", told.trace.outcome
    return told.is_vain and not is_shadow and outcome is not None and outcome.scale == "not_tried"


def _ineffective(trace: steps.Trace) -> str:
    if trace.settings.mode == "shadow" or trace.outcome is None:
        return "ShadowMode"
    return "ScaleUpdateConflict" if trace.outcome.scale == "conflict" else "ScaleUpdateFailed"


def _named(told: ReadTrace) -> list[str]:
    for step in told.trace.steps:
        match step:
            case steps.Paused():
                return ["Paused"]
            case steps.TargetUnreadable():
                return [_unreadable(step)]
            case steps.KeptAtZero():
                return [_at_zero(told)]
            case steps.Corrected(reason="BelowMinCorrected") if step_of(
                told.trace, steps.Scheduled
            ):
                return [SCHEDULED]
            case steps.Corrected():
                return [step.reason]
            case steps.Conflict(is_same_target=True):
                return ["SameTargetAsOtherHPA", "AmbiguousSelector"]
            case steps.Conflict():
                return [step.reason]
    return _by_metrics(told)


def _unreadable(step: steps.TargetUnreadable) -> str:
    if step.kind == "Selector":
        return "SelectorInvalid"
    is_forbidden = step.kind == "Forbidden" or (
        step.kind == "Other" and "forbidden" in step.text.lower()
    )
    # The closed set has no token for an API server that did not answer; the words tell that.
    return "ScaleForbidden" if is_forbidden else "TargetNotFound"


def _at_zero(told: ReadTrace) -> str:
    before = told.hpa.status
    went_by_itself = before.desired_replicas == 0 and before.last_scale_s is not None
    if went_by_itself and not wakes(told.hpa):
        return "NoWakeUpMetric"
    return "DisabledAtZero"


def _by_metrics(told: ReadTrace) -> list[str]:
    kinds = [kind for each in told.invalid() for kind in kinds_of(told, *each)]
    if told.blocked is not None:
        is_all = told.blocked.best is None
        did = "AllMetricsInvalid" if is_all else "ScaleDownBlockedByInvalidMetric"
        used = [found for _, each in told.valid() if (found := each.calculation.groups)]
        return [*kinds, did, *_pods_beside(told, used)]
    winner = told.winner
    if winner is not None and winner.fallback is not None:
        # The fallback decides, so the failure does.
        named = [*kinds, *_outcome(told)]
        current = told.current or 0
        if not told.valid():
            named.append("AllMetricsInvalid")
        if any(result.replicas < current for _, result in told.valid()):
            named.append("ScaleDownBlockedByInvalidMetric")
        return named
    ignored = ["InvalidMetricIgnored", *kinds] if kinds else []
    return [*_outcome(told), *ignored]


def _outcome(told: ReadTrace) -> list[str]:
    final = told.trace.decided
    changes, plain, rules = _steps(told), _plain(told), _rules(told)
    otherwise = list(reversed(changes)) or plain
    binding = [token for token, ask in _DATA if (found := ask(told)) is not None and found != final]
    # A single rule that is named in any case needs no second decision: the steady pass.
    if [token for token, _ in rules] != otherwise:
        binding += [token for token, without in rules if whatif.number(told, without) != final]
    beside = plain if _is_by_metrics(told) else []
    return [*(binding or otherwise), *changes, *beside, *_beside(told)]


def _rules(told: ReadTrace) -> list[tuple[str, Variation]]:
    # The rules that changed the number, and the decision without each.
    found: list[tuple[str, Variation]] = []
    if any(whatif.is_within_tolerance(result, told.current) for _, result in told.valid()):
        found.append(("WithinTolerance", Variation(tolerance=False)))
    if told.window is not None:
        found.append((_window(told), Variation(window=False)))
    if step_of(told.trace, steps.ForecastApplied) is not None:
        found.append((FORECAST, Variation(forecast=False)))
    if told.limit is not None:
        is_rate = told.limit.reason in ("ScaleUpLimit", "ScaleDownLimit")
        unlimited = Variation(rate=False) if is_rate else Variation(bound=False)
        found.append((limit_reason(told), unlimited))
    return found


def _steps(told: ReadTrace) -> list[str]:
    # The steps that changed the number, in order.
    found: list[str] = []
    waits = step_of(told.trace, steps.ShrinkWaits)
    if waits is not None:
        found.append(waits.reason)
    if told.window is not None:
        found.append(_window(told))
    if step_of(told.trace, steps.ForecastApplied) is not None:
        found.append(FORECAST)
    if told.limit is not None:
        found.append(limit_reason(told))
    if step_of(told.trace, steps.ScaledFromZero) is not None:
        is_scheduled = step_of(told.trace, steps.Scheduled) is not None
        found.append(SCHEDULED if is_scheduled else "MinReplicasReached")
    return found


def _window(told: ReadTrace) -> str:
    is_up = told.window is not None and told.window.direction == "up"
    return "ScaleUpStabilized" if is_up else "ScaleDownStabilized"


def limit_reason(told: ReadTrace) -> str:
    hpa, reason = told.hpa, "" if told.limit is None else told.limit.reason
    match reason:
        case "TooManyReplicas" | "TooFewReplicas":
            if reason == "TooFewReplicas" and step_of(told.trace, steps.Scheduled) is not None:
                return SCHEDULED
            if hpa.min_replicas == hpa.max_replicas:
                return "MinEqualsMax"
            return "MaxReplicasReached" if reason == "TooManyReplicas" else "MinReplicasReached"
        case "ScaleDownLimit":
            is_disabled = hpa.behavior is not None and hpa.behavior.down.select == "Disabled"
            return "ScaleDownDisabled" if is_disabled else "ScaleDownRateLimited"
    if hpa.behavior is None:
        return "LegacyScaleUpLimit"
    return "ScaleUpDisabled" if hpa.behavior.up.select == "Disabled" else "ScaleUpRateLimited"


def _plain(told: ReadTrace) -> list[str]:
    # What can be said without any limit: it moves, or why the metrics leave it where it is.
    final, current = told.trace.decided, told.current
    if final is None or current is None:
        return []
    is_by_forecast = step_of(told.trace, steps.ForecastApplied) is not None
    if is_by_forecast and told.chosen is not None and told.chosen.replicas <= current <= final:
        return []  # the metrics alone ask for no more than there is
    if final > current:
        return ["MetricAboveTarget"]
    if final < current:
        return ["AllMetricsBelowTarget"]
    if current == 0:
        return ["IdleAtZero"]
    if told.chosen is None or told.chosen.replicas != current:
        return []
    winner = told.winner
    if winner is None or not isinstance(winner.result, Valid):
        return []
    match winner.result.calculation.outcome:
        case "WithinTolerance":
            return ["WithinTolerance"]
        case "DirectionWouldFlip" | "SmallPodsRemain" as outcome:
            return [outcome]
    return ["RoundedUpToCurrent"]


def _is_by_metrics(told: ReadTrace) -> bool:
    """Return whether the metrics themselves lean the way the number went.

    A bound can raise it and pods that are left out can lower it against them; "all metrics
    below target" is upstream's word for every fall, true or not.
    """
    final, current, chosen = told.trace.decided, told.current, told.chosen
    if final is None or current is None or chosen is None:
        return False
    if final > current:
        return chosen.replicas > current
    if final < current:
        ratios = [result.calculation.ratio or 0.0 for _, result in told.valid()]
        return chosen.replicas < current and all(ratio <= 1.0 for ratio in ratios)
    return True


def _beside(told: ReadTrace) -> list[str]:
    # True beside the first reason, deciding nothing by themselves.
    found = []
    numbers = {each.replicas for each in told.measured if each.replicas is not None}
    if len(numbers) > 1:
        found.append("LargestProposalWins")
    found += _pods_beside(told, told.groups)
    if told.trace.decided == 0 and not wakes(told.hpa):
        found.append("NoWakeUpMetric")
    return found


POD_REASONS = (
    ("missing", "MissingPodMetrics"),
    ("pending", "PendingPods"),
    ("initializing", "CpuInitialization"),
    ("never_ready", "NeverReadyPods"),
    ("finished", "FinishedPodsIgnored"),
    ("terminating", "TerminatingPodsIgnored"),
)


def _pods_beside(told: ReadTrace, used: Sequence[PodGroups]) -> list[str]:
    # What was seen of the pods, whether it mattered or not.
    found = ["ForeignPodsCounted"] if whatif.foreign_pods(told) else []
    for bucket, token in POD_REASONS:
        if any(getattr(each, bucket) for each in used):
            found.append(token)
    return found


def kinds_of(told: ReadTrace, measured: steps.Measured, result: Invalid) -> list[str]:
    """Return the reasons of one invalid metric, the most telling first."""
    own = _own(told, measured, result)
    needs_pods = told.spec(measured).type in _POD_TYPES or result.cause == "NoPods"
    if needs_pods and not len(told.pods):
        return list(dict.fromkeys(["NoPodsMatched", own]))
    return [own]


def _own(told: ReadTrace, measured: steps.Measured, result: Invalid) -> str:
    spec = told.spec(measured)
    # Before missing samples: nobody can report for a container that is in no pod.
    if spec.type == "ContainerResource" and len(told.pods) and _lacks(told, spec.container):
        return "ContainerNotFound"
    if result.failure is not None:
        return of_failure(result.failure)
    match result.cause:
        case "Request":
            return "RequestMissing" if result.problem is None else result.problem.reason
        case "NoReadySamples":
            return _without_samples(result)
        case "NoMatch":
            return _without_match(told, measured)
        case "NoPods":
            return "NoPodsMatched"
    # A source type nobody knows, or one without a target: the spec names no metric.
    return "MetricNotFound"


def of_failure(failure: MetricFailure) -> str:
    if failure.reason in _BY_REASON:
        return _BY_REASON[failure.reason]
    match failure:
        case NotFound():
            return "MetricNotFound"
        case NoData():
            return "MetricNoData"
        case Stale():
            return "MetricStale"
        case Refused():
            return "MetricRefused"
    return "MetricUnavailable"


def _lacks(told: ReadTrace, container: str) -> bool:
    return not any(
        each.name == container
        for template in told.pods.templates
        for each in (*template.containers, *template.init_containers)
    )


def _without_samples(result: Invalid) -> str:
    groups = result.groups
    if groups is not None and groups.missing and not groups.unready:
        return "MetricNoData"
    return "AllPodsUnready"


def _without_match(told: ReadTrace, measured: steps.Measured) -> str:
    answer = told.observation.answers[measured.index]
    known = set(told.pods.names)
    if isinstance(answer, PodSamples) and not known & answer.pods.keys():
        return "MetricNoData"
    return "RequestMissing"  # the requests of the pods add up to nothing
