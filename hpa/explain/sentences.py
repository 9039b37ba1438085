"""One decision told in plain words, in the order in which it was made."""

from collections.abc import Iterator, Sequence

from hpa.decide import decision as steps
from hpa.decide.api.spec import MOST_METRICS_TOGETHER, MetricSpec
from hpa.decide.conditions import GAP, REFUSED, gap_text, refusal_text
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import MetricAnswer
from hpa.decide.pods import PodGroups
from hpa.explain.facts import events_within, owners_of, window_of
from hpa.explain.reading import ReadTrace, age, amount, count, listed, share, step_of, verb
from hpa.explain.reason_order import FORECAST, SCHEDULED, kinds_of, limit_reason
from hpa.explain.whatif import foreign_pods, gone_pods, unready_pods
from podscale.core.metrics import (
    CLUSTER_APIS,
    ExternalSamples,
    ObjectSample,
    Samples,
    samples_of,
)

_BUCKETS = {
    "missing": "{} reported nothing (idle when growing, on target or at their whole request "
    "when shrinking)",
    "pending": "{} still pending (idle when growing, left out when shrinking)",
    "initializing": "{} started lately, samples not trusted yet (idle when growing, left out "
    "when shrinking)",
    "never_ready": "{} not ready since their start (idle when growing, left out when shrinking)",
    "finished": "{} finished and left out",
    "terminating": "{} being deleted and left out",
}


def sentences(told: ReadTrace, reasons: Sequence[str]) -> Iterator[str]:
    """Yield the sentences; which ones there are depends on how far the pass got."""
    hpa, scale = told.hpa, told.scale
    if scale is not None:
        bounds = f"between {told.minimum} and {hpa.max_replicas}"
        pods = ""
        if told.knows_pods:
            matches = "matches" if len(told.pods) == 1 else "match"
            pods = f"; {count(len(told.pods), 'pod')} {matches} its selector"
        size = count(scale.spec_replicas, "replica")
        yield f"{told.target} has {size} and may have {bounds}{pods}."
        if scale.status_replicas != scale.spec_replicas:
            yield f"Its status reports {scale.status_replicas}, as during a rollout."
    for step in told.trace.steps:
        yield from _before_metrics(told, step)
    yield from (text for _, text in _about_pods(told, reasons))
    if told.measured and hpa.is_read_apart:
        yield (
            f"Its {len(hpa.metrics)} metrics are read apart from those of other autoscalers, "
            f"{MOST_METRICS_TOGETHER} at a time, because they are more than that."
        )
    for measured in told.measured:
        yield from _metric(told, measured)
    yield from _choice(told)
    yield from _held(told)
    yield from _waits(told)
    yield from _window(told)
    yield from _forecast(told)
    yield from _limit(told)
    yield from _woken(told)
    yield from _done(told)
    period_s = told.trace.settings.period_of(hpa)
    if (hpa.options.sync_period_s or period_s) < period_s:
        yield f"It is decided every {period_s:g} s: --min-sync-period allows no shorter period."
    for problem in hpa.options.problems:
        yield f"An annotation could not be read: {problem}."
    yield from (f"{text}." for _, text in hpa.remarks)


def sentence_of(told: ReadTrace, reason: str) -> str:
    """Return the sentence that belongs to ``reason``, the first one of the decision."""
    failed = (each for each, result in told.invalid() if reason in kinds_of(told, each, result))
    found: Iterator[str] = iter(())
    match reason:
        case "ShadowMode" | "ScaleUpdateFailed" | "ScaleUpdateConflict":
            found = _done(told)
        case _ if reason == SCHEDULED:
            found = (text for step in told.trace.steps if isinstance(step, steps.Scheduled)
                     for text in _before_metrics(told, step))  # fmt: skip
        case _ if not told.measured:
            found = (text for step in reversed(told.trace.steps)
                     for text in _before_metrics(told, step))  # fmt: skip
        case _ if (measured := next(failed, None)) is not None:
            found = _metric(told, measured)
        case _ if reason == FORECAST:
            found = _forecast(told)
        case "AnchorMissing":
            found = _held(told)
        case _ if reason in (GAP, REFUSED):
            found = _waits(told)
        case "ScaleUpStabilized" | "ScaleDownStabilized":
            found = _window(told)
        case _ if told.limit is not None and reason == limit_reason(told):
            found = _limit(told)
        case "MinReplicasReached":
            found = _woken(told)
        case "LargestProposalWins":
            found = (text for text in _choice(told) if text.startswith("The largest"))
        case "ForeignPodsCounted" | "StalePodsInAnswer" | "NotReadyPodsLeftOut":
            found = (text for about, text in _about_pods(told, [reason]) if about == reason)
        case "MissingPodMetrics" | "PendingPods" | "CpuInitialization" | "NeverReadyPods":
            found = (text for groups in told.groups for text in _groups(groups))
        case _ if told.winner is not None:
            found = _metric(told, told.winner)
    return next(found, None) or next(_done(told), "")


