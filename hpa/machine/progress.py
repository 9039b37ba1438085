"""How far one autoscaler has come: what its machine remembers. Data."""

from enum import StrEnum
from zlib import crc32

from msgspec import Struct

from hpa.machine.events import Event

REPORTS_S = 300.0  # values are written once in this time, however little they moved


class PassPhase(StrEnum):
    """Where a pass stands."""

    IDLE = "idle"
    OBSERVING = "observing"  # target, pods and metrics are being found out about
    DECIDING = "deciding"
    WAITING = "waiting"  # for a turn to write
    WRITING = "writing"  # the scale
    CONCLUDING = "concluding"  # what the status is to tell
    REPORTING = "reporting"  # the status is being written
    GONE = "gone"  # the object was deleted; one of the same name is another record


class ScaleWrite(Struct, frozen=True, gc=False):
    """A size to be written."""

    before: int
    after: int
    is_correction: bool  # back between the bounds


class Progress(Struct, gc=False):
    """The state of one machine. Times are monotonic."""

    phase: PassPhase = PassPhase.IDLE
    is_leading: bool = False  # this process may act
    is_urgent: bool = False  # another pass is wanted as soon as may be
    decided_at: float | None = None  # last, in this term
    wanted_since: float | None = None  # since when a write is wanted that could not be made
    expires_at: float = 0.0  # of what was decided: it is not begun to be written later
    write: ScaleWrite | None = None  # that is wanted, under way or made in this pass
    sent_at: float = 0.0  # the attempt under way
    reported_at: float | None = None  # the own moment before the last status write
    offset_s: float = 0.0  # of the own moments (``own_moment``), one for each object


class UnexpectedEvent(Exception):
    """An event that is not in the table for the phase: a bug. ``story`` is what led to it."""

    def __init__(self, progress: Progress, event: Event, story: str = "") -> None:
        super().__init__(f"{event} while {progress.phase.value}" + (story and f", after {story}"))
        self.progress, self.event = progress, event


def own_offset(key: str) -> float:
    """Return the offset of an object's own moments."""
    return REPORTS_S * (crc32(key.encode()) % 1000 / 1000)
