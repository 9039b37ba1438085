"""``decide``: one pass over one HPA, from what was observed to what is to be done.

Follows ``reconcileAutoscaler``, Kubernetes 1.37, step by step. Pure: no I/O, no clock,
nothing raised for an expected situation. ``hpa.decide.conclusion`` takes it from here
once the writes are through.
"""

from typing import Literal

from msgspec import Struct, structs

from hpa.decide import conditions as words
from hpa.decide import decision as steps
from hpa.decide.api.spec import HPA, HpaStatus
from hpa.decide.behavior import expected_replicas, limited, stabilized
from hpa.decide.conclusion import applied
from hpa.decide.conditions import DecisionEvent, is_true, put, warning
from hpa.decide.metrics.measuring import MetricEvaluation
from hpa.decide.metrics.proposals import Proposals, action_of, propose
from hpa.decide.metrics.replicas import tolerance_of
from hpa.decide.observation import Observation, Past, Recommendation, Scale, ScaleUnreadable
from hpa.decide.pods import Pods
from hpa.decide.schedules import scheduled
from hpa.decide.selection import check, words_of
from hpa.decide.settings import ACTUAL, Settings, Variation
from podscale.kube.objects.autoscaler import AutoscalerCondition


def decide(
    observation: Observation,
    past: Past,
    settings: Settings,
    now: float,
    variation: Variation = ACTUAL,
) -> steps.Decision:
    """Return what to do about one HPA, and why. ``variation`` is for explanations only."""
    if settings.mode == "shadow" and observation.held is not None:
        # Who acts knows no anchor.
        observation = structs.replace(observation, held=None)
    conditions = list(observation.hpa.status.conditions)
    unknown = [text for token, text in observation.hpa.remarks if token == words.UNKNOWN]
    if unknown:
        put(conditions, words.UNKNOWN, "True", words.UNKNOWN, "; ".join(unknown), now)
    else:
        words.drop(conditions, words.UNKNOWN)
    pass_ = _Pass(observation, observation, past, past, settings, now, variation, conditions)
    if observation.hpa.options.schedules and variation.schedule:
        pass_.schedule()
    if observation.hpa.options.is_paused:
        pass_.path.append(steps.Paused())
        return pass_.kept(observation.hpa.status)
    unreadable = _unreadable(observation)
    if unreadable is not None:
        decision = _without_scale(pass_, *unreadable)
    else:
        assert isinstance(observation.scale, Scale)  # noqa: S101 - narrowed by _unreadable
        decision = _with_scale(pass_, observation.scale)
    return _shadowed(decision) if settings.mode == "shadow" else decision


def replay(trace: steps.Trace) -> steps.Decision:
    """Return the decision that ``trace`` recorded, made again from its inputs."""
    return decide(trace.observation, trace.past, trace.settings, trace.now)


_UNMEASURED = Proposals(None, "", (), (), (), (), Past(), None, None)


class _Pass(Struct, eq=False):
    """The lists that one pass fills."""

    seen: Observation
    observation: Observation  # with the minimum of a schedule
    started_with: Past
    past: Past
    settings: Settings
    now: float
    variation: Variation
    conditions: list[AutoscalerCondition]
    events: list[DecisionEvent] = []
    path: list[steps.Step] = []  # every step that leads to the decision
    measured: Proposals = _UNMEASURED
    failed: tuple[str | None, steps.ErrorLabel] = (None, "none")  # in words, and its label

    def trace(self, decided: int | None) -> steps.Trace:
        return steps.Trace(
            self.seen, self.started_with, self.settings, self.now, tuple(self.path), decided
        )

    def schedule(self) -> None:
        """Take a schedule's minimum for minReplicas, where one is in force."""
        hpa, found = scheduled(self.seen.hpa, self.now)
        if found is not None and not hpa.options.is_paused:
            self.observation = structs.replace(self.seen, hpa=hpa)
            self.path.append(steps.Scheduled(found))

    def kept(
        self, status: HpaStatus, decided: int | None = None, closing: tuple[DecisionEvent, ...] = ()
    ) -> steps.Decision:
        """Return a decision that leaves the target alone."""
        error, label = self.failed
        return steps.Decision(
            None,
            status,
            status != self.observation.hpa.status,
            self.past,
            steps.Labels("none", label, self.measured.labels),
            self.trace(decided),
            tuple(self.events),
            closing,
            error,
        )

    def status(self, current: int, desired: int) -> HpaStatus:
        hpa = self.observation.hpa
        return HpaStatus(
            current,
            desired,
            hpa.status.last_scale_s,
            self.measured.statuses,
            tuple(self.conditions),
            hpa.generation if self.settings.writes_generation else None,
        )


