"""What stands in a VPA's status, where what is known now would give another amount.

Pods get what is published, so that is the amount to explain: what holds it, or that the new
one is still to be written. Pure.
"""

from collections.abc import Mapping

from msgspec import Struct

from podscale.core import quantity
from podscale.core.quantity import Quantity
from podscale.core.times.rfc3339 import rfc3339
from vpa.explain.explanation import Fact, SizingExplanation
from vpa.model.api.conditions import HISTORY_LOST
from vpa.model.api.objects import Vpa, VpaCondition
from vpa.model.api.quantities import units

# Their amounts leave the status with the next write.
_LEAVES = frozenset({"ContainerModeOff", "ResourceNotControlled"})
_TELLING = frozenset({"LowConfidence", "ConfigUnsupported", "AnnotationInvalid"})


class PublishedHolds(Struct, frozen=True):
    """Why nothing goes below what is published yet; both empty: nothing holds it."""

    until_s: Mapping[tuple[str, str], float] = {}  # by container and resource: history lost
    is_young: bool = False  # too little is known to lower anything
    anchor: str = ""  # how an HPA counts on the CPU, for people; empty: none does


def published(vpa: Vpa, container: str, resource: str) -> Quantity | None:
    """Return the target in the status."""
    recommendation = vpa.status.recommendation
    entry = recommendation.of(container) if recommendation is not None else None
    if entry is None or entry.target is None:
        return None
    return entry.target.get(resource)


def as_published(
    found: SizingExplanation, vpa: Vpa, container: str, resource: str, standing: PublishedHolds
) -> SizingExplanation:
    """Return the explanation of the amount that is published.

    ``found`` explains what is known now, which becomes the fact ``estimate`` where it differs;
    ``held_by`` says what keeps it from being published.
    """
    present = published(vpa, container, resource)
    estimate = found.decision.get("value")
    if present is None or found.first in _LEAVES:
        return found
    more_nano = 0 if estimate is None else quantity.parse(str(estimate)).nano - present.nano
    is_anchored = resource == "cpu" and bool(standing.anchor)
    if estimate is not None and not more_nano and not is_anchored:
        return found
    facts: dict[str, Fact] = {"estimate": estimate}
    until_s = standing.until_s.get((container, resource))
    # Nothing holds back what is more: it waits for its write.
    if is_anchored:
        facts |= {"held_by": "Anchor", "anchor": standing.anchor}
    elif more_nano < 0 and until_s is not None:
        facts |= {"held_by": HISTORY_LOST, "held_until": rfc3339(until_s)}
    elif more_nano < 0 and standing.is_young:
        facts["held_by"] = "LowConfidence"
    decision: dict[str, Fact] = {
        "published": True,
        "amount": units(resource, present),
        "value": str(present),
    }
    return SizingExplanation(found.reasons, {**found.facts, **facts}, decision)


def sentence_of(facts: Mapping[str, Fact], estimate: str) -> str:
    """Return what ``as_published`` found, to follow the amount; empty: it is what is known now.

    ``estimate`` is that fact in a form for people.
    """
    if "estimate" not in facts:
        return ""
    if not estimate:
        return "It was published before and stands."
    match facts.get("held_by"):
        case "Anchor":
            return f"{facts['anchor']}. What is known of the pods by itself gives {estimate}."
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


def change_of(facts: Mapping[str, Fact], otherwise: str) -> str:
    """Return what would have to change for the amount to be another one."""
    match facts.get("held_by"):
        case "Anchor":
            return (
                "The anchor moves with it, once the HPA is quiet and what is known lies outside "
                "the bounds, or its replicas outside the comfort band."
            )
        case "HistoryLost":
            return (
                f"A day has to be known again, which is so at {facts['held_until']}; to reset it "
                "on purpose, delete its checkpoints and the recommendation in its status."
            )
        case "LowConfidence":
            return "Time has to pass, until enough is known."
    return otherwise


def telling(vpa: Vpa) -> list[VpaCondition]:
    """Return the conditions of the status that say why amounts are not what they seem."""
    return [
        each
        for each in vpa.status.conditions or ()
        if each.type in _TELLING and each.status == "True"
    ]
