"""Everything one decision looks at, and what it remembers from earlier ones.

The shell fills these in; answers are those of ``podscale.core.metrics``, handed straight
through. All of it can be stored and decided on again.
"""

from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import HPA
from hpa.decide.pods import Pods
from podscale.coordinate.anchor import Anchor
from podscale.core import metrics

MetricFailure = (
    metrics.NotFound | metrics.NoData | metrics.Stale | metrics.Unavailable | metrics.Refused
)
MetricAnswer = metrics.PodSamples | metrics.ObjectSample | metrics.ExternalSamples | MetricFailure


# Selector: there is a scale, whose selector cannot be parsed.
UnreadableKind = Literal["NotFound", "Forbidden", "Selector", "Other"]


class Scale(Struct, frozen=True, gc=False, tag=True):
    """The scale subresource of the target."""

    spec_replicas: int
    status_replicas: int
    selector: str = ""  # status.selector, verbatim


class ScaleUnreadable(Struct, frozen=True, gc=False, tag=True):
    """Why there is no scale. ``text`` is the API's error, shown as it is."""

    text: str
    stage: Literal["mapping", "get"] = "get"
    kind: UnreadableKind = "Other"


class ExpectedDemand(Struct, frozen=True, gc=False):
    """The highest demand that is expected until pods made now would serve.

    Demand is in pods at the targets of the spec, of the metric that asks for most.
    """

    pods: float
    at: float  # when the demand was seen that this rests on
    highest: float  # of the days that the candidate learnt from
    candidate: str  # what it was made by
    within_s: float  # how far it looks
    day_before: float | None = None  # at this time of the day before
    saved: float = 0.0  # share of unserved demand, at equal pod-hours, as the gate found
    more: float = 0.0  # share of pod-hours beyond those of the metrics alone
    days: int = 0  # that the gate replayed


class HeldTarget(Struct, frozen=True, gc=False):
    """Whose share a utilization of CPU is, where the HPA wants a VPA beside it."""

    reason: str  # of the condition Coordinated
    text: str
    container: str = ""  # "": of the whole pod
    anchor: Anchor | None = None  # None: a share of what pods request today
    may_shrink: bool = True  # False: the anchor may be there, and is not known


class Observation(Struct, frozen=True, gc=False):
    """One look at the cluster and at the metrics.

    ``answers`` has one entry per ``hpa.metrics``, in order; None where the metric was not
    asked for (a type nobody knows, or nothing is read at all). An answer without any item
    is ``NoData`` with an empty message; ``PodSamples`` without pods says that items came
    and none of them carried the resource.
    """

    hpa: HPA
    scale: Scale | ScaleUnreadable
    pods: Pods = Pods()
    answers: tuple[MetricAnswer | None, ...] = ()
    rivals: tuple[str, ...] = ()  # other HPAs whose selector matches one of ``pods``
    same_target: tuple[str, ...] = ()  # other HPAs that name the same target
    expected: ExpectedDemand | None = None  # None: nothing is, or no forecast is wanted
    held: HeldTarget | None = None  # None: of what pods request, as upstream

    @property
    def gap(self) -> metrics.SampleGap | None:
        """Of the gaps in what the metrics were measured by, the one that is felt longest."""
        found = [getattr(answer, "gap", None) for answer in self.answers]
        known = [gap for gap in found if isinstance(gap, metrics.SampleGap)]
        return max(known, key=lambda gap: gap.whole_s, default=None)


class Recommendation(Struct, frozen=True, gc=False):
    """What the metrics asked for at one time, before windows and limits."""

    replicas: int
    at: float


class ScaleEvent(Struct, frozen=True, gc=False):
    """One rescale of our own; ``is_outdated`` only marks a slot that may be reused.

    Of one that was only found, nobody knows when it was made: ``earliest`` or later, ``at`` or
    before. Whichever leaves less room counts.
    """

    change: int
    at: float
    is_outdated: bool = False
    earliest: float | None = None  # None: at ``at``


class GoodProposal(Struct, frozen=True, gc=False):
    """The last proposal of a metric that has the fallback ``last:T``."""

    metric: str
    replicas: int
    at: float


class Past(Struct, frozen=True, gc=False):
    """What is remembered about one HPA. Lists keep upstream's order, which is of slots."""

    recommendations: tuple[Recommendation, ...] | None = None  # None: never decided
    scale_ups: tuple[ScaleEvent, ...] = ()
    scale_downs: tuple[ScaleEvent, ...] = ()
    good: tuple[GoodProposal, ...] = ()
