"""All metrics of one pass: which proposal counts, and when none may.

Follows ``computeReplicasForMetrics``, Kubernetes 1.37. Beyond upstream, what the user wrote down
stands in for a metric that cannot be read: that is a decision, not an error, so that it may raise
freely, and lowers only where the object allows it.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from hpa.decide.api.spec import Fallback, MetricSpec, MetricStatus
from hpa.decide.conditions import DecisionEvent, warning
from hpa.decide.decision import Action, Blocked, Chosen, Measured, MetricLabels, Step
from hpa.decide.metrics.measuring import Invalid, MetricEvaluation, Valid, evaluate, name_of
from hpa.decide.observation import GoodProposal, Past
from podscale.core.metrics import NO_BUDGET


class Proposals(Struct, frozen=True, gc=False):
    """What the metrics ask for together."""

    replicas: int | None  # None: nothing may be decided from them
    name: str  # of the winning metric, as upstream writes it
    statuses: tuple[MetricStatus, ...]
    labels: tuple[MetricLabels, ...]
    events: tuple[DecisionEvent, ...]
    steps: tuple[Step, ...]
    past: Past
    first_invalid: Invalid | None
    error: str | None  # upstream's, also where a number was found


def propose(pass_: MetricEvaluation, past: Past) -> Proposals:
    """Return the largest proposal, or none: if all metrics are invalid, or if one is and
    the others ask for less than the present size.
    """
    observation, current = pass_.observation, pass_.scale.spec_replicas
    hpa = observation.hpa
    fallbacks = dict(hpa.options.fallbacks)
    before = hpa.status.current_replicas
    statuses, labels = [], []
    events: list[DecisionEvent] = []
    steps: list[Step] = []
    best, winner = 0, None
    usable = invalid = unusable = 0
    first: Invalid | None = None
    for index, spec in enumerate(hpa.metrics):
        answer = observation.answers[index] if index < len(observation.answers) else None
        result = evaluate(spec, answer, pass_)
        written = _fallback_of(spec, fallbacks)
        stand_in = None
        if isinstance(result, Valid):
            replicas = result.calculation.replicas
            statuses.append(result.status)
            labels.append(MetricLabels(spec.type, action_of(before, replicas), "none"))
            if written is not None and written.kind == "last":
                past = _with_good(past, spec, replicas, pass_.now)
        else:
            invalid += 1
            first = first or result
            statuses.append(MetricStatus())
            labels.append(MetricLabels(spec.type, "none", result.label))
            events.append(warning(result.condition, result.text))
            if written is not None:
                # A source that was not asked has not failed: nothing shrinks for that.
                is_asked = result.failure is None or result.failure.reason != NO_BUDGET
                may_lower = hpa.options.may_lower and is_asked
                stand_in = _stand_in(written, spec, past, current, pass_.now, may_lower=may_lower)
            if stand_in is None:
                unusable += 1
                steps.append(Measured(index, result))
                continue
            replicas = stand_in
        usable += 1
        steps.append(Measured(index, result, stand_in))
        if best == 0 or replicas > best:
            best, winner = replicas, index
    error = None
    if first is not None:
        error = (
            f"invalid metrics ({invalid} invalid out of {len(hpa.metrics)}), "
            f"first error is: {first.error}"
        )
    is_blocked = not usable or (unusable and best < current)
    if is_blocked:
        steps.append(Blocked(best if usable else None, error or "no metrics"))
    else:
        steps.append(Chosen(best, winner))
    return Proposals(
        None if is_blocked else best,
        "" if winner is None or is_blocked else _name(hpa.metrics[winner], steps[winner]),
        tuple(statuses),
        tuple(labels),
        tuple(events),
        tuple(steps),
        _without_gone(past, hpa.metrics) if past.good else past,
        first,
        error,
    )


def _name(spec: MetricSpec, step: Step) -> str:
    stands_in = isinstance(step, Measured) and step.fallback is not None
    return f"the fallback of {spec.name}" if stands_in else name_of(spec)


def action_of(before: int, after: int) -> Action:
    """Return the label of a change from ``before`` to ``after``."""
    if after > before:
        return "scale_up"
    return "scale_down" if after < before else "none"


def _fallback_of(metric: MetricSpec, fallbacks: Mapping[str, Fallback]) -> Fallback | None:
    """Return the fallback of ``metric``; container metrics may be named container/resource."""
    own = fallbacks.get(f"{metric.container}/{metric.name}") if metric.container else None
    return own or fallbacks.get(metric.name)


def _stand_in(
    fallback: Fallback, metric: MetricSpec, past: Past, current: int, now: float, *, may_lower: bool
) -> int | None:
    """Return the number that stands in, or None where the fallback has run out."""
    match fallback.kind:
        case "hold":
            return current
        case "replicas":
            number = fallback.replicas
        case "last":
            key = key_of(metric)
            last = next((each for each in past.good if each.metric == key), None)
            if last is None or now - last.at > fallback.max_age_s:
                return None
            number = last.replicas
    return number if may_lower else max(number, current)


def _with_good(past: Past, metric: MetricSpec, replicas: int, now: float) -> Past:
    """Return ``past`` with the metric's newest good proposal."""
    key = key_of(metric)
    others = tuple(each for each in past.good if each.metric != key)
    return structs.replace(past, good=(*others, GoodProposal(key, replicas, now)))


def _without_gone(past: Past, metrics: tuple[MetricSpec, ...]) -> Past:
    """Return ``past`` without the proposals of metrics that the spec has no longer: a selector
    that changes with every release would leave one more each time."""
    if len(past.good) <= len(metrics):
        return past
    keys = {key_of(metric) for metric in metrics}
    return structs.replace(past, good=tuple(each for each in past.good if each.metric in keys))


def key_of(metric: MetricSpec) -> str:
    """Return what tells the metrics of one HPA apart."""
    selector = "" if metric.selector is None else str(metric.selector)
    described = metric.described
    about = f"{described.kind}/{described.name}" if described else metric.container
    return f"{metric.type}:{about}:{metric.name}:{selector}"
