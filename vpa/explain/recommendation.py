"""Why an amount of a recommendation is what it is, or why there is none.

The first gate that says no; else the last step that changed the amount, in the chain
usage, confidence, minimum, whole cores, minAllowed, maxAllowed, node size. Pods get what is
published, so where what is known now would give another amount, the published one is explained:
what holds it, or that the new one is still to be written.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, structs

from podscale.core import quantity
from podscale.core.quantity import Quantity
from podscale.core.times.rfc3339 import rfc3339
from podscale.explain.explanation import Explanation, Fact, Facts
from podscale.kube.objects.vpa import Vpa, VpaCondition, container_policy, is_off
from vpa.explain.words import explanation
from vpa.model.amounts import controlled_resources, units
from vpa.model.estimation.estimator import Bound, Derivation
from vpa.model.estimation.recommendation import RecommendationTrace, Step
from vpa.model.estimation.status import HISTORY_LOST
from vpa.model.samples.container_rows import PeakWindow

Field = Literal["target", "lowerBound", "upperBound", "uncappedTarget"]

# Their amounts leave the status with the next write.
_LEAVES = frozenset({"ContainerModeOff", "ResourceNotControlled"})
_TELLING = frozenset({"LowConfidence", "ConfigUnsupported", "AnnotationInvalid"})


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


class PublishedHolds(Struct, frozen=True):
    """Why nothing goes below what is published yet; both empty: nothing holds it."""

    until_s: Mapping[tuple[str, str], float] = {}  # by container and resource: history lost
    is_young: bool = False  # too little is known to lower anything
    anchor: str = ""  # how an HPA counts on the CPU, for people; empty: none does


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
) -> Explanation:
    """Return why the VPA's status has that amount; ``trace`` None: nothing is known at all."""
    gate = _gate(question, vpa, target, recommender, pods_matched, trace)
    if gate is not None:
        return explanation([gate[0]], [gate[1]], {"published": False})
    bound: Bound = "target" if question.field == "uncappedTarget" else question.field
    amount = (
        trace.amounts.get((question.container, question.resource, bound))
        if trace is not None
        else None
    )
    if trace is None or amount is None:
        place: Facts = {"container": question.container, "resource": question.resource}
        return explanation(["NoSamples"], [place], {"published": False})
    resource = question.resource
    least = {"minimum": trace.pod_minimum[resource], "containers": trace.containers}
    estimate, estimate_facts = _estimate(amount.derivation, measured.held_by, least)
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


def _estimate(
    derivation: Derivation, held_by: PeakWindow | None, least: Mapping[str, int]
) -> tuple[str, Facts]:
    if derivation.amount != derivation.with_confidence:
        return "PodMinimum", {**least}
    factor = round(derivation.factor, 6) if derivation.factor != float("inf") else "unbounded"
    if derivation.with_confidence != derivation.with_margin:
        return "LowConfidence", {"factor": factor, "confidence": derivation.confidence}
    if held_by is None:
        return "PercentileOfUsage", {}
    if held_by.oom is not None:
        return "OomBump", {
            "oom_time": rfc3339(held_by.oom.time_s),
            "requested_bytes": held_by.oom.requested,
            "bumped_bytes": held_by.oom.bumped,
        }
    return "MemoryPeakHolds", {
        "peak_bytes": held_by.peak,
        "peak_window_start": rfc3339(held_by.start_s),
        "peak_window_end": rfc3339(held_by.end_s),
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
        facts["first_sample"] = rfc3339(measured.first_s)
        facts["last_sample"] = rfc3339(measured.last_s)
        facts["span_s"] = measured.last_s - measured.first_s
    return facts


def published(vpa: Vpa, container: str, resource: str) -> Quantity | None:
    """Return the target in the status."""
    recommendation = vpa.status.recommendation
    entry = recommendation.of(container) if recommendation is not None else None
    if entry is None or entry.target is None:
        return None
    return entry.target.get(resource)


def as_published(
    found: Explanation, vpa: Vpa, container: str, resource: str, standing: PublishedHolds
) -> Explanation:
    """Return the explanation of the amount that is published.

    ``found`` explains what is known now, which becomes the fact ``estimate`` where it differs;
    ``held_by`` says what keeps it from being published.
    """
    present = published(vpa, container, resource)
    estimate = found.decision.get("value")
    if present is None or found.first_reason in _LEAVES:
        return found
    more_nano = 0 if estimate is None else quantity.parse(str(estimate)).nano - present.nano
    is_anchored = resource == "cpu" and bool(standing.anchor)
    if estimate is not None and not more_nano and not is_anchored:
        return found
    facts: dict[str, Fact] = {"estimate": estimate}
    change = found.change
    until_s = standing.until_s.get((container, resource))
    # Nothing holds back what is more: it waits for its write.
    if is_anchored:
        facts |= {"held_by": "Anchor", "anchor": standing.anchor}
        change = (
            "The anchor changes once the HPA has been quiet and the recommendation leaves its "
            "bounds, or the replica count leaves the comfort band."
        )
    elif more_nano < 0 and until_s is not None:
        until = rfc3339(until_s)
        facts |= {"held_by": HISTORY_LOST, "held_until": until}
        change = (
            f"A day has to be known again, which is so at {until}; to reset it on purpose, delete "
            "its checkpoints and the recommendation in its status."
        )
    elif more_nano < 0 and standing.is_young:
        facts["held_by"] = "LowConfidence"
        change = "Time has to pass, until enough is known."
    decision: Facts = {"published": True, "amount": units(resource, present), "value": str(present)}
    return structs.replace(found, facts={**found.facts, **facts}, decision=decision, change=change)


def sentence_of(facts: Facts, estimate: str) -> str:
    """Return what ``as_published`` found, to follow the amount; empty: it is what is known now.

    ``estimate`` is that fact in a form for people.
    """
    if "estimate" not in facts:
        return ""
    if not estimate:
        return "It was published before and stands."
    match facts.get("held_by"):
        case "Anchor":
            return f"{facts['anchor']}. On its own, the VPA would recommend {estimate}."
        case "HistoryLost":
            return (
                "It was published before and is held, because its history is lost: nothing lower "
                f"is published until {facts['held_until']}. What is known now gives {estimate}."
            )
        case "LowConfidence":
            return (
                "It was published before and is held, because too little is known to lower it. "
                f"What is known now gives {estimate}."
            )
    return f"What is known now gives {estimate}, to be published with the next write of the status."


def telling(vpa: Vpa) -> list[VpaCondition]:
    """Return the conditions of the status that say why amounts are not what they seem."""
    return [
        each
        for each in vpa.status.conditions or ()
        if each.type in _TELLING and each.status == "True"
    ]
