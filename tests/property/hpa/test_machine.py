"""Any order of what may happen to an autoscaler: one write at a time, none outside a term, nothing
shrinks on stale data, and its story plays again to the same instructions.

The shell is a model here that carries out what it is told, and lets everything else happen in
between: the object changes or goes, terms end, watches fall silent, answers are lost.
"""

from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec
import pytest

from hpa.machine import events as ev
from hpa.machine import instructions as ins
from hpa.machine.events import Signal
from hpa.machine.instructions import Order
from hpa.machine.machine import LASTS_S
from hpa.machine.progress import PassPhase, Progress, UnexpectedEvent
from hpa.machine.story import (
    MOST_CHAPTERS,
    MOST_STEPS,
    Chapter,
    Story,
    StoryBook,
    replay,
)

KEY = ("shop", "web")
NEWS: tuple[ev.StatusNews, ...] = ("none", "values", "more")
ENDS: tuple[Literal["written", "failed", "conflict", "again"], ...] = (
    "written", "failed", "conflict", "again",
)  # fmt: skip


class AnyOrder:
    """One autoscaler, its shell, and its surroundings."""

    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.now = 0.0
        self.book = StoryBook()
        self.size, self.is_leading, self.is_stale, self.is_foreign = 4, False, False, False
        self.knows_rescales = True
        self.begin()

    def begin(self) -> None:
        """Make a new object."""
        self.progress = Progress()
        self.story = Story(Progress())
        self.wanted: list[ins.Instruction] = []  # what the shell is to do, or does
        self.in_flight = 0
        self.decided: tuple[int, int, bool] | None = None
        self.seen: tuple[int, bool] | None = None  # what it was looked at as: spec, ours
        self.spec = 0
        self.is_again = self.is_new_spec = False

    def tell(self, event: ev.Event) -> ins.Instructions:
        """Hand an event over, and note what is to be done."""
        told = self.book.follow(KEY, self.story, self.progress, event, self.now)
        for each in told:
            if each is Order.RUN_AGAIN:
                self.is_again = True
            elif each is Order.WRITE_STATUS:
                self.send()
                self.wanted.append(each)
            elif isinstance(each, ins.RememberSent):
                assert (each.before, each.after) == self.decided[:2], "what was decided"
            elif each not in (Order.SKIP, Order.COUNT_SAVED, Order.FINISH, Order.REFUSE):
                self.wanted.append(each)
        return told

    def send(self) -> None:
        assert self.in_flight == 0, "one write in flight"
        assert self.is_leading, "no write outside a term"
        self.in_flight += 1

    def take(self, kind: Order | type) -> bool:
        """Take an instruction that is being carried out."""
        found = next((each for each in self.wanted if kind in (each, type(each))), None)
        if found is not None:
            self.wanted.remove(found)
        return found is not None

    def news(self) -> ev.StatusNews:
        news: ev.StatusNews = self.draw.choice(NEWS)
        return news

    def guards(self) -> ev.WriteGuards:
        is_same = self.seen == (self.spec, True) and not self.is_foreign
        doubt = "a silent watch" if self.is_stale else ""
        return ev.WriteGuards(doubt, self.knows_rescales, is_same)

    def time_passes(self) -> None:
        self.now += self.draw.choice((0.01, 1.0, LASTS_S, 400.0))

    def a_watch_falls_silent_or_is_heard(self) -> None:
        self.is_stale = not self.is_stale

    def another_controller_comes_or_goes(self) -> None:
        self.is_foreign = not self.is_foreign

    def histories_are_read_or_not(self) -> None:
        self.knows_rescales = not self.knows_rescales

    def a_term_begins_or_ends(self) -> None:
        if not self.is_leading:
            self.is_leading = True
            self.tell(Signal.TERM_BEGAN)
            return
        # The shell cancels what is under way first.
        self.is_leading = self.is_again = self.is_new_spec = False
        self.wanted.clear()
        self.in_flight = 0
        self.tell(Signal.TERM_ENDED)

    def the_spec_changes(self) -> None:
        self.spec += 1
        self.is_new_spec = self.is_leading
        self.tell(Signal.CHANGED)

    def it_goes_and_another_comes(self) -> None:
        old, wanted = self.progress, list(self.wanted)
        self.tell(Signal.DELETED)
        # Whatever was under way comes to its end, and nothing follows from it.
        for event in ev.KINDS:
            if wanted and event not in (ev.ResizedEvent, ev.AttemptEvent, ev.ScaleAnsweredEvent):
                given = {"is_written": True} if event is ev.StatusAnsweredEvent else {}
                made = event if isinstance(event, Signal) else event(**given)
                assert self.book.follow(KEY, self.story, old, made, self.now) == ()
        attempt = ev.AttemptEvent(ev.WriteGuards())
        assert self.book.follow(KEY, self.story, old, attempt, self.now) == (Order.REFUSE,)
        assert replay((self.story.chapter(),)) == []
        self.begin()
        if self.is_leading:
            self.tell(Signal.TERM_BEGAN)

    def it_is_due(self) -> None:
        if not self.is_leading:
            return
        is_idle = self.progress.phase is PassPhase.IDLE
        self.seen = None if is_idle else self.seen
        told = self.tell(Signal.DUE)
        self.is_again = self.is_again and not is_idle
        self.is_new_spec = self.is_new_spec and not is_idle
        assert told == ((Order.OBSERVE,) if is_idle else (Order.SKIP,))

    def it_is_observed(self) -> None:
        self.seen = (self.spec, True)

    def it_is_decided(self) -> None:
        after, news = self.draw.randint(0, 8), self.news()
        self.take(Order.OBSERVE)
        told = self.tell(ev.AnsweredEvent(is_watched=self.is_foreign))
        self.take(ins.Decide)
        if told == (ins.Decide(is_bystander=True),):
            self.tell(ev.ConcludedEvent())  # who only watches has nothing to write
        elif after == self.size:
            self.tell(ev.ConcludedEvent(news))
        else:
            self.decided = (self.size, after, False)
            if ins.TakeTurn not in map(
                type, self.tell(ev.ResizedEvent(*self.decided, self.guards()))
            ):
                assert self.take(ins.Conclude)
                self.tell(ev.ConcludedEvent(news))

    def its_turn_comes(self) -> None:
        news = self.news()
        self.take(ins.TakeTurn)
        self.tell(Signal.TURN_CAME)
        if self.take(ins.Conclude):
            self.tell(ev.ConcludedEvent(news, self.guards().is_same))

    def it_attempts_to_write(self) -> None:
        ends = self.draw.choice(ENDS)
        is_lost, news = self.draw.random() < 0.5, self.news()
        guards = self.guards()
        told = self.tell(ev.AttemptEvent(guards))
        assert self.decided is not None
        if self.take(Order.PROCEED):
            before, after, _ = self.decided
            assert after > before or not self.is_stale, "nothing shrinks on stale data"
            assert guards.is_same, "what changed meanwhile is decided on anew"
            assert self.knows_rescales, "no policy is outrun"
            self.send()
            self.in_flight -= 1
            if ends == "again":
                return
            self.size = after if ends == "written" else self.size
            outcome = ev.ScaleAnsweredEvent(ends, is_lost and ends != "written")
        else:
            assert told == (Order.REFUSE,)
            outcome = ev.ScaleAnsweredEvent("not_tried")
        self.take(ins.WriteScale)
        self.tell(outcome)
        assert self.take(ins.Conclude)
        self.tell(ev.ConcludedEvent(news, self.guards().is_same))

    def the_status_is_answered(self) -> None:
        is_written = self.draw.random() < 0.5
        self.take(Order.WRITE_STATUS)
        self.in_flight -= 1
        self.tell(ev.StatusAnsweredEvent(is_written))

    def a_bug_ends_the_pass(self) -> None:
        if self.progress.phase is PassPhase.IDLE:
            return
        self.wanted.clear()
        self.in_flight = 0
        self.tell(Signal.GIVEN_UP)

    def a_pass_that_is_not_over_is_being_carried_out(self) -> None:
        is_busy = self.progress.phase is not PassPhase.IDLE
        assert bool(self.wanted) == is_busy
        assert len(self.wanted) <= 1, "one thing at a time"
        if self.is_new_spec and not is_busy:
            assert self.is_again, "a spec that changed is decided on once the pass has ended"

    def go_on(self) -> None:
        """Let the shell do the next thing that it was told to, or start a pass."""
        carried_out: dict[Order | type, Callable[[], None]] = {
            Order.OBSERVE: self.it_is_observed if self.seen is None else self.it_is_decided,
            ins.TakeTurn: self.its_turn_comes,
            ins.WriteScale: self.it_attempts_to_write,
            Order.WRITE_STATUS: self.the_status_is_answered,
        }
        if self.wanted:
            first = self.wanted[0]
            carried_out[first if isinstance(first, Order) else type(first)]()
        else:
            self.it_is_due()

    def step(self) -> None:
        """Let the shell go on, or anything else happen."""
        others = (
            self.time_passes,
            self.a_watch_falls_silent_or_is_heard,
            self.another_controller_comes_or_goes,
            self.histories_are_read_or_not,
            self.a_term_begins_or_ends,
            self.the_spec_changes,
            self.it_goes_and_another_comes,
            self.it_is_due,
            self.a_bug_ends_the_pass,
        )
        (self.go_on if self.draw.random() < 0.7 else self.draw.choice(others))()
        self.a_pass_that_is_not_over_is_being_carried_out()

    def end(self) -> None:
        """Play the story again, as it is and as it was stored."""
        chapters = self.book.chapters(KEY, self.story)
        assert replay(chapters) == []
        stored = msgspec.json.decode(msgspec.json.encode(chapters), type=tuple[Chapter, ...])
        assert stored == chapters
        assert replay(stored) == []


