"""The facts an explanation states, under stable keys. Amounts are milli-units, ages seconds."""

from collections.abc import Callable, Mapping, Sequence

from hpa.decide.behavior import counts
from hpa.decide.conditions import GAP, REFUSED
from hpa.decide.decision import LimitApplied, Measured, ScaledFromZero, ShrinkWaits
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.metrics.replicas import tolerance_of
from hpa.decide.observation import ScaleEvent
from hpa.decide.pods import Pods
from hpa.explain.reading import ReadTrace, step_of
from hpa.explain.reason_order import FAILURES, POD_REASONS
from hpa.explain.whatif import foreign_pods, gone_pods, unready_pods, within_tolerance
from podscale.core.metrics import ExternalSamples
from podscale.core.times.rfc3339 import rfc3339
from podscale.explain.explanation import Fact, merged

Facts = dict[str, Fact]


# What says which metric it is, and what is said of it.
_NAMES = ("metric", "metric_type", "container")
_OF_METRIC = frozenset(
    (
        *_NAMES,
        "resource",
        "target_utilization",
        "target_average_value",
        "target_value",
        "ratio",
        "corrected_ratio",
        "utilization",
        "value",
        "average_value",
        "ready_pods",
        "message",
    )
)


def facts(told: ReadTrace, reasons: Sequence[str]) -> Facts:
    """Return the facts of ``reasons``; where two use one key, the earlier reason's stands.

    Numbers of one metric only: those of the metric that the earliest reason is about.
    """
    by_reason = [_BY_REASON[reason] for reason in reasons if reason in _BY_REASON]
    return merged((of(told) for of in (*by_reason, _always)), _NAMES, _OF_METRIC)


def _always(told: ReadTrace) -> Facts:
    hpa, scale = told.hpa, told.scale
    found: Facts = {
        "hpa": f"{hpa.namespace}/{hpa.name}",
        "target": told.target,
        "min": told.minimum,
        "max": hpa.max_replicas,
        "mode": told.trace.settings.mode,
    }
    if scale is not None:
        found["current"] = found["spec_replicas"] = scale.spec_replicas
        found["status_replicas"] = scale.status_replicas
        found["selector"] = scale.selector
        if told.knows_pods:
            found["pods_matched"] = len(told.pods)
    held = told.observation.held
    if held is not None and held.anchor is not None:
        found["anchor_milli"], found["anchor_size"] = held.anchor.milli, held.anchor.size
    if told.trace.decided is not None:
        found["decided"] = told.trace.decided
    if told.measured:
        band = tolerance_of(hpa, told.trace.settings)
        found["tolerance_up"], found["tolerance_down"] = band.up, band.down
        shown = told.winner or told.measured[0]
        found |= metric_facts(told, shown)
    return found


def metric_facts(told: ReadTrace, measured: Measured) -> Facts:
    spec = told.spec(measured)
    found: Facts = {"metric": spec.name, "metric_type": spec.type}
    if spec.container:
        found["container"] = spec.container
    if spec.type in ("Resource", "ContainerResource"):
        found["resource"] = spec.name
    for key, target in (
        ("target_utilization", spec.average_utilization),
        ("target_average_value", spec.average_value_milli),
        ("target_value", spec.value_milli),
    ):
        if target is not None:
            found[key] = target
    if isinstance(measured.result, Valid):
        calculation = measured.result.calculation
        if calculation.ratio is not None:
            found["ratio"] = calculation.ratio
        if calculation.corrected is not None:
            found["corrected_ratio"] = calculation.corrected
        if calculation.utilization is not None:
            found["utilization"] = calculation.utilization
        found["value" if spec.is_by_value else "average_value"] = calculation.usage
        groups = calculation.groups
        found["ready_pods"] = told.pods.ready_count() if groups is None else groups.ready
    else:
        found["message"] = measured.result.text
    return found


def _first_invalid(told: ReadTrace) -> Facts:
    return _invalid(told, *told.invalid()[0]) if told.invalid() else {}


def _invalid(told: ReadTrace, measured: Measured, result: Invalid) -> Facts:
    found = metric_facts(told, measured)
    if result.failure is not None:
        found["message"] = result.failure.message or result.text
        age = getattr(result.failure, "age_s", None)
        if age is not None:
            found["age_s"] = age
    spec = told.spec(measured)
    if result.problem is not None:
        found["pod"] = result.problem.pod
        if result.problem.container:
            found["container"] = result.problem.container
        found["resource"] = spec.name
    elif spec.type == "ContainerResource" and len(told.pods):
        found["pod"] = min(told.pods.names)
    return found


def _unready(told: ReadTrace) -> Facts:
    found = _first_invalid(told)
    for groups in told.groups:
        found["pods"] = list(groups.unready or groups.missing)
        break
    return found


def _bucket(name: str) -> Callable[[ReadTrace], Facts]:
    def pods(told: ReadTrace) -> Facts:
        for groups in told.groups:
            names: tuple[str, ...] = getattr(groups, name)
            if names:
                return {"pods": list(names)}
        return {}

    return pods


def _foreign(told: ReadTrace) -> Facts:
    names = foreign_pods(told)
    owners = owners_of(told.pods, names)
    return {"pods": list(names), "owner": owners[0] if len(owners) == 1 else list(owners)}


def owners_of(pods: Pods, names: Sequence[str]) -> list[str]:
    """Return the distinct topmost controllers of the pods named."""
    wanted = set(names)
    rows = [row for row, name in enumerate(pods.names) if name in wanted]
    return sorted({pods.owners[pods.owner[row]] for row in rows})


