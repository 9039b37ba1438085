"""The words of the VPA's reasons, and an amount and what led to it in those of whoever pays for it.

Percentiles, margins and confidences stay in the facts; in sentences they are what was used, what
is added, and for how long it is known. The tokens are those of the API group ``vpa.podscale.io``.
"""

from collections.abc import Mapping, Sequence

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from podscale.explain.explanation import Explanation, Facts, Words, merged
from vpa.model.amounts import of_units
from vpa.model.estimation.estimator import humanized

# Of BudgetExhausted, where something else than the pods of the group holds them.
HELD_BY: Mapping[str, Words] = {
    "OutsideDisruptionWindow": Words(
        "The disruption window of the VPA is closed.", "The disruption window opens."
    ),
    "DailyBudgetExhausted": Words(
        "The VPA's daily number of updated pods is used up.",
        "The next day begins, or you raise the number.",
    ),
    "OutcomeUnknown": Words(
        "The API server did not answer an update of this workload, which may have been applied.",
        "The API server answers in the next loop.",
    ),
    "ApiServerBusy": Words(
        "The API server is busy: it answered 429, and not for a PodDisruptionBudget.",
        "The API server is less busy.",
    ),
}

WORDS: Mapping[str, Words] = {
    "TargetNotFound": Words(
        "The object that targetRef names does not exist.", "Correct the name or create it."
    ),
    "TargetNotTopmost": Words(
        "targetRef names an object that belongs to another controller.",
        "Name the topmost controller.",
    ),
    "TargetWithoutSelector": Words(
        "The target does not say which pods are its own.",
        "The custom resource has to report status.selector in its scale.",
    ),
    "OtherRecommender": Words(
        "spec.recommenders gives this VPA to another recommender.",
        "Run that recommender, or remove the entry.",
    ),
    "NoPodsMatched": Words(
        "No pod matches, so nothing can be measured.", "Start pods with the target's labels."
    ),
    "ContainerModeOff": Words("The container's policy has mode Off.", "Set its mode to Auto."),
    "ResourceNotControlled": Words(
        "The resource is not in controlledResources of the container's policy.",
        "Add it there.",
    ),
    "NoSamples": Words(
        "The container was never measured, and nothing is guessed.", "Usage has to arrive."
    ),
    "UsageMissing": Words(
        "Recommendations are frozen because usage cannot be read.", "Usage can be read again."
    ),
    "PercentileOfUsage": Words(
        "The amount is a percentile of the decayed usage plus the safety margin.",
        "Only a change in usage.",
    ),
    "LowConfidence": Words(
        "The history is short, so the bound lies far out.",
        "It closes in with time: twice the target after a day, 1.14 times after a week.",
    ),
    "MemoryPeakHolds": Words(
        "One window of high memory still carries the percentile.",
        "It fades: in three windows for the target, in four for the upper bound.",
    ),
    "OomBump": Words(
        "The container was killed for memory, and what it would have needed counts as used.",
        "It fades like a peak; oomBumpUpRatio and oomMinBumpUp set how high it is.",
    ),
    "PodMinimum": Words(
        "The recommender gives no pod less; its containers share that minimum.",
        "Lower the minimum of the recommender, or of this VPA by annotation.",
    ),
    "CpuRoundedToCore": Words("An annotation asks for whole cores.", "Remove the annotation."),
    "MinAllowed": Words("minAllowed of the container's policy raised it.", "Lower minAllowed."),
    "MaxAllowed": Words(
        "maxAllowed, of the container's policy or of the cluster, cut it.", "Raise maxAllowed."
    ),
    "NodeSize": Words("No node could run a larger pod beside its DaemonSets.", "Add larger nodes."),
    "OutsideBounds": Words(
        "A request lies outside the recommended bounds.", "Change the request or the bounds."
    ),
    "WithinBoundsYoung": Words(
        "The pod is young, and its requests are within the recommended bounds.",
        "The pod gets older, or its requests leave the bounds.",
    ),
    "DriftedPastThreshold": Words(
        "The pod is old enough and its requests are too far from the target.",
        "The difference has to shrink.",
    ),
    "WithinUpdateThreshold": Words(
        "The requests are close enough to the target.",
        "The difference has to grow, or --pod-update-threshold to fall.",
    ),
    "NothingToChange": Words(
        "It already has the recommended requests.", "The recommendation or its caps change."
    ),
    "EvictionRequirementNotMet": Words(
        "An eviction requirement of the VPA does not hold.",
        "The target moves that way, or you remove the requirement.",
    ),
    "TooFewReplicas": Words(
        "Fewer pods run than the VPA or --min-replicas demands.",
        "Run more replicas, or lower minReplicas.",
    ),
    "BudgetExhausted": Words(
        "Another pod of this workload is still restarting.",
        "That pod runs again, or you raise --eviction-tolerance.",
    ),
    "PdbRefuses": Words(
        "A PodDisruptionBudget refuses the eviction.",
        "The PodDisruptionBudget allows a disruption.",
    ),
    "AdmissionNotAlive": Words(
        "The admission webhook shows no sign of life, or sized none of the pods that were "
        "evicted; more would come back unchanged.",
        "The admission part has to run, to renew its Lease, and to be sent the pods.",
    ),
    "UpdateModeOff": Words("updateMode is Off: it only recommends.", "Set another mode."),
    "UpdateModeInitial": Words(
        "updateMode is Initial: only new pods are sized.",
        "Set Recreate or InPlaceOrRecreate, or replace the pods.",
    ),
    "OlderVpaWins": Words(
        "An older VPA covers the same pods and decides.", "Delete one of the two."
    ),
    "NoRecommendation": Words(
        "The VPA has no recommendation yet.", "The recommender has to publish one."
    ),
    "QuickOom": Words(
        "A container ran out of memory soon after its start.",
        "It has to live longer than the threshold.",
    ),
    "ResizeDeferred": Words(
        "The kubelet will resize when there is room.",
        "The node needs room; InPlaceOrRecreate evicts after five minutes.",
    ),
    "ResizeInfeasible": Words(
        "The node can never give this size.",
        "Recommend less, or run on a larger node; InPlaceOrRecreate evicts.",
    ),
    "ResizeInProgress": Words(
        "The kubelet is applying the resize.",
        "It has to end; InPlaceOrRecreate evicts after an hour.",
    ),
    "ResizeError": Words(
        "The kubelet could not apply the resize.",
        "Repair what its message says; InPlaceOrRecreate evicts.",
    ),
    "QosClassWouldChange": Words(
        "The resize would change the pod's QoS class, which the API server refuses.",
        "Give the template requests and limits of the wanted class.",
    ),
    "FellBackToEviction": Words(
        "A resize was not possible, so the pod is evicted.", "Mode InPlace never evicts."
    ),
    "NotDecidedHere": Words(
        "The updater runs in another process, which tells its decisions in events and logs.",
        "Run `podscale control`, where recommender and updater share their explanations.",
    ),
    "NoVpaMatches": Words(
        "No VPA targets the pod's topmost controller with a matching selector.",
        "Correct targetRef, or let the target own the pod.",
    ),
    "NoRecommendationForContainer": Words(
        "The VPA recommends nothing for this container.", "It has to be measured for a while."
    ),
    "RecommendationApplied": Words(
        "The recommended request was set.", "The recommendation has to change."
    ),
    "PodLimitRange": Words(
        "Scaled until all containers together fit the Pod LimitRange.", "Change the LimitRange."
    ),
    "LimitRangeMax": Words(
        "Cut until the limit fits Max of the Container LimitRange.",
        "Change the LimitRange, or the ratio of limit to request.",
    ),
    "LimitRangeMin": Words("Raised to Min of the Container LimitRange.", "Change the LimitRange."),
    "ContainerLimit": Words(
        "With RequestsOnly a request cannot pass the container's limit.",
        "Raise the limit, or let the VPA control limits too.",
    ),
    "LimitKeptProportional": Words(
        "The limit keeps its ratio to the request.",
        "controlledValues RequestsOnly leaves limits alone.",
    ),
    "StartupBoost": Words(
        "The pod gets more CPU while it starts.", "It ends by itself; startupBoost asks for it."
    ),
}


