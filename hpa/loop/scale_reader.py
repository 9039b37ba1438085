"""From the autoscalers that are due to looks at them, with the scales of their targets.

Most scales are at hand; those that are not, or are in question, are asked for side by side, and
who has to wait for one comes after the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog

from hpa.decide import Scale, ScaleUnreadable
from hpa.loop.machines import Machines
from hpa.loop.state import ControllerState
from hpa.machine.events import ObservedEvent, ScaleMissingEvent
from hpa.machine.objects import TargetKey
from hpa.machine.record import AutoscalerRecord, Look, TargetScale
from podscale.kube.discovery.restmapper import Mapper

_log = structlog.get_logger()

PAGE = 64  # autoscalers between two looks of the loop at others: some 5 ms
_FETCH_PATIENCE_S = 1.0  # scales that take longer are decided on when they come
_PAUSED = TargetScale(ScaleUnreadable("it is not looked at while paused"))
_OBSERVED, _MISSING = ObservedEvent(), ScaleMissingEvent()


class ScaleReader:
    """Looks at autoscalers for one term; whom there is nothing to decide about gives up."""

    def __init__(
        self, group: asyncio.TaskGroup, state: ControllerState, machines: Machines, *, reads: int
    ) -> None:
        """``reads`` scales are asked for at once."""
        self._group = group
        self._state = state
        self._machines = machines
        self._reading = asyncio.Semaphore(reads)

    async def at_hand(
        self, free: Sequence[AutoscalerRecord], mapper: Mapper, now: float
    ) -> tuple[list[Look], list[AutoscalerRecord]]:
        """Return looks, and whose scale has to be asked for; cut short, all give up."""
        looks: list[Look] = []
        waiting: list[AutoscalerRecord] = []
        rest = deque(free)
        try:
            while rest:
                if len(rest) % PAGE == 0:
                    await asyncio.sleep(0)
                record = rest.popleft()
                try:
                    seen = self._at_hand(record)
                except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
                    self._machines.fail(record)
                    continue
                if seen is None and record.hpa is not None and not record.hpa.options.is_paused:
                    self._machines.handle(record, _MISSING)
                    waiting.append(record)
                else:
                    self._look(record, seen, mapper, looks, now)
        except BaseException:
            for record in (*rest, *waiting, *(look.record for look in looks)):
                self._machines.give_up(record)
            raise
        return looks, waiting

    async def fetch(
        self,
        waiting: Sequence[AutoscalerRecord],
        mapper: Mapper,
        decide: Callable[[Sequence[Look]], Awaitable[None]],
    ) -> list[Look]:
        """Return looks at those whose scale comes soon; ``decide`` is given each later one."""
        looks: list[Look] = []
        tasks = {self._group.create_task(self._fetched(record)): record for record in waiting}
        done, late = await asyncio.wait(tasks, timeout=_FETCH_PATIENCE_S)
        for task in done:
            self._look_fetched(tasks[task], *task.result(), mapper, looks)
        for task in late:
            self._group.create_task(self._later(tasks[task], task, mapper, decide))
        return looks

    def _at_hand(self, record: AutoscalerRecord) -> TargetScale | None:
        seen = self._state.targets.at_hand(record)
        if seen is None or record.hpa is None or not isinstance(seen.scale, Scale):
            return seen
        if self._state.memory.is_in_question(record, record.hpa, seen.scale.spec_replicas):
            return None
        return seen

    def _look(
        self,
        record: AutoscalerRecord,
        seen: TargetScale | None,
        mapper: Mapper,
        looks: list[Look],
        now: float | None = None,
    ) -> None:
        hpa = record.hpa
        if hpa is None or record.is_gone:
            self._machines.give_up(record)
            return
        try:
            looks.append(self._state.observer.look(record, hpa, seen or _PAUSED, mapper))
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            self._machines.fail(record)
        else:
            self._machines.handle(record, _OBSERVED, now)

    def _look_fetched(
        self,
        record: AutoscalerRecord,
        target: TargetKey,
        seen: TargetScale,
        mapper: Mapper,
        looks: list[Look],
    ) -> None:
        if record.target == target:
            self._look(record, seen, mapper, looks)
        else:
            self._machines.give_up(record)  # it names another one by now

    async def _fetched(self, record: AutoscalerRecord) -> tuple[TargetKey, TargetScale]:
        """Return the target and its scale."""
        target = record.target
        try:
            async with self._reading:
                target = record.target
                return target, await self._state.targets.fetch(record)
        except Exception as error:  # noqa: BLE001 - as above
            _log.exception("scale not read", key="/".join(record.key))
            return target, TargetScale(ScaleUnreadable(f"{type(error).__name__}: {error}"))

    async def _later(
        self,
        record: AutoscalerRecord,
        task: "asyncio.Task[tuple[TargetKey, TargetScale]]",
        mapper: Mapper,
        decide: Callable[[Sequence[Look]], Awaitable[None]],
    ) -> None:
        looks: list[Look] = []
        self._look_fetched(record, *await task, mapper, looks)
        try:
            await decide(looks)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("pass failed", key="/".join(record.key))
