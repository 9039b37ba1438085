"""One decision told in plain words, in the order in which it was made."""

from collections.abc import Iterator, Sequence
from itertools import product

from hpa.decide import decision as steps
from hpa.decide.api.spec import MOST_METRICS_TOGETHER, MetricSpec
from hpa.decide.conditions import gap_text, refusal_text
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import MetricAnswer
from hpa.decide.pods import PodGroups
from hpa.explain.facts import events_within, owners_of, window_of
from hpa.explain.reading import ReadTrace, age, amount, count, listed, step_of, verb
from hpa.explain.reason_order import POD_REASONS, SCHEDULED, kinds_of
from hpa.explain.whatif import foreign_pods, gone_pods, unready_pods, within_tolerance
from podscale.core.metrics import (
    CLUSTER_APIS,
    ExternalSamples,
    ObjectSample,
    Samples,
    samples_of,
)
from podscale.explain.explanation import one_sentence

_IGNORED = "(assumed 0 when scaling up, ignored when scaling down)"
_BUCKETS = {
    "missing": "{} reported nothing (assumed 0 when scaling up, at target or at the whole request "
    "when scaling down)",
    "pending": f"{{}} still pending {_IGNORED}",
    "initializing": f"{{}} just started, samples not counted yet {_IGNORED}",
    "never_ready": f"{{}} never ready so far {_IGNORED}",
    "finished": "{} finished and not counted",
    "terminating": "{} being deleted and not counted",
}
_BECAUSE = {
    "WithinTolerance": "within the tolerance",
    "DirectionWouldFlip": "counting the silent pods would reverse the direction",
    "SmallPodsRemain": "pods that stay get the whole load, and may not have grown yet",
    "TargetMissed": "rounded up",
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
    for step_texts in (_choice, _held, _waits, _window, _forecast, _limit, _woken, _done):
        yield from step_texts(told)
    period_s = told.trace.settings.period_of(hpa)
    if (hpa.options.sync_period_s or period_s) < period_s:
        yield f"It is decided every {period_s:g} s: --min-sync-period allows no shorter period."
    for problem in hpa.options.problems:
        yield f"An annotation could not be read: {problem}."
    yield from (f"{text}." for _, text in hpa.remarks)


def headline(told: ReadTrace, reason: str) -> str:
    """Return the decision in one sentence: what was measured against which target, what that
    needs, what limits it, and the outcome. ``reason`` is the one named first.
    """
    return one_sentence((*_parts(told, reason), *_done(told)))


def _parts(told: ReadTrace, reason: str) -> Iterator[str]:
    if not told.measured:
        yield from [text for step in told.trace.steps for text in _before_metrics(told, step)][:2]
        return
    failed = (each for each, result in told.invalid() if reason in kinds_of(told, each, result))
    held = within_tolerance(told) if reason == "WithinTolerance" else None
    measured = next(failed, None) or held or told.winner or told.measured[0]
    yield from _need(told, measured)
    yield from (text for about, text in _about_pods(told, [reason]) if about == reason)
    if reason == "RolloutReplicasDiffer" and told.scale is not None:
        yield f"status.replicas is {told.scale.status_replicas}, as during a rollout"
    buckets = [bucket for bucket, of in POD_REASONS if of == reason]
    for bucket, groups in product(buckets, told.groups[:1]):
        yield _BUCKETS[bucket].format(listed(getattr(groups, bucket)))
    yield from () if told.blocked is None else _choice(told)
    if reason == "AnchorMissing":
        yield from list(_held(told))[-1:]
    yield from _waits(told)
    if told.window is not None:
        yield _window_holds(told, told.window)
    yield from _forecast(told)
    scheduled = step_of(told.trace, steps.Scheduled)
    if reason == SCHEDULED and scheduled is not None:
        yield from _before_metrics(told, scheduled)
    yield from [*list(_limit(told))[:1], *_woken(told)]


def _need(told: ReadTrace, measured: steps.Measured) -> Iterator[str]:
    if not isinstance(measured.result, Valid):
        yield from _metric(told, measured)
        return
    found = measured.result.calculation
    needs = f"which needs {count(found.replicas, 'replica')}"
    if found.outcome == "WithinTolerance":
        needs = _BECAUSE[found.outcome]
    elif len(told.measured) > 1 and measured is told.winner:
        needs += f", the most of {len(told.measured)} metrics"
    yield f"{_measurement(told, measured, measured.result)}, {needs}"


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
        case steps.Corrected():
            bound = f"above maxReplicas ({told.hpa.max_replicas})"
            if step.reason != "AboveMaxCorrected":
                bound = f"below minReplicas ({told.minimum})"
            yield f"{step.before} is {bound}; corrected without reading metrics."
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
        yield "StalePodsInAnswer", f"The metrics still contain {listed(gone)}, which {exist}."
    if "NotReadyPodsLeftOut" in reasons:
        unready = unready_pods(told)
        are = verb(unready, "is", "are")
        yield (
            "NotReadyPodsLeftOut",
            f"A Value target multiplies by ready pods; {listed(unready)} {are} not.",
        )


def _metric(told: ReadTrace, measured: steps.Measured) -> Iterator[str]:
    if isinstance(measured.result, Invalid):
        yield f"{_name(told.spec(measured))} cannot be used: {why_not(measured.result)}."
        if measured.fallback is not None:
            yield f"Its fallback stands in and asks for {measured.fallback}."
        return
    found = measured.result.calculation
    when = _when(told, told.observation.answers[measured.index])
    times = "" if found.ratio is None else f", {found.ratio:.4g} times the target"
    yield f"{_measurement(told, measured, measured.result)}{when}{times}."
    if found.groups is not None:
        yield from _groups(found.groups)
    if found.corrected is not None:
        yield f"With those pods filled in it is {found.corrected:.4g} times the target."
    yield f"That needs {count(found.replicas, 'replica')} ({_BECAUSE[found.outcome]})."


def why_not(result: Invalid) -> str:
    """Return why a metric cannot be used, without upstream's chain of prefixes."""
    if result.failure is not None and result.failure.message:
        return result.failure.message
    return result.text.rsplit(": ", 1)[-1] if result.failure is not None else result.text


def _name(spec: MetricSpec) -> str:
    match spec.type:
        case "ContainerResource":
            return f"{spec.name} of container {spec.container}"
        case "Object" if spec.described is not None:
            return f"{spec.name} of {spec.described.kind} {spec.described.name}"
    return spec.name or f"A metric of type {spec.type}"


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


def _measurement(told: ReadTrace, measured: steps.Measured, result: Valid) -> str:
    spec, found = told.spec(measured), result.calculation
    name, shown = _name(spec), amount(found.usage, spec.name)
    undivided = _undivided(told, told.observation.answers[measured.index])
    if found.utilization is not None:
        target = f"target {spec.average_utilization}%"
        return f"{name} is {found.utilization}% of the request ({target}, usage {shown} per pod)"
    if spec.is_by_value:
        return f"{name} is {shown} (target {amount(spec.value_milli or 0, spec.name)})"
    target = amount(spec.average_value_milli or 0, spec.name)
    if undivided is not None:
        shown = amount(undivided, spec.name)
        return f"{name} is {shown} and there are no pods (target {target} per pod)"
    return f"{name} is {shown} per pod (target {target})"


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
            yield f"The size stays at {told.current}, because no metric could be used."
        else:
            best = told.blocked.best
            yield f"The other metrics ask for {best}; with one unreadable no pod is removed."
    winner = told.winner
    if winner is not None and len(told.measured) > 1 and told.chosen is not None:
        name = _name(told.spec(winner))
        yield f"The largest proposal counts: {told.chosen.replicas}, of {name}."


def _held(told: ReadTrace) -> Iterator[str]:
    held = told.observation.held
    if held is not None and held.anchor is not None:
        base = f"utilization is measured against a fixed {held.anchor.milli}m per pod (the anchor)"
        yield f"{held.text.partition(';')[0]}, so {base}."
    elif held is not None:
        yield f"{held.text[:1].upper()}{held.text[1:]}."
    step = step_of(told.trace, steps.ShrinkWaits)
    if step is not None and step.reason == "AnchorMissing":
        yield f"Until the anchor is known nothing shrinks: {step.before} becomes {step.replicas}."


def _waits(told: ReadTrace) -> Iterator[str]:
    step = step_of(told.trace, steps.ShrinkWaits)
    if step is not None and step.reason != "AnchorMissing":
        text = refusal_text(told.hpa) if step.gap is None else gap_text(step.gap)
        yield f"{text}: the size is held at {step.replicas} (metrics ask for {step.before})."


def _window(told: ReadTrace) -> Iterator[str]:
    step = told.window
    if step is None:
        return
    size = f"Limited to {step.replicas}"
    if step.replicas == told.current:
        size = f"Held at {step.replicas}, the present size"
    yield f"{size}: {_window_holds(told, step)} (metrics now ask for {step.before})."


def _window_holds(told: ReadTrace, step: steps.WindowApplied) -> str:
    width = age(window_of(told, is_up=step.direction == "up"))
    if step.held_by is None:
        return f"the {width} stabilization window is not over"
    number = step.held_by.replicas
    return f"the {width} stabilization window still contains a recommendation of {number}"


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
            much = count(policy.value, "pod") if policy.type == "Pods" else f"{policy.value}%"
            per = f"{much} in {policy.period_seconds} s"
            least = "at most" if step.replicas < step.before else "no less than"
            yield f"A policy ({per}) allows {least} {step.replicas} for now."
            for event in events_within(told, step, policy.period_seconds):
                is_up = any(each is event for each in told.trace.past.scale_ups)
                pods = f"{count(event.change, 'pod')} {'was' if event.change == 1 else 'were'}"
                did = f"already {'added' if is_up else 'removed'}"
                when = f"{age(told.trace.now - event.at)} ago"
                when += "" if event.earliest is None else " or earlier"
                yield f"{pods} {did} {when}, within this {policy.period_seconds} s period."
        case _ if told.hpa.behavior is None:
            yield f"One pass goes to {step.limit} at most."
        case _:
            way = "down" if step.before < step.replicas else "up"
            yield f"Scaling {way} is disabled (metrics ask for {step.before})."


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
                f"{trace.decided} is not written, because its inputs may be outdated (a "
                f"watch is behind, the object changed, or the write waited too long); the size is "
                f"still {current}."
            )
    else:
        yield f"The size changes from {current} to {trace.decided}."
