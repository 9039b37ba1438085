"""What is to be done for one autoscaler: what its machine returns. Pure data."""

from enum import StrEnum

from msgspec import Struct


class Order(StrEnum):
    """What is to be done, where that needs no more words."""

    OBSERVE = "Observe"  # find out about the target, its pods and, with all others, the metrics
    SKIP = "Skip"  # nothing: a pass is still under way; it is counted
    RUN_AGAIN = "RunAgain"  # run a pass at once
    PROCEED = "Proceed"  # make this attempt to write
    REFUSE = "Refuse"  # make no attempt, neither this one nor another
    WRITE_STATUS = "WriteStatus"
    COUNT_SAVED = "CountSaved"  # values alone moved, and by little: no status was written
    # The pass came to its end: remember its history and its trace, record its events.
    FINISH = "Finish"


class Decide(Struct, frozen=True, gc=False, tag=True):
    """Decide; as somebody who watches another controller, where ``is_bystander``."""

    is_bystander: bool = False


class TakeTurn(Struct, frozen=True, gc=False, tag=True):
    """Wait for a turn to write, first who has wanted one since longest."""

    since: float


class WriteScale(Struct, frozen=True, gc=False, tag=True):
    """Write the size; before each attempt say so (``AttemptEvent``)."""

    replicas: int


class RememberSent(Struct, frozen=True, gc=False, tag=True):
    """A size was sent, and nobody said whether it went in."""

    before: int
    after: int
    at: float  # monotonic


class Conclude(Struct, frozen=True, gc=False, tag=True):
    """Work out what the status is to tell. ``objection``: why no size was written."""

    objection: str | None = None  # None: the outcome is that of the write, or nothing was to write


Instruction = Order | Decide | TakeTurn | WriteScale | RememberSent | Conclude
Instructions = tuple[Instruction, ...]
