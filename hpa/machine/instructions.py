"""What is to be done for one autoscaler: what its machine returns. Pure data."""

from msgspec import Struct


class Observe(Struct, frozen=True, gc=False, tag=True):
    """Find out about the target and its pods."""


class Skip(Struct, frozen=True, gc=False, tag=True):
    """Nothing: a pass is still under way. It is counted."""


class RunAgain(Struct, frozen=True, gc=False, tag=True):
    """Run a pass at once."""


class ReadScale(Struct, frozen=True, gc=False, tag=True):
    """GET the scale."""


class AskMetrics(Struct, frozen=True, gc=False, tag=True):
    """Ask what the metrics are, together with all others that are due."""


class Decide(Struct, frozen=True, gc=False, tag=True):
    """Decide; as somebody who watches another controller, where ``is_bystander``."""

    is_bystander: bool = False


class TakeTurn(Struct, frozen=True, gc=False, tag=True):
    """Wait for a turn to write, first who has wanted one since longest."""

    since: float


class WriteScale(Struct, frozen=True, gc=False, tag=True):
    """Write the size; before each attempt say so (``AttemptEvent``)."""

    replicas: int


class Proceed(Struct, frozen=True, gc=False, tag=True):
    """Make this attempt."""


class Refuse(Struct, frozen=True, gc=False, tag=True):
    """Make no attempt, neither this one nor another."""


class RememberSent(Struct, frozen=True, gc=False, tag=True):
    """A size was sent ``at`` a moment, and nobody said whether it went in."""

    before: int
    after: int
    at: float


class Conclude(Struct, frozen=True, gc=False, tag=True):
    """Work out what the status is to tell. ``objection``: why no size was written."""

    objection: str | None = None  # None: the outcome is that of the write, or nothing was to write


class WriteStatus(Struct, frozen=True, gc=False, tag=True):
    """Write the status."""


class CountSaved(Struct, frozen=True, gc=False, tag=True):
    """A write of a status was saved: values alone moved, and by little."""


class Finish(Struct, frozen=True, gc=False, tag=True):
    """The pass came to its end: remember its history and its trace, record its events."""


Instruction = (
    Observe
    | Skip
    | RunAgain
    | ReadScale
    | AskMetrics
    | Decide
    | TakeTurn
    | WriteScale
    | Proceed
    | Refuse
    | RememberSent
    | Conclude
    | WriteStatus
    | CountSaved
    | Finish
)
Instructions = tuple[Instruction, ...]