def _unreadable(observation: Observation) -> tuple[ScaleUnreadable, str, steps.ErrorLabel] | None:
    # What is wrong, the words before it in the error of the pass, and the label.
    version = observation.hpa.target.api_version
    if version.count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        return (
            ScaleUnreadable(text, "mapping"),
            "invalid API version in scale target reference",
            "spec",
        )
    scale = observation.scale
    if isinstance(scale, Scale):
        return None
    if scale.stage == "mapping":
        return scale, "unable to determine resource for scale target reference", "internal"
    return scale, f"failed to query scale subresource for {_reference(observation.hpa)}", "internal"


def _without_scale(
    pass_: _Pass, scale: ScaleUnreadable, before: str, label: steps.ErrorLabel
) -> steps.Decision:
    pass_.path.append(steps.TargetUnreadable(scale.kind, scale.text))
    pass_.events.append(warning("FailedGetScale", scale.text))
    text = words.NO_SCALE + scale.text
    put(pass_.conditions, words.ABLE, "False", "FailedGetScale", text, pass_.now)
    pass_.failed = f"{before}: {scale.text}", label
    status = structs.replace(pass_.observation.hpa.status, conditions=tuple(pass_.conditions))
    return pass_.kept(status)


def _with_scale(pass_: _Pass, scale: Scale) -> steps.Decision:
    hpa, settings, now = pass_.observation.hpa, pass_.settings, pass_.now
    current = scale.spec_replicas
    put(pass_.conditions, words.ABLE, "True", "SucceededGetScale", words.GOT_SCALE, now)
    _tell_held(pass_)
    if pass_.past.recommendations is None:
        seed = (Recommendation(current, now),)
        pass_.past = structs.replace(pass_.past, recommendations=seed)
    went_to_zero = (
        current == 0
        and settings.gates.scale_to_zero
        and is_true(hpa.status.conditions, words.TO_ZERO)
    )
    if current == 0 and not (went_to_zero and (hpa.min_replicas != 0 or wakes(hpa))):
        return _disabled(pass_)
    if current > hpa.max_replicas:
        pass_.path.append(steps.Corrected(current, hpa.max_replicas, "AboveMaxCorrected"))
        return _rescaled(pass_, scale, hpa.max_replicas, words.ABOVE_MAX)
    # From zero a minimum of the spec waits for the metrics, as upstream's; a schedule for nothing.
    is_scheduled = hpa is not pass_.seen.hpa
    if current < hpa.min_replicas and (current != 0 or is_scheduled):
        pass_.path.append(steps.Corrected(current, hpa.min_replicas, "BelowMinCorrected"))
        return _rescaled(pass_, scale, hpa.min_replicas, words.BELOW_MIN)
    return _by_metrics(pass_, scale, went_to_zero=went_to_zero)


def wakes(hpa: HPA) -> bool:
    """Return whether a metric of ``hpa`` can be measured without a pod."""
    return any(metric.type in ("Object", "External") for metric in hpa.metrics)


def _disabled(pass_: _Pass) -> steps.Decision:
    pass_.path.append(steps.KeptAtZero())
    put(pass_.conditions, words.ACTIVE, "False", "ScalingDisabled", words.DISABLED, pass_.now)
    if not pass_.settings.gates.scale_to_zero:
        words.drop(pass_.conditions, words.TO_ZERO)
    return pass_.kept(pass_.status(0, 0), 0)