def _before_metrics(told: ReadTrace, step: steps.Step) -> Iterator[str]:
    match step:
        case steps.Paused():
            yield "The annotation podscale.io/paused is set: nothing is read and nothing done."
        case steps.Scheduled():
            found, of = step.minimum, step.minimum.schedule
            when = f"{of.start} to {of.end}"
            zone = f" {of.zone}" if of.start_s is None else ""
            way = ", on the way up to it" if found.is_ramp else ""
            yield (
                f"A schedule ({when}{zone}, minReplicas {of.min_replicas}) raises minReplicas "
                f"from {told.hpa.min_replicas} to {found.replicas}{way}."
            )
        case steps.TargetUnreadable():
            yield f"The scale of {told.target} cannot be read: {step.text}."
            if step.kind == "Other":
                yield f"Whether {told.target} exists is not known from that."
        case steps.KeptAtZero():
            yield "At zero replicas the HPA is switched off unless it went there itself."
        case steps.Corrected(reason="AboveMaxCorrected"):
            yield f"{step.before} is above maxReplicas; corrected without reading metrics."
        case steps.Corrected():
            yield f"{step.before} is below minReplicas; corrected without reading metrics."
        case steps.Conflict():
            yield f"Nothing is computed: {step.text}."


def _about_pods(told: ReadTrace, reasons: Sequence[str]) -> Iterator[tuple[str, str]]:
    # A reason and its sentence.
    if not told.measured:
        return
    foreign = foreign_pods(told)
    if foreign:
        owners = listed([each or "no controller" for each in owners_of(told.pods, foreign)])
        belong = verb(foreign, "belongs", "belong")
        are = verb(foreign, "is", "are")
        yield (
            "ForeignPodsCounted",
            f"{listed(foreign)} {belong} to {owners} and {are} counted, because labels decide.",
        )
    gone = gone_pods(told)
    if gone:
        exist = verb(gone, "does not exist", "do not exist")
        yield "StalePodsInAnswer", f"The metrics still tell of {listed(gone)}, which {exist}."
    if "NotReadyPodsLeftOut" in reasons:
        unready = unready_pods(told)
        are = verb(unready, "is", "are")
        yield (
            "NotReadyPodsLeftOut",
            f"A Value target multiplies by ready pods; {listed(unready)} {are} not.",
        )


def _metric(told: ReadTrace, measured: steps.Measured) -> Iterator[str]:
    spec = told.spec(measured)
    name = _name(spec)
    if isinstance(measured.result, Invalid):
        yield f"{name} cannot be used: {why_not(measured.result)}."
        if measured.fallback is not None:
            yield f"Its fallback stands in and asks for {measured.fallback}."
        return
    result: Valid = measured.result
    found = result.calculation
    answer = told.observation.answers[measured.index]
    shown = _measurement(spec, result, _undivided(told, answer))
    yield f"{name} {shown}{_when(told, answer)}{_share(found.ratio)}."
    if found.groups is not None:
        yield from _groups(found.groups)
    if found.corrected is not None:
        yield f"With those pods filled in it is {share(found.corrected)} of the target."
    why = {
        "WithinTolerance": "within the tolerance",
        "DirectionWouldFlip": "because filling in silent pods would turn the direction round",
        "SmallPodsRemain": "because those that stay get the whole load, and may not have grown yet",
        "TargetMissed": "rounded up",
    }[found.outcome]
    yield f"It asks for {count(found.replicas, 'replica')}, {why}."


