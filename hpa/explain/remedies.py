"""What may be done about each reason, and the decision's inputs with that done."""

import math
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import MetricSpec
from hpa.decide.decision import Measured
from hpa.decide.metrics.answers import is_bad_selector
from hpa.decide.metrics.measuring import Valid
from hpa.decide.metrics.replicas import tolerance_of
from hpa.decide.reconcile import wakes
from hpa.decide.settings import Bucket, Variation
from hpa.explain.facts import window_of
from hpa.explain.reading import ReadTrace, age, amount
from hpa.explain.reason_order import FAILURES, of_failure
from hpa.explain.sentences import why_not
from hpa.explain.whatif import Inputs, within_tolerance
from podscale.explain.explanation import Facts


class Remedy(Struct, frozen=True):
    """One thing that may be done about a reason."""

    text: str  # a sentence without its full stop
    tries: tuple[Inputs, ...]  # the inputs with it done; several where it may come out differently
    towards: int = 0  # 1: more replicas are promised, -1: fewer, 0: another number
    takes_time: bool = False  # it is time itself that passes

    def changes(self, inputs: Inputs, actual: int | None) -> bool:
        """Return whether another size than ``actual`` comes of it, and of nothing else: what the
        windows hold back for now counts as if they had run out."""
        kept = {actual} if self.takes_time else {actual, inputs.settled().decided()}
        for each in self.tries:
            found = (each if self.takes_time else each.settled()).decided()
            if found in kept:
                continue
            if actual is None or found is None or (found - actual) * self.towards >= 0:
                return True
        return False


Remedies = Callable[[ReadTrace, Inputs, Facts], list[Remedy]]

_MUCH = 1000  # times a target
_MOST_TRIED = 8  # metrics of one autoscaler, which may have thousands