def _series(told: ReadTrace) -> Facts:
    for spec, answer in zip(told.hpa.metrics, told.observation.answers, strict=False):
        if isinstance(answer, ExternalSamples) and len(answer.series) > 1:
            values = [each.sample.value_milli for each in answer.series]
            return {"metric": spec.name, "series": len(values), "values": list(values)}
    return {}


def _recommendation(told: ReadTrace) -> Facts:
    if told.window is None or told.window.held_by is None:
        return {}
    held = told.window.held_by
    is_up = told.window.direction == "up"
    return {
        "recommendation": {"replicas": held.replicas, "age_s": told.trace.now - held.at},
        "window_s": window_of(told, is_up=is_up),
        "desired": told.window.before,
    }


def window_of(told: ReadTrace, *, is_up: bool) -> float:
    """Return the width of the stabilization window of one direction."""
    behavior = told.hpa.behavior
    written = None
    if behavior is not None:
        written = behavior.up.window_s if is_up else behavior.down.window_s
    return told.trace.settings.downscale_stabilization_s if written is None else float(written)


def _rate(told: ReadTrace) -> Facts:
    limit = told.limit
    if limit is None:
        return {}
    found: Facts = {"desired": limit.before}
    if limit.limit is not None:
        found["limit"] = limit.limit
    if limit.policy is not None:
        policy = limit.policy
        found["policy"] = {
            "type": policy.type,
            "value": policy.value,
            "periodSeconds": policy.period_seconds,
        }
        events = events_within(told, limit, policy.period_seconds)
        counted: list[Fact] = [
            {"change": each.change, "age_s": told.trace.now - each.at} for each in events
        ]
        found["events"] = counted
        if counted:
            found["event"] = counted[0]  # the one that leaves the period first
    elif limit.reason in ("ScaleUpLimit", "ScaleDownLimit") and told.hpa.behavior is not None:
        found["select_policy"] = "Disabled"
    return found


def events_within(told: ReadTrace, limit: LimitApplied, period_s: float) -> list[ScaleEvent]:
    """Return the events that still count against a policy, the oldest first."""
    past, now = told.trace.past, told.trace.now
    is_up = limit.reason == "ScaleUpLimit"
    counted = [
        each
        for events, is_other in ((past.scale_ups, not is_up), (past.scale_downs, is_up))
        for each in events
        if counts(each, period_s, now, is_other=is_other)
    ]
    return sorted(counted, key=lambda each: each.at)


def _bound(told: ReadTrace) -> Facts:
    if told.limit is not None:
        return {"desired": told.limit.before}
    woken = step_of(told.trace, ScaledFromZero)  # comes after every limit
    return {} if woken is None else {"desired": woken.before}


def _gap(told: ReadTrace) -> Facts:
    step = step_of(told.trace, ShrinkWaits)
    if step is None or step.gap is None:
        return {}
    gap = step.gap
    return {
        "since": rfc3339(gap.since_s),
        "until": rfc3339(gap.until_s),
        "window": gap.window_s,
        "whole": rfc3339(gap.whole_s),
    }


def _of_metric(told: ReadTrace, measured: Measured | None) -> Facts:
    return {} if measured is None else metric_facts(told, measured)


def _hpas(told: ReadTrace, others: Sequence[str]) -> Facts:
    return {"hpas": sorted({told.hpa.name, *others})}


def _selector(told: ReadTrace) -> Facts:
    return _unreadable(told) if told.scale is None else {"selector": told.scale.selector}


def _refused(told: ReadTrace) -> Facts:
    outcome = told.trace.outcome
    if outcome is None:
        return {}
    return {"message": outcome.scale_error, "error": outcome.scale_error}


def _unreadable(told: ReadTrace) -> Facts:
    return {"message": getattr(told.observation.scale, "text", "")}


_BY_REASON: Mapping[str, Callable[[ReadTrace], Facts]] = {
    "Paused": lambda _: {"annotation": "podscale.io/paused"},
    REFUSED: lambda told: {"message": told.hpa.options.refused_schedule},
    "TargetNotFound": _unreadable,
    "ScaleForbidden": _unreadable,
    "SelectorMissing": _selector,
    "SelectorInvalid": _selector,
    "SameTargetAsOtherHPA": lambda told: _hpas(told, told.observation.same_target),
    "AmbiguousSelector": lambda told: _hpas(
        told, (*told.observation.rivals, *told.observation.same_target)
    ),
    "AllPodsUnready": _unready,
    **dict.fromkeys(
        (
            *FAILURES,
            "NoPodsMatched",
            "MetricNotANumber",
            "MetricAmbiguous",
            "RequestMissing",
            "ContainerNotFound",
        ),
        _first_invalid,
    ),
    "ForeignPodsCounted": _foreign,
    GAP: _gap,
    "StalePodsInAnswer": lambda told: {"pods": list(gone_pods(told))},
    "SeriesSummed": _series,
    "NotReadyPodsLeftOut": lambda told: {"pods": list(unready_pods(told))},
    **{reason: _bucket(name) for name, reason in POD_REASONS},
    **dict.fromkeys(
        ("LargestProposalWins", "MetricAboveTarget"), lambda told: _of_metric(told, told.winner)
    ),
    "WithinTolerance": lambda told: _of_metric(told, within_tolerance(told)),
    "ScaleUpStabilized": _recommendation,
    "ScaleDownStabilized": _recommendation,
    **dict.fromkeys(
        (
            "ScaleUpRateLimited",
            "ScaleDownRateLimited",
            "LegacyScaleUpLimit",
            "ScaleUpDisabled",
            "ScaleDownDisabled",
        ),
        _rate,
    ),
    **dict.fromkeys(("MaxReplicasReached", "MinReplicasReached", "MinEqualsMax"), _bound),
    "ScaleUpdateFailed": _refused,
    "ScaleUpdateConflict": _refused,
}
