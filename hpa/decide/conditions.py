"""Conditions and events, their texts to the letter (Kubernetes 1.37, ``horizontal.go``)."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import HPA
from podscale.core.metrics import SampleGap
from podscale.core.times.duration import format_prometheus
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.objects.autoscaler import AutoscalerCondition

ABLE = "AbleToScale"
ACTIVE = "ScalingActive"
LIMITED = "ScalingLimited"
TO_ZERO = "ScaledToZero"
ANCHOR_MOVED = "AnchorMoved"  # ours, an event: the recommender wrote another anchor
GAP: Literal["GapInWindow"] = "GapInWindow"  # ours: nothing shrinks by what an outage hides
# Ours: nothing shrinks while a schedule is written that cannot be followed.
REFUSED: Literal["ScheduleRefused"] = "ScheduleRefused"
UNKNOWN = "UnknownField"  # ours: the spec says more than is decided on
COORDINATED = "Coordinated"  # ours: whether the target hangs on a VPA's anchor

GOT_SCALE = "the HPA controller was able to get the target's current scale"
NO_SCALE = "the HPA controller was unable to get the target's current scale: "
READY = "recommended size matches current size"
HELD_UP = (
    "recent recommendations were higher than current one, "
    "applying the highest recent recommendation"
)
HELD_DOWN = (
    "recent recommendations were lower than current one, applying the lowest recent recommendation"
)
RESCALED = "the HPA controller was able to update the target scale to "
NOT_RESCALED = "the HPA controller was unable to update the target scale: "
FOUND = "the HPA was able to successfully calculate a replica count from "
NOT_FOUND = "the HPA was unable to compute the replica count: "
FORECAST = "demand forecast above target"
DISABLED = "scaling is disabled since the replica count of the target is zero"
NO_SELECTOR = "the HPA target's scale is missing a selector"
WENT_TO_ZERO = "the HPA controller scaled the workload to zero"
STAYED_ABOVE_ZERO = "the HPA controller did not scale the workload to zero"

LIMIT_TEXT = {
    "DesiredWithinRange": "the desired count is within the acceptable range",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "ScaleUpLimit": ("the desired replica count is increasing faster than the maximum scale rate"),
    "ScaleDownLimit": (
        "the desired replica count is decreasing faster than the maximum scale rate"
    ),
}

ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"

_DAY_S = 86400.0


def gap_text(gap: SampleGap) -> str:
    """Return what a gap in the samples is for an autoscaler, and until when."""
    times = gap.since_s, gap.until_s, gap.whole_s
    time_of_day = slice(11 if gap.whole_s - gap.since_s < _DAY_S else 0, None)
    since, until, whole = (rfc3339(at)[time_of_day] for at in times)
    source = f"{gap.source[0].upper()}{gap.source[1:]}"
    return (
        f"{source} was away from {since} to {until}; {format_prometheus(gap.window_s)} rates "
        f"are reliable again at {whole}, and until then nothing is scaled down"
    )


def refusal_text(hpa: HPA) -> str:
    """Return what is wrong with the schedule of ``hpa``, and what that is for it."""
    return f"{hpa.options.refused_schedule}; until that is corrected nothing shrinks"


class DecisionEvent(Struct, frozen=True, gc=False):
    """One event about the HPA."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def warning(reason: str, message: str) -> DecisionEvent:
    return DecisionEvent("Warning", reason, message)


def put(
    conditions: list[AutoscalerCondition],
    type_: str,
    status: Literal["True", "False"],
    reason: str,
    message: str,
    now: float,
) -> None:
    """Set one condition in the list of this pass: in its old place, or as the last one.

    The transition time moves only when the status does.
    """
    for index, old in enumerate(conditions):
        if old.type != type_:
            continue
        if old.status != status or old.reason != reason or old.message != message:
            at = old.last_transition_time if old.status == status else now
            observed = old.observed_generation
            conditions[index] = AutoscalerCondition(type_, status, reason, message, at, observed)
        return
    conditions.append(AutoscalerCondition(type_, status, reason, message, now))


def drop(conditions: list[AutoscalerCondition], type_: str) -> None:
    """Take one condition out of the list of this pass."""
    conditions[:] = [each for each in conditions if each.type != type_]


def is_true(conditions: Sequence[AutoscalerCondition], type_: str) -> bool:
    return any(each.type == type_ and each.status == "True" for each in conditions)