_AMOUNTS = ("peak_bytes", "requested_bytes", "bumped_bytes", "min", "max")
_BECAUSE: Mapping[str, str] = {
    "PercentileOfUsage": "{used}{added}",
    "MemoryPeakHolds": "peak {peak_bytes}{added}, fading",
    "OomBump": "OOM-killed with a request of {requested_bytes}, counted as {bumped_bytes}{added}",
    "MinAllowed": "minAllowed is {min}",
    "MaxAllowed": "maxAllowed is {max}",
    "PodMinimum": "no pod is recommended less",
    "CpuRoundedToCore": "an annotation asks for whole cores",
    "NodeSize": "no node could run a larger pod",
}


def words_of(reason: str, facts: Facts) -> Words:
    """Return a reason in words; the token itself for one without any."""
    if reason == "BudgetExhausted" and facts.get("held_by") in HELD_BY:
        return HELD_BY[str(facts["held_by"])]
    return WORDS.get(reason, Words(reason, ""))


def explanation(reasons: Sequence[str], facts: Sequence[Facts], decision: Facts) -> Explanation:
    """Return the explanation with its words; of facts with one name the earlier ones count."""
    named, known = tuple(dict.fromkeys(reasons)), merged(facts)
    words = [words_of(reason, known) for reason in named] or [Words("", "")]
    sentences = tuple(each.means for each in words)
    return Explanation(named, known, decision, sentences, sentences[0], words[0].change)


def readable(resource: str, amount: object) -> str:
    """Return an amount as people write it: ``250m``, ``825.82Mi``; the facts keep every byte."""
    text = "" if amount is None else str(amount)
    if resource not in ("cpu", "memory") or not text:
        return text
    try:
        parsed = quantity.parse(text)
    except QuantityError:
        return text
    if resource == "memory":
        return _bytes(parsed.value)
    milli = parsed.milli
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def because(resource: str, reason: str, facts: Facts) -> str:
    """Return why an amount is what it is, to follow it in brackets; "" where only the reason's
    own sentence says it.
    """

    shown = {name: readable(resource, facts.get(name)) for name in _AMOUNTS}
    words = _BECAUSE.get(reason, "")
    return words.format(used=_used(resource, facts), added=_added(facts), **shown)


def history(facts: Facts) -> str:
    """Return a remark on how much is known; "" where that is a day or more."""
    known = facts.get("confidence")
    return "; little history so far" if isinstance(known, int | float) and known < 1 else ""


def _used(resource: str, facts: Facts) -> str:
    usage, share = facts.get("usage"), facts.get("percentile")
    if not isinstance(usage, int) or not isinstance(share, int | float):
        return "from its usage"
    shown = readable(resource, str(of_units(resource, usage)))
    if resource == "memory":
        return f"peak {shown}"
    return f"up to {shown} in {100 * share:g}% of the time"


def _added(facts: Facts) -> str:
    margin = facts.get("margin")
    return f" + {100 * margin:g}%" if isinstance(margin, int | float) and margin else ""


def _bytes(value: int) -> str:
    text = humanized(value)
    number, unit = (text[:-2], text[-2:]) if text.endswith("i") else (text, "")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + unit
