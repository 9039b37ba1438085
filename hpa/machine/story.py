"""What happened to autoscalers lately, as their machines saw it: kept in memory, dumped, and
played again.

A chapter is one pass with what came after it. Of each autoscaler the last one is kept; those in
which a size was to be written, or something failed, go into a book of all autoscalers' chapters.
"""

from collections import deque

from msgspec import Struct, structs

from hpa.machine import machine
from hpa.machine.events import Event, ResizedEvent, Signal
from hpa.machine.instructions import Instructions
from hpa.machine.progress import PassPhase, Progress, UnexpectedEvent

MOST_CHAPTERS = 4000  # in the book: some 3 MB
MOST_STEPS = 32  # a chapter; where more happens, the next one begins
_DUE, _GIVEN_UP, _IDLE = Signal.DUE, Signal.GIVEN_UP, PassPhase.IDLE

_Key = tuple[str, str]  # namespace, name


class StoryStep(Struct, frozen=True, gc=False, array_like=True):
    """One event, and what was to be done about it."""

    at: float  # monotonic
    event: Event
    instructions: Instructions


class Chapter(Struct, frozen=True, gc=False):
    """The state in which it began, and what happened then."""

    start: Progress
    steps: tuple[StoryStep, ...]


class Story(Struct, gc=False):
    """The last chapter of one autoscaler."""

    start: Progress
    steps: tuple[object, ...] = ()  # times, events and instructions, in turn: small and quick
    is_told: bool = False  # it goes into the book when the next one begins

    def chapter(self) -> Chapter:
        """Return the chapter so far."""
        held = iter(self.steps)
        steps = tuple(StoryStep(*each) for each in zip(held, held, held, strict=True))  # type: ignore[arg-type]
        return Chapter(structs.replace(self.start), steps)


class DumpedStory(Struct, frozen=True):
    """A story with the name of its autoscaler, as it is served and stored."""

    namespace: str
    name: str
    now: float  # when it was dumped, of the clock of its steps
    chapters: tuple[Chapter, ...]


class StoryBook:
    """Lets machines handle events, and remembers what they made of them."""

    def __init__(self) -> None:
        self._told: deque[tuple[_Key, Chapter]] = deque(maxlen=MOST_CHAPTERS)

    def follow(
        self, key: _Key, story: Story, progress: Progress, event: Event, now: float
    ) -> Instructions:
        """Return what is to be done; raises ``UnexpectedEvent`` with the story."""
        if (event is _DUE and progress.phase is _IDLE) or len(story.steps) >= 3 * MOST_STEPS:
            self._turn_page(key, story, progress)
        try:
            instructions = machine.handle(progress, event, now)
        except UnexpectedEvent as error:
            told = ", ".join(str(each) for each in story.steps[1::3])
            raise UnexpectedEvent(progress, event, told) from error
        story.steps += (now, event, instructions)
        if event is _GIVEN_UP or type(event) is ResizedEvent:
            story.is_told = True
        return instructions

    def chapters(self, key: _Key, story: Story) -> tuple[Chapter, ...]:
        """Return what is known of one autoscaler, the oldest first."""
        return (*(chapter for each, chapter in self._told if each == key), story.chapter())

    def _turn_page(self, key: _Key, story: Story, progress: Progress) -> None:
        if story.is_told:
            self._told.append((key, story.chapter()))
        story.start, story.steps, story.is_told = structs.replace(progress), (), False


def replay(chapters: tuple[Chapter, ...]) -> list[str]:
    """Play a story again; returns where the machine would do otherwise now, in words."""
    found = []
    for number, chapter in enumerate(chapters):
        progress = structs.replace(chapter.start)
        for step in chapter.steps:
            try:
                made = machine.handle(progress, step.event, step.at)
            except UnexpectedEvent as error:
                found.append(f"chapter {number}: {error}")
                break
            if made != step.instructions:
                found.append(f"chapter {number}: {step.event}: {step.instructions}, now {made}")
    return found
