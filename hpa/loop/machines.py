"""The machines of all autoscalers, told what happens; and who of them is to have a pass at once."""

import asyncio
from collections import deque
from collections.abc import Iterable

import structlog

from hpa.history.clock import SteadyClock
from hpa.machine.events import Event, Signal
from hpa.machine.instructions import Instructions, Order
from hpa.machine.progress import PassPhase
from hpa.machine.record import AutoscalerRecord
from hpa.machine.story import Chapter, StoryBook
from hpa.selfmetrics import HpaMetrics

_log = structlog.get_logger()

_GATHER_S = 0.02  # changes that come together are decided together
# Here, as in others that run in every pass: CPython 3.11 takes 0.1 us to find a member in its enum.
_RUN_AGAIN, _SKIP, _COUNT_SAVED = Order.RUN_AGAIN, Order.SKIP, Order.COUNT_SAVED


class Machines:
    """Hands events to machines, and carries out what needs no waiting."""

    def __init__(self, clock: SteadyClock, metrics: HpaMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._book = StoryBook()
        self._urgent: deque[AutoscalerRecord] = deque()
        self._is_any_urgent = asyncio.Event()
        self.is_leading = False

    def handle(
        self, record: AutoscalerRecord, event: Event, now: float | None = None
    ) -> Instructions:
        """Return what is to be done; raises ``UnexpectedEvent``."""
        at = self._clock.now() if now is None else now
        instructions = self._book.follow(record.key, record.story, record.progress, event, at)
        for each in instructions:
            if each is _RUN_AGAIN:
                self._urgent.append(record)
                self._is_any_urgent.set()
            elif each is _SKIP:
                self._metrics.counts.skipped += 1
            elif each is _COUNT_SAVED:
                self._metrics.counts.saved += 1
        return instructions

    def story(self, record: AutoscalerRecord) -> tuple[Chapter, ...]:
        """Return what happened to one autoscaler lately, the oldest first."""
        return self._book.chapters(record.key, record.story)

    def give_up(self, record: AutoscalerRecord) -> None:
        """End the pass under way, if there is one."""
        if record.progress.phase is not PassPhase.IDLE:
            self.handle(record, Signal.GIVEN_UP)

    def fail(self, record: AutoscalerRecord) -> None:
        """The same from within an exception: a bug met by one must not stop the others."""
        _log.exception("pass failed", key="/".join(record.key))
        self.give_up(record)

    def begin_term(self, records: Iterable[AutoscalerRecord]) -> None:
        """Let everything act."""
        self.is_leading = True
        for record in records:
            self.handle(record, Signal.TERM_BEGAN)

    def end_term(self, records: Iterable[AutoscalerRecord]) -> None:
        """Let nothing act; the tasks of the term have ended."""
        self.is_leading = False
        self._urgent.clear()
        self._is_any_urgent.clear()
        for record in records:
            self.handle(record, Signal.TERM_ENDED)

    async def urgent(self) -> list[AutoscalerRecord]:
        """Wait for autoscalers that are to have a pass at once, and return them."""
        await self._is_any_urgent.wait()
        await asyncio.sleep(_GATHER_S)
        self._is_any_urgent.clear()
        found, self._urgent = self._urgent, deque()
        # A pass that began since has seen the change.
        return [each for each in found if each.progress.is_urgent]