def _by_tolerance(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    where = "a smaller tolerance is set in behavior"
    if not told.trace.settings.gates.configurable_tolerance:
        where = "--horizontal-pod-autoscaler-tolerance is made smaller"
    smaller = Remedy(where, (inputs.varied(Variation(tolerance=False)),))
    held = within_tolerance(told) or told.winner
    return [*_moves(told, inputs, held), smaller]


def _by_value(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    return _moves(told, inputs, told.winner)


def _moves(told: ReadTrace, inputs: Inputs, measured: Measured | None) -> list[Remedy]:
    """Return how far one metric has to rise for another size, and how far to fall."""
    current = told.current
    if measured is None or current is None or not isinstance(measured.result, Valid):
        return []
    spec, factor = told.spec(measured), _factor(told, measured, measured.result)
    target, index = _target(spec), measured.index
    if not target or not factor:
        return []
    band = tolerance_of(told.hpa, told.trace.settings)
    more, fewer = max(1 + band.up, current / factor), (current - 1) / factor
    rises = Remedy(
        f"{spec.name} rises above {_at(spec, more)}",
        _made(inputs.with_level(index, math.floor(target * more) + 1)),
        towards=1,
    )
    if not rises.changes(inputs, told.trace.decided):  # pods that are filled in, mostly
        tries = _made(inputs.with_level(index, 10 * target * max(current, 1)))
        rises = Remedy(f"{spec.name} rises", tries, towards=1)
    if fewer < 1 - band.down:
        text, level = f"falls to {_at(spec, fewer)} or below", math.floor(target * fewer)
    else:
        text, level = f"falls below {_at(spec, 1 - band.down)}", _below(target * (1 - band.down))
    falls = Remedy(f"{spec.name} {text}", _made(inputs.with_level(index, level)), towards=-1)
    return [rises, falls]


def _factor(told: ReadTrace, measured: Measured, found: Valid) -> int:
    """Return what the ratio of a metric is multiplied by."""
    spec, groups = told.spec(measured), found.calculation.groups
    if spec.is_by_value:
        return told.pods.ready_count()
    if spec.type in ("Object", "External"):
        return 0 if told.scale is None else told.scale.status_replicas
    return len(told.pods) if groups is None else groups.ready


def _target(spec: MetricSpec) -> int:
    """Return the target in the unit of a level (``hpa.explain.whatif``)."""
    if spec.average_utilization is not None and spec.average_value_milli is None:
        return spec.average_utilization
    return (spec.value_milli if spec.is_by_value else spec.average_value_milli) or 0


def _below(level: float) -> int:
    return max(math.ceil(level) - 1, 0)


def _at(spec: MetricSpec, ratio: float) -> str:
    if spec.average_utilization is not None and spec.average_value_milli is None:
        return f"{spec.average_utilization * ratio:.4g}%"
    return amount(math.floor(_target(spec) * ratio), spec.name)


def _made(inputs: Inputs | None) -> tuple[Inputs, ...]:
    return () if inputs is None else (inputs,)


def _by_window(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    step, recommendations = told.window, told.trace.past.recommendations or ()
    if step is None or step.held_by is None:
        return []
    is_up = step.direction == "up"
    held = step.held_by
    # Of those that hold the number as far as it is held, the last one to leave.
    holding = [
        each
        for each in recommendations
        if (each.replicas <= held.replicas if is_up else each.replicas >= held.replicas)
    ]
    last = max(holding, key=lambda each: each.at, default=held)
    width = window_of(told, is_up=is_up)
    left = width - (told.trace.now - last.at)
    when = f"in {age(left)} at the earliest" if left >= 1 else "at the next check"
    text = f"The recommendation of {last.replicas} expires {when}"
    shorter = inputs.varied(Variation(window=False))
    return [
        Remedy(text, (inputs.without_recommendations(last.at),), takes_time=True),
        Remedy("you shorten the window", (shorter,), takes_time=True),
    ]


def _by_policy(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    decided, policy = told.trace.decided, None if told.limit is None else told.limit.policy
    if decided is None or policy is None:
        return []
    passed = f"The policy's {policy.period_seconds} s period ends"
    free = inputs.varied(Variation(rate=False))
    return [
        Remedy(passed, (inputs.settled().with_size(decided),), takes_time=True),
        Remedy("you loosen the policy", (free,), takes_time=True),
    ]


def _by_maximum(told: ReadTrace, inputs: Inputs, facts: Facts) -> list[Remedy]:
    asked = _desired(facts)
    text = f"maxReplicas is raised from {told.hpa.max_replicas} (the metrics ask for {asked})"
    return [Remedy(text, (inputs.with_bounds(maximum=max(asked, told.hpa.max_replicas + 1)),))]


def _by_minimum(told: ReadTrace, inputs: Inputs, facts: Facts) -> list[Remedy]:
    asked, least = _desired(facts), told.hpa.min_replicas
    text = f"minReplicas is lowered from {least} (the metrics ask for {asked})"
    if least == 1 and not wakes(told.hpa):
        text += ", which needs an Object or External metric"
    return [Remedy(text, (inputs.with_bounds(minimum=max(min(asked, least - 1), 0)),))]


def _by_both_bounds(told: ReadTrace, inputs: Inputs, facts: Facts) -> list[Remedy]:
    asked, both = _desired(facts), told.hpa.min_replicas
    apart = inputs.with_bounds(minimum=max(min(asked, both), 0), maximum=max(asked, both))
    return [Remedy("minReplicas and maxReplicas are set apart", (apart,))]


def _desired(facts: Facts) -> int:
    found = facts.get("desired")
    return found if isinstance(found, int) else 0


def _by_enabling(direction: Literal["up", "down"]) -> Remedies:
    text = f"behavior.scale{direction.capitalize()}.selectPolicy is set to Max or Min"
    return lambda _told, inputs, _facts: [Remedy(text, (inputs.with_policies(direction),))]


def _by_winner(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    if told.winner is None:
        return []
    spec, index = told.spec(told.winner), told.winner.index
    levels = (_target(spec), 0)  # from zero on, a target alone asks for one
    at_target = tuple(made for level in levels for made in _made(inputs.with_level(index, level)))
    raised = (inputs.with_target(index, _MUCH * _target(spec)),)
    return [
        Remedy(f"{spec.name} falls", at_target, towards=-1),
        Remedy("its target is raised", raised, towards=-1),
    ]


def _by_any(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    tries = _risen(told, inputs)
    lowered = tuple(inputs.with_target(each.index, 1) for each in told.measured[:_MOST_TRIED])
    return [
        Remedy("A metric rises", tries, towards=1),
        Remedy("a target is lowered", lowered, towards=1),
    ]


def _by_waking(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    return [Remedy("The metric rises above zero", _risen(told, inputs), towards=1)]


def _risen(told: ReadTrace, inputs: Inputs) -> tuple[Inputs, ...]:
    """Return the inputs with one metric far above its target, metric by metric."""
    current = max(told.current or 0, 1)
    return tuple(
        made
        for each, _ in told.valid()[:_MOST_TRIED]
        for made in _made(inputs.with_level(each.index, 10 * current * _target(told.spec(each))))
    )


def _by_silent(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    buckets: tuple[Bucket, ...] = ("missing", "pending", "initializing", "never_ready")
    tries = tuple(inputs.varied(Variation(averaged=bucket)) for bucket in buckets)
    return [Remedy("The silent pods report", tries), *_moves(told, inputs, told.winner)]


def _by_failed(told: ReadTrace, inputs: Inputs, _facts: Facts) -> list[Remedy]:
    measured, result = told.invalid()[0]
    why = why_not(result)
    reason = "" if result.failure is None else of_failure(result.failure)
    is_of_rules = reason in ("MetricNotFound", "MetricQueryInvalid")
    if is_of_rules and not is_bad_selector(result.failure):
        hpa = told.hpa
        why += f"; podscale doctor hpa/{hpa.name} -n {hpa.namespace} finds where it is lost"
    text = f"{told.spec(measured).name or 'The metric'} becomes readable ({why})"
    if is_bad_selector(result.failure):
        text = f"The selector of {told.spec(measured).name} is corrected in the HPA"
        text += f" ({why})"
    if measured.fallback is None:
        text += ", or you set a fallback (podscale.io/fallback)"
    return [Remedy(text, _readable(told, inputs, measured))]


def _by_query(text: str) -> Remedies:
    return lambda told, inputs, _facts: [
        Remedy(text, _readable(told, inputs, told.invalid()[0][0]))
    ]


def _readable(told: ReadTrace, inputs: Inputs, measured: Measured) -> tuple[Inputs, ...]:
    """Return the inputs with a metric that can be used, below its target, above it, and on it."""
    target = _target(told.spec(measured))
    index, levels = measured.index, (0, 2 * target, target)
    tries = [inputs.with_level(index, level, is_new=True) for level in levels]
    return tuple(each for each in tries if each is not None)


def _by_request(told: ReadTrace, inputs: Inputs, facts: Facts) -> list[Remedy]:
    container, resource = facts.get("container"), facts.get("resource")
    problem = next((result.problem for _, result in told.invalid()), None)
    who = f"Container {container} gets" if container else "The pods get"
    if not container and problem is not None:
        who = f"Pod {problem.pod} gets"
    much = " above zero" if problem is None else ""  # every pod has one, of nothing
    text = (
        f"{who} a request for {resource}{much}, or the metric uses averageValue or "
        "ContainerResource"
    )
    return [Remedy(text, (inputs.with_requests(str(resource)),))]


REMEDIES: Mapping[str, Remedies] = {
    "WithinTolerance": _by_tolerance,
    "RoundedUpToCurrent": _by_value,
    "DirectionWouldFlip": _by_silent,
    "ScaleUpStabilized": _by_window,
    "ScaleDownStabilized": _by_window,
    "ScaleUpRateLimited": _by_policy,
    "ScaleDownRateLimited": _by_policy,
    "ScaleUpDisabled": _by_enabling("up"),
    "ScaleDownDisabled": _by_enabling("down"),
    "MaxReplicasReached": _by_maximum,
    "MinReplicasReached": _by_minimum,
    "MinEqualsMax": _by_both_bounds,
    "MetricAboveTarget": _by_winner,
    "AllMetricsBelowTarget": _by_any,
    "IdleAtZero": _by_waking,
    "RequestMissing": _by_request,
    "MetricNotANumber": _by_query(
        "The query yields a number; a denominator of zero is the usual cause"
    ),
    "MetricAmbiguous": _by_query("The query is aggregated to one series per object"),
    **dict.fromkeys(FAILURES, _by_failed),
}
