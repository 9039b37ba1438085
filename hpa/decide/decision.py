"""The answer of ``decide``, and the trace of how it came about: its steps in order, of which
explanations are made."""

from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import HpaStatus
from hpa.decide.behavior import LimitReason
from hpa.decide.conditions import DecisionEvent
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import Observation, Past, Recommendation, UnreadableKind
from hpa.decide.schedules import ScheduledMinimum
from hpa.decide.settings import Settings
from podscale.core.metrics import SampleGap
from podscale.kube.objects.autoscaler import Policy


class Paused(Struct, frozen=True, gc=False, tag=True):
    """The object is paused by annotation."""


class TargetUnreadable(Struct, frozen=True, gc=False, tag=True):
    """There is no scale to decide on."""

    kind: UnreadableKind
    text: str


class KeptAtZero(Struct, frozen=True, gc=False, tag=True):
    """The target is at zero and not ours to wake."""


class Scheduled(Struct, frozen=True, gc=False, tag=True):
    """A schedule raises minReplicas for now."""

    minimum: ScheduledMinimum


class Corrected(Struct, frozen=True, gc=False, tag=True):
    """The size lies outside the bounds; metrics are not read."""

    before: int
    replicas: int
    reason: Literal["AboveMaxCorrected", "BelowMinCorrected"]


class Conflict(Struct, frozen=True, gc=False, tag=True):
    """The pods of the target are not this HPA's alone, or not known."""

    reason: Literal["SelectorMissing", "SelectorInvalid", "AmbiguousSelector"]
    text: str
    is_same_target: bool = False


class Measured(Struct, frozen=True, gc=False, tag=True):
    """One metric, in the order of the spec; ``fallback`` stands in for an invalid one."""

    index: int
    result: Valid | Invalid
    fallback: int | None = None

    @property
    def replicas(self) -> int | None:
        return self.result.replicas if isinstance(self.result, Valid) else self.fallback


class Chosen(Struct, frozen=True, gc=False, tag=True):
    """The largest proposal; ``index`` is the metric's (None: every proposal is zero)."""

    replicas: int
    index: int | None


class ShrinkWaits(Struct, frozen=True, gc=False, tag=True):
    """Fewer replicas would be right for what was measured; whether they are for the anchor, which
    is not known, for what a gap in the samples hides, or for a schedule that is refused, nobody
    knows."""

    before: int
    replicas: int
    reason: Literal["AnchorMissing", "GapInWindow", "ScheduleRefused"]
    gap: SampleGap | None = None  # of GapInWindow


class Blocked(Struct, frozen=True, gc=False, tag=True):
    """Metrics that cannot be used decide: the size is kept. ``best`` of the others, if any."""

    best: int | None
    text: str


class ForecastApplied(Struct, frozen=True, gc=False, tag=True):
    """A forecast asks for more than the metrics, and windows let it."""

    before: int  # what the metrics ask for, windows applied
    replicas: int


class WindowApplied(Struct, frozen=True, gc=False, tag=True):
    """The number before and after the stabilization window."""

    before: int
    replicas: int
    direction: Literal["up", "down"]  # which window acted, where it did
    held_by: Recommendation | None = None


class LimitApplied(Struct, frozen=True, gc=False, tag=True):
    """The number before and after rate limits and bounds."""

    before: int
    replicas: int
    reason: LimitReason
    limit: int | None = None
    policy: Policy | None = None


class ScaledFromZero(Struct, frozen=True, gc=False, tag=True):
    """From zero the number is raised to minReplicas."""

    before: int
    replicas: int


Step = (
    Paused
    | TargetUnreadable
    | KeptAtZero
    | Scheduled
    | Corrected
    | Conflict
    | Measured
    | Chosen
    | ShrinkWaits
    | Blocked
    | ForecastApplied
    | WindowApplied
    | LimitApplied
    | ScaledFromZero
)


Action = Literal["scale_up", "scale_down", "none"]
ErrorLabel = Literal["spec", "internal", "none"]


class MetricLabels(Struct, frozen=True, gc=False):
    """Labels of metric_computation_total for one metric."""

    type: str
    action: Action
    error: ErrorLabel


class Labels(Struct, frozen=True, gc=False):
    """Labels of the pass for reconciliations_total, and of its metrics in order."""

    action: Action = "none"
    error: ErrorLabel = "none"
    metrics: tuple[MetricLabels, ...] = ()


class Outcome(Struct, frozen=True, gc=False):
    """What became of the writes. The texts are the API server's errors as they are; of a scale
    that was not tried, what spoke against it, where that is known."""

    scale: Literal["written", "failed", "conflict", "not_tried"] = "written"
    scale_error: str = ""
    status_error: str | None = None  # None: written, not needed, or not known yet


DONE = Outcome()  # nothing was to be written, or everything was


class Trace(Struct, frozen=True, gc=False):
    """One decision, replayable: its inputs, its steps, and what became of it."""

    observation: Observation
    past: Past
    settings: Settings
    now: float
    steps: tuple[Step, ...]
    decided: int | None  # the size decided on; None where there was nothing to decide
    outcome: Outcome | None = None
    outcome_at: float | None = None


class Decision(Struct, frozen=True, gc=False):
    """What to do and what to say, as if every write succeeded; ``conclude`` corrects that.

    ``events`` come before the status is written, ``closing`` after it. Of one that is concluded
    ``events`` are all of the pass in order, FailedUpdateStatus included.
    """

    replicas: int | None  # to write; None: leave the target alone
    status: HpaStatus
    is_status_changed: bool
    past: Past
    labels: Labels
    trace: Trace
    events: tuple[DecisionEvent, ...] = ()
    closing: tuple[DecisionEvent, ...] = ()
    error: str | None = None  # what upstream's pass would return
    reason: str = ""  # of the rescale, as events say it
    draft: "Decision | None" = None  # with ``replicas``: as it stands before these are written