def why_not(result: Invalid) -> str:
    """Return why a metric cannot be used, without upstream's chain of prefixes."""
    if result.failure is not None and result.failure.message:
        return result.failure.message
    return result.text.rsplit(": ", 1)[-1] if result.failure is not None else result.text


def _name(spec: MetricSpec) -> str:
    match spec.type:
        case "Resource":
            return f"Resource {spec.name}"
        case "ContainerResource":
            return f"Resource {spec.name} of container {spec.container}"
        case "Object" if spec.described is not None:
            return f"Metric {spec.name} of {spec.described.kind} {spec.described.name}"
        case "External":
            return f"External metric {spec.name}"
    return f"Metric {spec.name}" if spec.name else f"A metric of type {spec.type}"


def _undivided(told: ReadTrace, answer: MetricAnswer | None) -> int | None:
    """Return the whole of a metric where no pod runs: a pod's share of it, 0, says nothing."""
    if told.scale is None or told.scale.status_replicas != 0:
        return None
    match answer:
        case ObjectSample():
            return answer.sample.value_milli
        case ExternalSamples():
            return sum(each.sample.value_milli for each in answer.series)
    return None


def _measurement(spec: MetricSpec, result: Valid, undivided: int | None) -> str:
    found = result.calculation
    shown = amount(found.usage, spec.name)
    if found.utilization is not None:
        target = f"{spec.average_utilization} %"
        return f"is used at {found.utilization} % of the requests ({shown} a pod, target {target})"
    if spec.is_by_value:
        return f"is {shown} (target {amount(spec.value_milli or 0, spec.name)})"
    target = amount(spec.average_value_milli or 0, spec.name)
    if undivided is not None:
        return f"is {amount(undivided, spec.name)} with no pod to share it (target {target} a pod)"
    return f"is {shown} a pod (target {target})"


def _share(ratio: float | None) -> str:
    return "" if ratio is None else f", {share(ratio)} of the target"


def _when(told: ReadTrace, answer: MetricAnswer | None) -> str:
    samples = samples_of(answer) if isinstance(answer, Samples) else []
    series = by = ""
    if isinstance(answer, ExternalSamples) and len(samples) > 1:
        series = f" as the sum of {len(samples)} series"
    if source := getattr(answer, "answered_by", ""):
        by = f", answered by {'' if source == CLUSTER_APIS else 'the external backend '}{source}"
    times = [each.time_s for each in samples if each.time_s is not None]
    # Times before the epoch stand for "not set".
    if not times or min(times) < 0:
        return series + by
    # Prometheus's clock may be ahead of ours.
    return f"{series}, measured {age(max(told.trace.now - min(times), 0.0))} ago{by}"


def _groups(groups: PodGroups) -> Iterator[str]:
    parts = [f"{count(groups.ready, 'pod')} ready and counted"]
    for bucket, text in _BUCKETS.items():
        names: tuple[str, ...] = getattr(groups, bucket)
        if names:
            parts.append(text.format(listed(names)))
    if len(parts) > 1:
        yield f"Pods: {'; '.join(parts)}."


def _choice(told: ReadTrace) -> Iterator[str]:
    if told.blocked is not None:
        if told.blocked.best is None:
            yield "No metric could be used, so the size is kept."
        else:
            best = told.blocked.best
            yield f"The others ask for {best}; with a metric unreadable nothing is removed."
    winner = told.winner
    if winner is not None and len(told.measured) > 1 and told.chosen is not None:
        name = _name(told.spec(winner))
        yield f"The largest proposal counts: {told.chosen.replicas}, of {name}."


def _held(told: ReadTrace) -> Iterator[str]:
    held = told.observation.held
    if held is not None:
        yield f"{held.text[:1].upper()}{held.text[1:]}."
    step = step_of(told.trace, steps.ShrinkWaits)
    if step is not None and step.reason == "AnchorMissing":
        yield f"Until the anchor is known nothing shrinks: {step.before} becomes {step.replicas}."


