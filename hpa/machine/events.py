"""What happens to one autoscaler: the events that its machine takes. Pure data.

Events carry facts that the shell has found, never objects: a story of them can be stored,
shown, and played again.
"""

from enum import StrEnum
from typing import Literal, get_args

from msgspec import Struct

# What a status would tell: what it tells already; values that moved by little; more than that.
StatusNews = Literal["none", "values", "more"]


class WriteGuards(Struct, frozen=True, gc=False):
    """What is known when a size is about to be written, as far as this process can tell."""

    doubt: str = ""  # why nothing may shrink: a silent watch, owners that are not known
    knows_rescales: bool = True  # every rescale that a policy may count
    is_same: bool = True  # the object is there as it was looked at, and ours


class Signal(StrEnum):
    """What happens, and needs no more words."""

    TERM_BEGAN = "TermBegan"  # this process leads from now on
    TERM_ENDED = "TermEnded"  # it does not any more; what was under way has been cancelled
    CHANGED = "Changed"  # the object is new, or its spec or annotations are
    DELETED = "Deleted"  # the object went
    DUE = "Due"  # its slot of the period has come, its own period is over, or it is urgent
    GIVEN_UP = "GivenUp"  # nothing to look at, a failure, or the pass was cut short
    TURN_CAME = "TurnCame"  # it may write now, as far as others are concerned


class AnsweredEvent(Struct, frozen=True, gc=False, tag=True):
    """What there is to decide on is known; the metrics have been answered, one way or another."""

    is_watched: bool = False  # another controller scales it, or may yet turn out to


class ResizedEvent(Struct, frozen=True, gc=False, tag=True):
    """It was decided that another size is to be written."""

    before: int
    after: int
    is_correction: bool  # back between the bounds: no policy is asked for that
    guards: WriteGuards


class AttemptEvent(Struct, frozen=True, gc=False, tag=True):
    """The size is about to be sent, for the first time or again after a conflict."""

    guards: WriteGuards


class ScaleAnsweredEvent(Struct, frozen=True, gc=False, tag=True):
    """The write of the scale ended."""

    outcome: Literal["written", "failed", "conflict", "not_tried"]
    is_lost: bool = False  # it may have gone in without an answer


class ConcludedEvent(Struct, frozen=True, gc=False, tag=True):
    """What became of the size is known, and so what the status would tell."""

    news: StatusNews = "none"
    is_same: bool = True  # as in ``WriteGuards``; looked at where a status is written


class StatusAnsweredEvent(Struct, frozen=True, gc=False, tag=True):
    """The write of the status ended."""

    is_written: bool


Fact = (
    AnsweredEvent
    | ResizedEvent
    | AttemptEvent
    | ScaleAnsweredEvent
    | ConcludedEvent
    | StatusAnsweredEvent
)
Event = Signal | Fact
Kind = Signal | type[Fact]
KINDS: tuple[Kind, ...] = (*Signal, *get_args(Fact))