def _by_metrics(pass_: _Pass, scale: Scale, *, went_to_zero: bool) -> steps.Decision:
    observation, settings = pass_.observation, pass_.settings
    hpa, current, now = observation.hpa, scale.spec_replicas, pass_.now
    conflict = check(observation, scale, settings)
    if conflict is not None:
        pass_.path.append(conflict)
        event, reason, text = words_of(conflict)
        pass_.events.append(warning(event, conflict.text))
        put(pass_.conditions, words.ACTIVE, "False", reason, text, now)
        return _nothing(pass_, current, conflict.text, "internal")
    measuring = MetricEvaluation(
        observation,
        _counted_pods(observation),
        scale,
        tolerance_of(hpa, settings, pass_.variation),
        settings,
        now,
        pass_.variation,
    )
    found = propose(measuring, pass_.past)
    pass_.past = found.past
    pass_.measured = found
    pass_.events.extend(found.events)
    pass_.path.extend(found.steps)
    label: steps.ErrorLabel = "none"
    if found.first_invalid is not None:
        label = found.first_invalid.label if settings.is_after_1_36 else "internal"
    if found.replicas is None:
        if found.first_invalid is not None:
            reason, text = found.first_invalid.condition, found.first_invalid.text
            put(pass_.conditions, words.ACTIVE, "False", reason, words.NOT_FOUND + text, now)
        return _nothing(pass_, current, found.error or "", label)
    put(pass_.conditions, words.ACTIVE, "True", "ValidMetricFound", words.FOUND + found.name, now)
    pass_.failed = found.error, label
    wanted = max(found.replicas, 0)
    waits = _shrink_waits(pass_, current, wanted)
    desired = wanted if waits is None else current
    reason = ""
    if desired > current:
        reason = f"{found.name} above target"
    elif desired < current:
        reason = "All metrics below target"
    normalized = _normalized(pass_, current, desired)
    if waits is not None:
        _tell_wait(pass_, waits)
    if went_to_zero and normalized < hpa.min_replicas:
        pass_.path.append(steps.ScaledFromZero(normalized, hpa.min_replicas))
        normalized = hpa.min_replicas
        reason = reason or words.BELOW_MIN
    is_forecast = any(isinstance(step, steps.ForecastApplied) for step in pass_.path)
    if is_forecast and normalized > current >= desired:
        reason = words.FORECAST
    if normalized != current:
        return _rescaled(pass_, scale, normalized, reason)
    return pass_.kept(pass_.status(current, current), current)


def _tell_held(pass_: _Pass) -> None:
    held = pass_.observation.held
    if held is None:
        words.drop(pass_.conditions, words.COORDINATED)
        return
    status: Literal["True", "False"] = "False" if held.anchor is None else "True"
    present = (each for each in pass_.conditions if each.type == words.COORDINATED)
    before = next(present, None)
    is_new = before is None or (before.reason != "VpasUnknown" and before.message != held.text)
    if held.anchor is not None and is_new:
        pass_.events.append(DecisionEvent("Normal", words.ANCHOR_MOVED, held.text))
    put(pass_.conditions, words.COORDINATED, status, held.reason, held.text, pass_.now)


def _shrink_waits(pass_: _Pass, current: int, desired: int) -> steps.ShrinkWaits | None:
    observation, settings = pass_.observation, pass_.settings
    held, gap = observation.held, observation.gap
    if desired >= current or settings.mode == "shadow":  # who acts holds nothing
        return None
    if held is not None and not held.may_shrink:
        step = steps.ShrinkWaits(desired, current, "AnchorMissing")
    elif observation.hpa.options.refused_schedule:
        step = steps.ShrinkWaits(desired, current, words.REFUSED)
    elif settings.holds_after_outage and gap is not None and gap.whole_s > pass_.now:
        step = steps.ShrinkWaits(desired, current, words.GAP, gap)
    else:
        return None
    pass_.path.append(step)
    return step


def _tell_wait(pass_: _Pass, waits: steps.ShrinkWaits) -> None:
    if waits.reason == "AnchorMissing":
        return
    hpa = pass_.observation.hpa
    text = words.refusal_text(hpa) if waits.gap is None else words.gap_text(waits.gap)
    if all(each.message != text for each in hpa.status.conditions):
        pass_.events.append(DecisionEvent("Normal", waits.reason, text))
    put(pass_.conditions, words.ABLE, "True", waits.reason, text, pass_.now)