@pytest.mark.parametrize("seed", range(150))
def test_any_order_keeps_what_is_promised(seed: int) -> None:
    one = AnyOrder(Random(seed))
    for _ in range(300):
        one.step()
    one.end()


def test_what_is_not_in_the_table_raises_with_the_story() -> None:
    book, progress, story = StoryBook(), Progress(is_leading=True), Story(Progress())
    book.follow(KEY, story, progress, Signal.DUE, 1.0)
    with pytest.raises(UnexpectedEvent, match=r"TurnCame while observing, after Due"):
        book.follow(KEY, story, progress, Signal.TURN_CAME, 2.0)


def test_nothing_starts_outside_a_term() -> None:
    with pytest.raises(UnexpectedEvent):
        StoryBook().follow(KEY, Story(Progress()), Progress(), Signal.DUE, 1.0)


def test_a_story_that_would_be_another_one_now_is_told() -> None:
    book, progress, story = StoryBook(), Progress(is_leading=True), Story(Progress())
    book.follow(KEY, story, progress, Signal.DUE, 1.0)
    (chapter,) = book.chapters(KEY, story)
    first = msgspec.structs.replace(chapter.steps[0], instructions=(Order.SKIP,))
    (told,) = replay((msgspec.structs.replace(chapter, steps=(first,)),))
    assert "Observe" in told


