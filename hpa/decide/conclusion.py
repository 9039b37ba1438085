"""``conclude``: a decision after its writes, successful or not.

Follows the end of ``reconcileAutoscaler`` and ``updateStatusIfNeeded``, Kubernetes 1.37.
The shell asks twice: with the outcome of the scale write it learns the status to write,
with that of the status write the final events and labels.
"""

from msgspec import structs

from hpa.decide import conditions as words
from hpa.decide.behavior import remember_scale
from hpa.decide.conditions import DecisionEvent, drop, put, warning
from hpa.decide.decision import Decision, Labels, Outcome, TargetUnreadable
from hpa.decide.observation import Scale


def conclude(decision: Decision, outcome: Outcome, now: float) -> Decision:
    """Return the decision with status, events, past and labels as the writes left them.

    ``outcome.scale`` is not looked at where the decision leaves the target alone.
    """
    known, draft = decision, decision.draft
    if draft is not None:
        match outcome.scale:
            case "written":
                known = applied(draft, now)
            case "not_tried":
                known = _not_tried(draft)
            case _:
                known = _refused(draft, outcome.scale_error, now)
    events = known.events
    labels, error = known.labels, known.error
    if outcome.status_error is not None:
        events = (*events, warning("FailedUpdateStatus", outcome.status_error))
        # Where the pass failed before, upstream returns that error and drops this one.
        steps = decision.trace.steps
        has_failed = known.closing or any(isinstance(each, TargetUnreadable) for each in steps)
        if not has_failed and outcome.scale in ("written", "not_tried"):
            labels = structs.replace(labels, error="internal")
            error = outcome.status_error
    trace = structs.replace(decision.trace, outcome=outcome, outcome_at=now)
    events = (*events, *known.closing)
    return structs.replace(
        known, labels=labels, events=events, closing=(), error=error, trace=trace, draft=None
    )


def applied(draft: Decision, now: float) -> Decision:
    """Return the decision with its rescale done at ``now``."""
    desired, scale = draft.replicas, draft.trace.observation.scale
    if desired is None or not isinstance(scale, Scale):
        return draft
    hpa, settings, current = draft.trace.observation.hpa, draft.trace.settings, scale.spec_replicas
    conditions = list(draft.status.conditions)
    text = f"{words.RESCALED}{desired}"
    put(conditions, words.ABLE, "True", "SucceededRescale", text, now)
    has_waker = any(metric.type in ("Object", "External") for metric in hpa.metrics)
    if not settings.gates.scale_to_zero:
        drop(conditions, words.TO_ZERO)
    elif current > 0 and desired == 0 and hpa.min_replicas == 0 and has_waker:
        put(conditions, words.TO_ZERO, "True", "ScaledToZero", words.WENT_TO_ZERO, now)
    else:
        text = words.STAYED_ABOVE_ZERO
        put(conditions, words.TO_ZERO, "False", "NotScaledToZero", text, now)
    event = DecisionEvent(
        "Normal", "SuccessfulRescale", f"New size: {desired}; reason: {draft.reason}"
    )
    status = structs.replace(draft.status, last_scale_s=now, conditions=tuple(conditions))
    return structs.replace(
        draft,
        status=status,
        is_status_changed=status != hpa.status,
        events=(*draft.events, event),
        past=remember_scale(draft.past, hpa.behavior, current, desired, now),
        draft=draft,
    )


def _refused(draft: Decision, error: str, now: float) -> Decision:
    hpa = draft.trace.observation.hpa
    conditions = list(draft.status.conditions)
    put(conditions, words.ABLE, "False", "FailedUpdateScale", words.NOT_RESCALED + error, now)
    status = structs.replace(
        draft.status,
        desired_replicas=hpa.status.desired_replicas,
        conditions=tuple(conditions),
    )
    text = f"New size: {draft.replicas}; reason: {draft.reason}; error: {error}"
    target = hpa.target
    return structs.replace(
        draft,
        status=status,
        is_status_changed=status != hpa.status,
        events=(*draft.events, warning("FailedRescale", text)),
        labels=Labels("none", "internal", draft.labels.metrics),
        error=f"failed to rescale {target.kind}/{hpa.namespace}/{target.name}: {error}",
    )


def _not_tried(draft: Decision) -> Decision:
    # Nothing was done, so nothing is said; the metrics were read all the same.
    return structs.replace(
        draft,
        status=draft.trace.observation.hpa.status,
        is_status_changed=False,
        events=(),
        labels=Labels("none", "none", draft.labels.metrics),
    )
