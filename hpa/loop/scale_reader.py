"""From the autoscalers that are due to looks at them, with the scales of their targets.

Most scales are at hand; those that are not, or are in question, are asked for side by side, and
who has to wait for one comes after the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

import structlog

from hpa.cluster.catalog import AutoscalerEntry
from hpa.cluster.objects import TargetKey
from hpa.cluster.targets import ScaleTargets, TargetScale
from hpa.decide import Scale, ScaleUnreadable
from hpa.history.memory import HistoryMemory
from hpa.loop.observe import AutoscalerObserver, Look
from podscale.kube.restmapper import Mapper

_log = structlog.get_logger()

PAGE = 64  # autoscalers between two looks of the loop at others: some 5 ms
_FETCH_PATIENCE_S = 1.0  # scales that take longer are decided on when they come


class ScaleReader:
    """Looks at autoscalers for one term; whom there is nothing to decide about it gives back."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        targets: ScaleTargets,
        memory: HistoryMemory,
        observer: AutoscalerObserver,
        *,
        reads: int,
        release: Callable[[AutoscalerEntry], None],
        fail: Callable[[AutoscalerEntry], None],
    ) -> None:
        """``reads`` scales are asked for at once. ``release`` is told that a pass ended
        without a look, ``fail`` (which releases as well) from within an exception."""
        self._group = group
        self._targets = targets
        self._memory = memory
        self._observer = observer
        self._reading = asyncio.Semaphore(reads)
        self._release = release
        self._fail = fail

    async def at_hand(
        self, free: Sequence[AutoscalerEntry], mapper: Mapper
    ) -> tuple[list[Look], list[AutoscalerEntry]]:
        """Return looks, and whose scale has to be asked for; cut short, all are given back."""
        looks: list[Look] = []
        waiting: list[AutoscalerEntry] = []
        rest = deque(free)
        try:
            while rest:
                if len(rest) % PAGE == 0:
                    await asyncio.sleep(0)
                entry = rest.popleft()
                try:
                    seen = self._at_hand(entry)
                except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
                    self._fail(entry)
                    continue
                if seen is None and entry.hpa is not None and not entry.hpa.options.is_paused:
                    waiting.append(entry)
                else:
                    self._look(entry, seen, mapper, looks)
        except BaseException:
            for entry in (*rest, *waiting, *(look.entry for look in looks)):
                self._release(entry)
            raise
        return looks, waiting

    async def fetch(
        self,
        waiting: Sequence[AutoscalerEntry],
        mapper: Mapper,
        decide: Callable[[Sequence[Look]], Awaitable[None]],
    ) -> list[Look]:
        """Return looks at those whose scale comes soon; ``decide`` is given each later one."""
        looks: list[Look] = []
        tasks = {self._group.create_task(self._fetched(entry)): entry for entry in waiting}
        done, late = await asyncio.wait(tasks, timeout=_FETCH_PATIENCE_S)
        for task in done:
            self._look_fetched(tasks[task], *task.result(), mapper, looks)
        for task in late:
            self._group.create_task(self._later(tasks[task], task, mapper, decide))
        return looks

    def _at_hand(self, entry: AutoscalerEntry) -> TargetScale | None:
        seen = self._targets.at_hand(entry)
        if seen is None or entry.hpa is None or not isinstance(seen.scale, Scale):
            return seen
        if self._memory.is_in_question(entry, entry.hpa, seen.scale.spec_replicas):
            return None
        return seen

    def _look(
        self, entry: AutoscalerEntry, seen: TargetScale | None, mapper: Mapper, looks: list[Look]
    ) -> None:
        hpa = entry.hpa
        if hpa is None or entry.is_gone:
            self._release(entry)
            return
        nothing = TargetScale(ScaleUnreadable("it is not looked at while paused"))
        try:
            looks.append(self._observer.look(entry, hpa, seen or nothing, mapper))
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            self._fail(entry)

    def _look_fetched(
        self,
        entry: AutoscalerEntry,
        target: TargetKey,
        seen: TargetScale,
        mapper: Mapper,
        looks: list[Look],
    ) -> None:
        if entry.target == target:
            self._look(entry, seen, mapper, looks)
        else:
            self._release(entry)  # it names another one by now

    async def _fetched(self, entry: AutoscalerEntry) -> tuple[TargetKey, TargetScale]:
        """Return the target and its scale."""
        target = entry.target
        try:
            async with self._reading:
                target = entry.target
                return target, await self._targets.fetch(entry)
        except Exception as error:  # noqa: BLE001 - as above
            _log.exception("scale not read", key="/".join(entry.key))
            return target, TargetScale(ScaleUnreadable(f"{type(error).__name__}: {error}"))

    async def _later(
        self,
        entry: AutoscalerEntry,
        task: "asyncio.Task[tuple[TargetKey, TargetScale]]",
        mapper: Mapper,
        decide: Callable[[Sequence[Look]], Awaitable[None]],
    ) -> None:
        looks: list[Look] = []
        self._look_fetched(entry, *await task, mapper, looks)
        try:
            await decide(looks)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("pass failed", key="/".join(entry.key))
