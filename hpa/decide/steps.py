"""The steps of one decision, in order: what explanations are made of."""

from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import Policy
from hpa.decide.behavior.limits import LimitReason
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import Recommendation, UnreadableKind
from hpa.decide.schedules import ScheduledMinimum
from podscale.core.metrics import SampleGap


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
