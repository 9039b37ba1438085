"""All metrics of one pass: which proposal counts, and when none may.

Follows ``computeReplicasForMetrics``, Kubernetes 1.37, with fallbacks beside it.
"""

from msgspec import Struct

from hpa.decide.api.spec import MetricSpec, MetricStatus
from hpa.decide.conditions import DecisionEvent, warning
from hpa.decide.decision import Action, Blocked, Chosen, Measured, MetricLabels, Step
from hpa.decide.metrics import fallback
from hpa.decide.metrics.measuring import Invalid, MetricEvaluation, Valid, evaluate, name_of
from hpa.decide.observation import Past


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
        written = fallback.of(spec, hpa.options)
        stand_in = None
        if isinstance(result, Valid):
            replicas = result.calculation.replicas
            statuses.append(result.status)
            labels.append(MetricLabels(spec.type, action_of(before, replicas), "none"))
            if written is not None and written.kind == "last":
                past = fallback.remember(past, spec, replicas, pass_.now)
        else:
            invalid += 1
            first = first or result
            statuses.append(MetricStatus())
            labels.append(MetricLabels(spec.type, "none", result.label))
            events.append(warning(result.condition, result.text))
            if written is not None:
                stand_in = fallback.propose(written, spec, hpa.options, past, current, pass_.now)
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
        fallback.kept(past, hpa.metrics) if past.good else past,
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
