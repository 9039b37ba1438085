"""From the autoscalers that are due to looks at them, with the scales of their targets.

Most scales are at hand; those that are not, or are in question, are asked for side by side, and
who has to wait for one comes after the others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import structlog

from hpa.decide import Scale, ScaleUnreadable
from hpa.loop.state import ControllerState
from hpa.machine.objects import TargetKey
from hpa.machine.record import AutoscalerRecord, Look, TargetScale
from podscale.kube.discovery.restmapper import Mapper

_log = structlog.get_logger()

PAGE = 64  # autoscalers between two looks of the loop at others: some 5 ms
AT_ONCE = 50  # requests for scales
_FETCH_PATIENCE_S = 1.0  # scales that take longer are decided on when they come
_PAUSED = TargetScale(ScaleUnreadable("it is not looked at while paused"))

_Fetched = tuple[TargetKey, TargetScale]
_Decide = Callable[[Sequence[Look]], Awaitable[None]]


class ScaleReader:
    """Looks at autoscalers for one term; whom there is nothing to decide about gives up."""

    def __init__(self, group: asyncio.TaskGroup, state: ControllerState) -> None:
        self._group = group
        self._state = state
        self._machines = state.machines
        self._reading = asyncio.Semaphore(AT_ONCE)

    async def looks(
        self, records: Sequence[AutoscalerRecord], mapper: Mapper, decide: _Decide
    ) -> list[Look]:
        """Return looks at those whose scale comes soon; ``decide`` is called with each later one.

        Cut short, all give up.
        """
        looks: list[Look] = []
        waiting: list[AutoscalerRecord] = []
        try:
            for place, record in enumerate(records, 1):
                if place % PAGE == 0:
                    await asyncio.sleep(0)
                try:
                    if not self._look_at_hand(record, mapper, looks):
                        waiting.append(record)
                except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
                    self._machines.fail(record)
            if waiting:
                tasks = {self._group.create_task(self._fetched(each)): each for each in waiting}
                done, late = await asyncio.wait(tasks, timeout=_FETCH_PATIENCE_S)
                for task in done:
                    self._look_fetched(tasks[task], task.result(), mapper, looks)
                for task in late:
                    self._group.create_task(self._later(tasks[task], task, mapper, decide))
        except BaseException:
            for record in records:
                self._machines.give_up(record)
            raise
        return looks

    def _look_at_hand(self, record: AutoscalerRecord, mapper: Mapper, looks: list[Look]) -> bool:
        """Look at an autoscaler; False where its scale has to be asked for first."""
        hpa, seen = record.hpa, self._state.targets.at_hand(record)
        if hpa is not None:
            if (
                seen is not None
                and isinstance(seen.scale, Scale)
                and self._state.memory.is_in_question(record, hpa, seen.scale.spec_replicas)
            ):
                seen = None
            if seen is None and not hpa.options.is_paused:
                return False
        self._look(record, seen or _PAUSED, mapper, looks)
        return True

    def _look(
        self, record: AutoscalerRecord, seen: TargetScale, mapper: Mapper, looks: list[Look]
    ) -> None:
        if record.hpa is None or record.is_gone:
            self._machines.give_up(record)
        else:
            looks.append(self._state.observer.look(record, record.hpa, seen, mapper))

    def _look_fetched(
        self, record: AutoscalerRecord, fetched: _Fetched, mapper: Mapper, looks: list[Look]
    ) -> None:
        target, seen = fetched
        if record.target != target:
            self._machines.give_up(record)  # it names another one by now
            return
        try:
            self._look(record, seen, mapper, looks)
        except Exception:  # noqa: BLE001 - as above
            self._machines.fail(record)

    async def _fetched(self, record: AutoscalerRecord) -> _Fetched:
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
        task: "asyncio.Task[_Fetched]",
        mapper: Mapper,
        decide: _Decide,
    ) -> None:
        looks: list[Look] = []
        self._look_fetched(record, await task, mapper, looks)
        await decide(looks)
