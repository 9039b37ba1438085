"""The answer of ``decide`` and the trace of how it came about."""

from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import HpaStatus
from hpa.decide.conditions import DecisionEvent
from hpa.decide.observation import Observation, Past
from hpa.decide.settings import Settings
from hpa.decide.steps import Step

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


class Draft(Struct, frozen=True, gc=False):
    """The pass as it stands just before the scale is written."""

    status: HpaStatus
    events: tuple[DecisionEvent, ...]
    past: Past


class Decision(Struct, frozen=True, gc=False):
    """What to do and what to say, as if every write succeeded; ``conclude`` corrects that.

    ``events`` come before the status is written, ``closing`` after it.
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
    draft: Draft | None = None  # present with ``replicas``


class Conclusion(Struct, frozen=True, gc=False):
    """What to write into the status and remember, now that the outcome is known.

    ``events`` are all events of the pass in order, FailedUpdateStatus included.
    """

    status: HpaStatus
    is_status_changed: bool
    past: Past
    labels: Labels
    events: tuple[DecisionEvent, ...]
    error: str | None
    trace: Trace