def _counted_pods(observation: Observation) -> Pods:
    if not observation.hpa.options.pods_by_owner:
        return observation.pods
    target = observation.hpa.target
    own = observation.pods.rows_owned_by(f"{target.kind}/{target.name}")
    return observation.pods.chosen(own)


def _nothing(pass_: _Pass, current: int, text: str, label: steps.ErrorLabel) -> steps.Decision:
    hpa = pass_.observation.hpa
    what = "failed to compute desired number of replicas based on listed metrics for"
    pass_.failed = f"{what} {_reference(hpa)}: {text}", label
    closing = (warning("FailedComputeMetricsReplicas", text),)
    return pass_.kept(pass_.status(current, hpa.status.desired_replicas), None, closing)


def _normalized(pass_: _Pass, current: int, desired: int) -> int:
    hpa, settings, now = pass_.observation.hpa, pass_.settings, pass_.now
    variation, past = pass_.variation, pass_.past
    held = stabilized(hpa, past.recommendations or (), current, desired, settings, now)
    pass_.past = structs.replace(past, recommendations=held.stored)
    stable = held.replicas if variation.window else desired
    if stable == desired:
        put(pass_.conditions, words.ABLE, "True", "ReadyForNewScale", words.READY, now)
    else:
        is_up = hpa.behavior is not None and desired >= current
        token = "ScaleUpStabilized" if is_up else "ScaleDownStabilized"
        text = words.HELD_DOWN if is_up else words.HELD_UP
        put(pass_.conditions, words.ABLE, "True", token, text, now)
        pass_.path.append(
            steps.WindowApplied(desired, stable, "up" if is_up else "down", held.held_by)
        )
    stable = _ahead(pass_, past, current, desired, stable)
    bounded = limited(hpa, past, current, stable, now, variation)
    text = words.LIMIT_TEXT[bounded.reason]
    is_limited = bounded.replicas != stable
    status: Literal["True", "False"] = "True" if is_limited else "False"
    put(pass_.conditions, words.LIMITED, status, bounded.reason, text, now)
    if is_limited:
        pass_.path.append(
            steps.LimitApplied(
                stable, bounded.replicas, bounded.reason, bounded.limit, bounded.policy
            )
        )
    return bounded.replicas


def _ahead(pass_: _Pass, past: Past, current: int, desired: int, stable: int) -> int:
    """Return ``stable``, or more where a forecast asks for it. The windows hold it as they hold
    the metrics; what is remembered for them is only what the metrics ask for."""
    hpa, settings, now = pass_.observation.hpa, pass_.settings, pass_.now
    expected = pass_.observation.expected
    if expected is None or not pass_.variation.forecast or pass_.measured.first_invalid:
        return stable
    asked = expected_replicas(expected, current, tolerance_of(hpa, settings).up, now)
    if asked <= stable:
        return stable
    held = stabilized(hpa, past.recommendations or (), current, max(asked, desired), settings, now)
    if held.replicas <= stable:
        return stable
    pass_.path.append(steps.ForecastApplied(stable, held.replicas))
    return held.replicas


def _rescaled(pass_: _Pass, scale: Scale, desired: int, reason: str) -> steps.Decision:
    action, (error, label) = action_of(scale.spec_replicas, desired), pass_.failed
    draft = steps.Decision(
        desired,
        pass_.status(scale.spec_replicas, desired),
        True,
        pass_.past,
        steps.Labels(action, label, pass_.measured.labels),
        pass_.trace(desired),
        tuple(pass_.events),
        (),
        error,
        reason,
    )
    return applied(draft, pass_.now)


def _shadowed(decision: steps.Decision) -> steps.Decision:
    # Nothing is written or said; the acting controller's rescales are adopted instead.
    quiet = structs.replace(decision, events=(), closing=(), is_status_changed=False)
    return structs.replace(quiet, replicas=None, past=(decision.draft or decision).past, draft=None)


def _reference(hpa: HPA) -> str:
    return f"{hpa.target.kind}/{hpa.namespace}/{hpa.target.name}"