def _waits(told: ReadTrace) -> Iterator[str]:
    step = step_of(told.trace, steps.ShrinkWaits)
    if step is not None and step.reason != "AnchorMissing":
        text = refusal_text(told.hpa) if step.gap is None else gap_text(step.gap)
        yield (
            f"{text}: {step.replicas} stays {step.replicas} (the metrics ask for {step.before})."
        )


def _window(told: ReadTrace) -> Iterator[str]:
    step = told.window
    if step is None:
        return
    is_up = step.direction == "up"
    width = age(window_of(told, is_up=is_up))
    kind = "scale-up" if is_up else "scale-down"
    text = f"The {kind} window of {width} turns {step.before} into {step.replicas}"
    if step.held_by is not None:
        made = age(told.trace.now - step.held_by.at)
        text += f", because {step.held_by.replicas} was recommended {made} ago"
    yield f"{text}."


def _forecast(told: ReadTrace) -> Iterator[str]:
    step, expected = step_of(told.trace, steps.ForecastApplied), told.observation.expected
    if step is None or expected is None:
        return
    metrics = told.hpa.metrics
    target = metrics[0].average_value_milli if len(metrics) == 1 else None

    def demand(pods: float) -> str:
        if target is None:
            return f"{pods:.3g} pods at target"
        return amount(round(pods * target), metrics[0].name)

    before = ""
    if expected.day_before is not None:
        before = f"Yesterday at this hour {demand(expected.day_before)}; "
    within = age(expected.within_s)
    text = f"{before}forecast {demand(expected.pods)} within {within} asks for {step.replicas}"
    if expected.days:
        text += (
            f" ({expected.candidate}; it has saved {expected.saved:.0%} of unserved demand in the "
            f"last {count(expected.days, 'day')} at {expected.more:.0%} more pod-hours)"
        )
    yield f"{text[0].upper()}{text[1:]}."


def _limit(told: ReadTrace) -> Iterator[str]:
    step = told.limit
    if step is None:
        return
    match step.reason:
        case "TooManyReplicas":
            yield f"maxReplicas cuts {step.before} to {step.replicas}."
        case "TooFewReplicas":
            yield f"minReplicas raises {step.before} to {step.replicas}."
        case _ if step.policy is not None:
            policy = step.policy
            much = count(policy.value, "pod") if policy.type == "Pods" else f"{policy.value} %"
            per = f"{much} in {policy.period_seconds} s"
            yield f"A policy allows {per}: {step.before} becomes {step.replicas}."
            for event in events_within(told, step, policy.period_seconds):
                verb = "made" if event.earliest is None else "found"
                when = age(told.trace.now - event.at)
                yield f"A change by {event.change} {verb} {when} ago still counts against it."
        case _ if told.hpa.behavior is None:
            yield f"One pass goes at most to {step.limit}: {step.before} becomes {step.replicas}."
        case _:
            yield f"The direction is disabled: {step.before} becomes {step.replicas}."


def _woken(told: ReadTrace) -> Iterator[str]:
    step = step_of(told.trace, steps.ScaledFromZero)
    if step is not None:
        yield f"minReplicas raises {step.before} to {step.replicas}."


def _done(told: ReadTrace) -> Iterator[str]:
    trace, current = told.trace, told.current
    if trace.decided is None or current is None:
        return
    if trace.decided == current:
        yield f"The size stays at {current}."
    elif trace.settings.mode == "shadow":
        yield f"In shadow mode {trace.decided} is not written; the size is still {current}."
    elif trace.outcome is not None and trace.outcome.scale in ("failed", "conflict"):
        error = trace.outcome.scale_error
        yield f"{trace.decided} could not be written; the size is still {current}: {error}."
    elif trace.outcome is not None and trace.outcome.scale == "not_tried":
        if trace.outcome.scale_error:
            why = trace.outcome.scale_error
            yield f"{trace.decided} is not written yet; the size is still {current}: {why}."
        else:
            yield (
                f"{trace.decided} is not written: what it was decided on may not stand any more (a "
                f"watch is behind, the object changed, or the write waited too long). The size is "
                f"still {current}."
            )
    else:
        yield f"The size changes from {current} to {trace.decided}."
