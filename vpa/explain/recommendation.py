"""Why an amount of a recommendation is what it is, or why there is none.

The first gate that says no; else the last step that changed the amount, in the chain
usage, confidence, minimum, whole cores, minAllowed, maxAllowed, node size.
"""

from typing import Literal

from msgspec import Struct

from podscale.core.times.rfc3339 import rfc3339
from vpa.explain.explanation import Fact, Facts, SizingExplanation, explanation
from vpa.model.api.objects import Vpa, container_policy, is_off
from vpa.model.api.policy import controlled_resources
from vpa.model.api.quantities import units
from vpa.model.estimation.estimator import Bound, Derivation
from vpa.model.estimation.recommendation import AmountTrace, RecommendationTrace, Step
from vpa.model.samples.container_rows import PeakWindow

Field = Literal["target", "lowerBound", "upperBound", "uncappedTarget"]


class TargetState(Struct, frozen=True):
    """What became of targetRef."""

    found: bool
    topmost: str | None = None  # KIND/NAME of the controller above it, None: it is topmost
    has_selector: bool = True


class MeasuredBasis(Struct, frozen=True):
    """How much is known of the container asked for."""

    samples: float = 0.0
    first_s: float | None = None
    last_s: float | None = None
    held_by: PeakWindow | None = None  # what ``model.held`` found for the fraction asked for


class AmountQuestion(Struct, frozen=True):
    container: str
    resource: str
    field: Field


def explain_amount(
    question: AmountQuestion,
    vpa: Vpa,
    *,
    target: TargetState,
    recommender: str,
    pods_matched: bool,
    trace: RecommendationTrace | None,
    measured: MeasuredBasis,
) -> SizingExplanation:
    """Return why the VPA's status has that amount; ``trace`` None: nothing is known at all."""
    gate = _gate(question, vpa, target, recommender, pods_matched, trace)
    if gate is not None:
        reason, facts = gate
        return explanation([reason], [facts], {"published": False})
    bound: Bound = "target" if question.field == "uncappedTarget" else question.field
    amount = (
        trace.amounts.get((question.container, question.resource, bound))
        if trace is not None
        else None
    )
    if trace is None or amount is None:
        facts = {"container": question.container, "resource": question.resource}
        return explanation(["NoSamples"], [facts], {"published": False})
    return _explained(question, trace, amount, measured)


def _gate(
    question: AmountQuestion,
    vpa: Vpa,
    target: TargetState,
    recommender: str,
    pods_matched: bool,
    trace: RecommendationTrace | None,
) -> tuple[str, Facts] | None:
    ref = vpa.spec.target_ref
    name = f"{ref.kind}/{ref.name}" if ref is not None else ""
    if not target.found:
        return "TargetNotFound", {"target": name}
    if target.topmost is not None:
        return "TargetNotTopmost", {"topmost": target.topmost, "target": name}
    if not target.has_selector:
        return "TargetWithoutSelector", {"target": name}
    wanted = [entry.name for entry in vpa.spec.recommenders or ()] or ["default"]
    if recommender not in wanted:
        return "OtherRecommender", {"recommender": wanted[0], "own": recommender}
    known = trace is not None and bool(trace.amounts)
    if not pods_matched and not known:
        return "NoPodsMatched", {"target": name}
    policy = vpa.spec.resource_policy
    entry = container_policy(policy, question.container)
    facts: dict[str, Fact] = {"container": question.container}
    if entry is not None:
        facts["policy"] = entry.container_name
    if is_off(policy, question.container):
        return "ContainerModeOff", facts
    if question.resource not in controlled_resources(entry):
        return "ResourceNotControlled", {**facts, "resource": question.resource}
    return None


def _explained(
    question: AmountQuestion,
    trace: RecommendationTrace,
    amount: AmountTrace,
    measured: MeasuredBasis,
) -> SizingExplanation:
    resource = question.resource
    estimate, estimate_facts = _estimate(amount.derivation, measured.held_by, trace.containers)
    steps = amount.steps
    value = amount.published
    if question.field == "uncappedTarget":
        steps = tuple(step for step in steps if step.reason == "CpuRoundedToCore")
        value = amount.uncapped
    last_first = steps[::-1]
    reasons = [*(step.reason for step in last_first), estimate]
    facts: list[Facts] = [
        *(_step_facts(step) for step in last_first),
        estimate_facts,
        {"uncapped": units(resource, amount.uncapped), "policy": amount.policy},
        _history_facts(amount.derivation, measured),
    ]
    decision: Facts = {"published": True, "amount": units(resource, value), "value": str(value)}
    return explanation(reasons, facts, decision)


def _estimate(
    derivation: Derivation, held_by: PeakWindow | None, containers: int
) -> tuple[str, Facts]:
    minimum: Facts = {"minimum": derivation.minimum, "containers": containers}
    if derivation.amount != derivation.with_confidence:
        return "PodMinimum", minimum
    factor = round(derivation.factor, 6) if derivation.factor != float("inf") else "unbounded"
    if derivation.with_confidence != derivation.with_margin:
        return "LowConfidence", {"factor": factor, "confidence": derivation.confidence}
    if held_by is None:
        return "PercentileOfUsage", {}
    if held_by.oom is not None:
        return "OomBump", {
            "oom_time": _text(held_by.oom.time_s),
            "requested_bytes": held_by.oom.requested,
            "bumped_bytes": held_by.oom.bumped,
        }
    return "MemoryPeakHolds", {
        "peak_bytes": held_by.peak,
        "peak_window_start": _text(held_by.start_s),
        "peak_window_end": _text(held_by.end_s),
    }


def _step_facts(step: Step) -> Facts:
    facts: dict[str, Fact] = {}
    if step.limit is not None:
        facts["min" if step.reason == "MinAllowed" else "max"] = str(step.limit)
    if step.node is not None:
        facts |= {"node": step.node.node, "available": step.node.available}
    return facts


def _history_facts(derivation: Derivation, measured: MeasuredBasis) -> Facts:
    facts: dict[str, Fact] = {
        "percentile": derivation.fraction,
        "margin": derivation.margin,
        "usage": derivation.usage,
        "confidence": derivation.confidence,
        "samples": measured.samples,
    }
    if measured.first_s is not None and measured.last_s is not None:
        facts["first_sample"] = _text(measured.first_s)
        facts["last_sample"] = _text(measured.last_s)
        facts["span_s"] = measured.last_s - measured.first_s
    return facts


def _text(time_s: float) -> str:
    return rfc3339(time_s)