def test_a_story_is_bounded_whatever_happens() -> None:
    book, progress, story = StoryBook(), Progress(is_leading=True), Story(Progress())
    for at in range(10 * MOST_CHAPTERS):
        book.follow(KEY, story, progress, Signal.DUE, float(at))
        if at % 2:
            book.follow(KEY, story, progress, Signal.GIVEN_UP, float(at))
    for at in range(10 * MOST_STEPS):
        book.follow(KEY, story, progress, Signal.CHANGED, float(at))
    chapters = book.chapters(KEY, story)
    assert len(chapters) == MOST_CHAPTERS + 1
    assert max(len(chapter.steps) for chapter in chapters) <= MOST_STEPS
    assert replay(chapters) == []


def test_what_waited_too_long_comes_first_when_it_is_decided_anew() -> None:
    book, progress, story = StoryBook(), Progress(is_leading=True), Story(Progress())
    free = ev.WriteGuards()

    def tell(event: ev.Event, at: float) -> ins.Instructions:
        return book.follow(KEY, story, progress, event, at)

    def decide(at: float) -> ins.Instructions:
        for event in (Signal.DUE, ev.AnsweredEvent()):
            tell(event, at)
        return tell(ev.ResizedEvent(4, 2, False, free), at)

    assert decide(100.0) == (ins.TakeTurn(100.0),)
    late = 100.0 + LASTS_S
    assert tell(Signal.TURN_CAME, late) == (ins.WriteScale(2),)
    assert tell(ev.AttemptEvent(free), late) == (Order.REFUSE,)
    assert tell(ev.ScaleAnsweredEvent("not_tried"), late) == (ins.Conclude(),)
    assert tell(ev.ConcludedEvent("more"), late) == (Order.FINISH,), "nor is it told of"
    assert decide(130.0) == (ins.TakeTurn(100.0),)
