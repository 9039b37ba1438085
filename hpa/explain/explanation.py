"""``explain``: one trace as reasons, facts and plain words, and what would have to change for it
to scale (or to stop): sentences that have been tried.

The decision is made again with what a sentence names. Where that changes nothing, the sentence
says so, and the next thing follows: what holds the number then.
"""

from collections.abc import Mapping, Sequence

from hpa.decide.conditions import GAP, REFUSED
from hpa.decide.decision import ForecastApplied, TargetUnreadable, Trace
from hpa.explain.facts import facts
from hpa.explain.reading import ReadTrace, listed, step_of, tell, verb
from hpa.explain.reason_order import is_put_off, reasons
from hpa.explain.remedies import REMEDIES, Remedy
from hpa.explain.sentences import headline, sentences
from hpa.explain.whatif import Inputs
from podscale.explain.explanation import Explanation, Fact, Facts

NOT_ENOUGH = "Also needed:"
NOTHING_ELSE = "That alone is not enough."
PUT_OFF = "Nothing has to: the next pass decides again, and writes once every watch is current."

_MOVING = ("MetricAboveTarget", "AllMetricsBelowTarget")  # hold nothing back
_MOST = 5  # things that are named one after the other


def explain(trace: Trace) -> Explanation:
    """Return the explanation of ``trace``. Costs a few decisions: it asks "what if".

    Its decision: ``replicas`` of the target after the pass, ``decided`` where that could not or
    must not be written, ``proposals`` of each metric of the spec, ``forecast`` where it asks for
    more.
    """
    read = tell(trace)
    named = reasons(read)
    known = facts(read, named)
    return Explanation(
        tuple(named),
        known,
        _decision(read),
        tuple(sentences(read, named)),
        headline(read, named[0]),
        PUT_OFF if is_put_off(read) else change(read, named[0], known),
    )


def first_reason(trace: Trace) -> str:
    """Return the reason named first, for metrics and for what traces to keep."""
    return reasons(tell(trace))[0]


def _decision(read: ReadTrace) -> Facts:
    forecast = step_of(read.trace, ForecastApplied)
    known: Facts = {
        "replicas": read.size_after,
        "decided": read.trace.decided if read.is_vain else None,
        "proposals": tuple(each.replicas for each in read.measured) or None,
        "forecast": None if forecast is None else forecast.replicas,
    }
    return {name: fact for name, fact in known.items() if fact is not None}


def change(told: ReadTrace, reason: str, known: Mapping[str, Fact]) -> str:
    """Return what has to change for another outcome; ``reason`` is the one named first."""
    inputs, actual = Inputs.of(told.trace), told.trace.decided
    found: list[str] = []
    seen: list[tuple[str, Fact]] = []
    while True:
        tried = REMEDIES[reason](told, inputs, known) if reason in REMEDIES else []
        if not tried:
            return " ".join([*found, _untried(told, reason, known)])
        tried = [each for each in tried if each.tries] or tried
        true = [each for each in tried if each.changes(inputs, actual)]
        found.append(_joined(true or tried))
        if true or not tried[0].tries:
            return " ".join(found)
        seen.append((reason, known.get("metric")))
        inputs = tried[0].tries[0].settled()
        told = tell(inputs.trace())
        named = reasons(told)
        reason, known = named[0], facts(told, named)
        is_known = (reason, known.get("metric")) in seen or reason in _MOVING
        if is_known or len(seen) == _MOST:
            return " ".join([*found, NOTHING_ELSE])
        found.append(NOT_ENOUGH)


def _joined(remedies: Sequence[Remedy]) -> str:
    return f"{', or '.join([each.text for each in remedies])}."


def _untried(told: ReadTrace, reason: str, known: Mapping[str, Fact]) -> str:
    """Return the sentence for a reason whose end lies outside of the decision's inputs, or that
    was found by trying its end already (``whatif``)."""
    step = step_of(told.trace, TargetUnreadable)
    if reason == "TargetNotFound" and step is not None and step.kind == "Other":
        return f"The scale of {told.target} becomes readable ({known.get('message')})."
    pods = known.get("pods")
    names = [str(each) for each in pods] if isinstance(pods, list) else []
    words = {
        "pods": listed(names) or "pods",
        "s": verb(names, "s", ""),
        "have": verb(names, "has", "have"),
        "are": verb(names, "is", "are"),
    }
    return _CHANGES[reason].format_map({**known, **words})


# With the facts of the explanation, and the pods among them in words.
_CHANGES: Mapping[str, str] = {
    GAP: "Scaling down resumes at {whole} if the metrics still ask for less; or a metric rises.",
    "TargetNotFound": "The target exists under the name in scaleTargetRef.",
    "ContainerNotFound": "The HPA names a container that the pods have; {container} is in none.",
    "ForeignPodsCounted": "{pods} get{s} other labels, or podscale.io/pods-by: owner leaves them "
    "out.",
    "StalePodsInAnswer": "The query stops returning {pods}, which {are} gone.",
    "NotReadyPodsLeftOut": "{pods} become{s} ready, or the target is an AverageValue.",
    "MissingPodMetrics": "{pods} report{s} the metric.",
    "CpuInitialization": "{pods} {have} a whole sample window after becoming ready.",
    "NeverReadyPods": "{pods} become{s} ready.",
    "PendingPods": "{pods} {are} scheduled and start{s}.",
    "AllPodsUnready": "At least one pod becomes ready ({pods} {are} not).",
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
    "BelowMinCorrected": "minReplicas is lowered to keep fewer.",
    "AboveMaxCorrected": "maxReplicas is raised to keep more.",
    "NoPodsMatched": "Pods with the labels of the selector come into being.",
    "AllMetricsInvalid": "At least one metric can be read.",
    "AnchorMissing": "The recommender writes the anchor into the VPA, or podscale.io/coordinate "
    "is removed.",
    REFUSED: "podscale.io/schedule is corrected or removed, or a metric rises.",
    "ScaleDownBlockedByInvalidMetric": "The unreadable metric is repaired, removed, or given a "
    "fallback.",
    "InvalidMetricIgnored": "Nothing for now; the metric is repaired before the load falls.",
    "SeriesSummed": "The metric selects one series, or the target is set for the sum.",
    "RolloutReplicasDiffer": "The rollout ends.",
    "FinishedPodsIgnored": "Nothing; the finished pods may be deleted.",
    "TerminatingPodsIgnored": "Nothing.",
    "LargestProposalWins": "The metric with the largest proposal falls.",
    "RoundedUpToCurrent": "The load changes by a whole pod.",
    "SmallPodsRemain": "All pods have the size that the VPA recommends, and none is leaving.",
    "ScaleUpStabilized": "Earlier recommendations expire, or you shorten the window.",
    "ScaleDownStabilized": "Earlier recommendations expire, or you shorten the window.",
    "ScheduledMinimumReached": "The schedule ends, or podscale.io/schedule asks for less.",
    "ForecastAboveMetrics": "The time of the forecast passes.",
    "ScaleUpRateLimited": "The period of the policy ends, or you loosen the policy.",
    "ScaleDownRateLimited": "The period of the policy ends, or you loosen the policy.",
    "LegacyScaleUpLimit": "Nothing has to: the next pass goes on. behavior sets another limit.",
    "MetricAboveTarget": "The metric falls, or its target is raised.",
    "ScaleUpdateFailed": "What refuses the write (permission, webhook, validation) is removed.",
    "ScaleUpdateConflict": "The other writer of the target is stopped.",
}
