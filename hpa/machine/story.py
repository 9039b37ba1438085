"""What happened to one autoscaler lately, as its machine saw it: kept in memory, dumped, and
played again.

A chapter is one pass with what came after it. Passes that wrote nothing are all alike: of them
only the last is kept, beside the last few that did, or failed.
"""

from copy import copy

from msgspec import Struct

from hpa.machine import machine
from hpa.machine.events import DueEvent, Event, GivenUpEvent
from hpa.machine.instructions import Instructions
from hpa.machine.progress import PassPhase, Progress, UnexpectedEvent

MOST_CHAPTERS = 4  # that tell of more than a pass like all others
MOST_STEPS = 32  # a chapter; where more happens, the next one begins


class StoryStep(Struct, frozen=True, gc=False, array_like=True):
    """One event, and what was to be done about it."""

    at: float  # of the clock that nobody sets
    event: Event
    instructions: Instructions


class Chapter(Struct, frozen=True, gc=False):
    """The state in which it began, and what happened then."""

    start: Progress
    steps: tuple[StoryStep, ...]


class Story(Struct, gc=False):
    """The last chapters of one autoscaler."""

    start: Progress  # of the chapter under way, ...
    steps: list[object]  # ... and its times, events and instructions, three for each step
    is_told: bool = False  # it is kept when the next one begins
    older: tuple[Chapter, ...] = ()

    def chapters(self) -> tuple[Chapter, ...]:
        """Return all of them, the oldest first."""
        return (*self.older, self._last())

    def _last(self) -> Chapter:
        held = iter(self.steps)
        steps = tuple(StoryStep(*each) for each in zip(held, held, held, strict=True))  # type: ignore[arg-type]
        return Chapter(copy(self.start), steps)

    def turn_page(self, progress: Progress) -> None:
        """Begin a chapter with ``progress``."""
        if self.is_told:
            self.older = (*self.older, self._last())[-MOST_CHAPTERS:]
            self.is_told = False
        self.start, self.steps = copy(progress), []


class DumpedStory(Struct, frozen=True):
    """A story with the name of its autoscaler, as it is served and stored."""

    namespace: str
    name: str
    now: float  # of the clock of its steps, when it was dumped
    chapters: tuple[Chapter, ...]


def follow(story: Story, progress: Progress, event: Event, now: float) -> Instructions:
    """Let the machine handle an event, and remember it. Raises ``UnexpectedEvent`` with the
    story."""
    if (progress.phase is PassPhase.IDLE and type(event) is DueEvent) or len(
        story.steps
    ) >= 3 * MOST_STEPS:
        story.turn_page(progress)
    try:
        instructions = machine.handle(progress, event, now)
    except UnexpectedEvent as error:
        raise UnexpectedEvent(progress, event, told(story)) from error
    story.steps += (now, event, instructions)
    if progress.phase is PassPhase.WAITING or type(event) is GivenUpEvent:
        story.is_told = True
    return instructions


def told(story: Story) -> str:
    """Return the chapter under way in words."""
    return ", ".join(str(each) for each in story.steps[1::3])


def replay(chapters: tuple[Chapter, ...]) -> list[str]:
    """Play a story again; returns where the machine would do otherwise now, in words."""
    found = []
    for number, chapter in enumerate(chapters):
        progress = copy(chapter.start)
        for step in chapter.steps:
            try:
                made = machine.handle(progress, step.event, step.at)
            except UnexpectedEvent as error:
                found.append(f"chapter {number}: {error}")
                break
            if made != step.instructions:
                found.append(f"chapter {number}: {step.event}: {step.instructions}, now {made}")
    return found
