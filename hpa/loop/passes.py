"""One batch of passes: look, ask once, decide each, write where something is to be written."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial

import structlog
from msgspec import structs

from hpa.decide import decide, schedules
from hpa.forecast.demand import measured
from hpa.forecast.plan import LiveForecast
from hpa.loop.metrics_reader import Given, MetricsReader
from hpa.loop.scale_reader import PAGE, ScaleReader
from hpa.loop.state import ControllerState
from hpa.loop.writes import DecisionWrites
from hpa.machine.events import AnsweredEvent, Signal
from hpa.machine.instructions import Decide, Order
from hpa.machine.record import AutoscalerRecord, Look

_log = structlog.get_logger()

_MOST_WINDOWS = 200  # of schedules, looked for in one pass for one namespace: some 20 ms

_OURS, _WATCHED = AnsweredEvent(), AnsweredEvent(is_watched=True)
_WATCH = Decide(is_bystander=True)
_DUE, _OBSERVE = Signal.DUE, Order.OBSERVE


class Passes:
    """Runs passes for one term of leadership."""

    def __init__(self, group: asyncio.TaskGroup, state: ControllerState) -> None:
        ports, options = state.ports, state.options
        self._group = group
        self._state = state
        self._machines = state.machines
        self._clock = state.clock
        self._shadow = structs.replace(state.settings, mode="shadow")
        self._reader = ScaleReader(group, state)
        self._writes = DecisionWrites(group, state)
        self._metrics = MetricsReader(
            ports.provider,
            ports.metrics,
            timeout_s=options.answer_timeout_s,
            wall=state.clock.unix,
        )

    async def run(self, records: Sequence[AutoscalerRecord]) -> None:
        """Take every record through one pass; those still in an earlier one are left out."""
        started = self._clock.watch()
        mapper = self._state.ports.mapper()
        now = self._clock.now()
        free = [each for each in records if self._begins(each, now)]
        windows: Counter[str] = Counter()  # of schedules, by namespace
        decide_late = partial(self._decide_late, started=started, windows=windows)
        looks = await self._reader.looks(free, mapper, decide_late)
        for look in looks:
            if look.hpa.is_read_apart:
                self._group.create_task(decide_late([look]))
        looks = [look for look in looks if not look.hpa.is_read_apart]
        if self._metrics.is_slow:
            async with asyncio.TaskGroup() as apart:
                for some in _by_metrics(looks):
                    apart.create_task(self._decide_all(some, started, windows))
        else:
            await self._decide_all(looks, started, windows)

    def _begins(self, record: AutoscalerRecord, now: float) -> bool:
        try:
            return _OBSERVE in self._machines.handle(record, _DUE, now)
        except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
            self._machines.fail(record)
            return False

    async def _decide_late(
        self, looks: Sequence[Look], started: float, windows: Counter[str]
    ) -> None:
        try:
            await self._decide_all(looks, started, windows)
        except Exception:  # noqa: BLE001 - nobody waits for it
            _log.exception("pass failed", keys=["/".join(look.record.key) for look in looks])

    async def _decide_all(
        self, looks: Sequence[Look], started: float, windows: Counter[str]
    ) -> None:
        begun = 0
        try:
            given = await self._metrics.about(looks)
            while begun < len(looks):
                if begun:
                    await asyncio.sleep(0)
                self._clock.look()
                # One time for all of a page: a float less to keep for each past number.
                now, unix = self._clock.now(), self._clock.unix()
                page = range(begun, min(begun + PAGE, len(looks)))
                begun = page.stop
                for place in page:
                    hpa = looks[place].hpa
                    unknown = schedules.unknown(hpa.options.schedules, unix)
                    windows[hpa.namespace] += unknown
                    if unknown and windows[hpa.namespace] > _MOST_WINDOWS:
                        self._machines.give_up(looks[place].record)  # until the next pass
                        continue
                    try:
                        self._decide(looks[place], given[place], started, now, unix)
                    except Exception:  # noqa: BLE001 - as above
                        self._machines.fail(looks[place].record)
        finally:
            for look in looks[begun:]:
                self._machines.give_up(look.record)

    def _decide(self, look: Look, answers: Given, started: float, now: float, unix: float) -> None:
        record, state = look.record, self._state
        if record.is_gone:
            return
        is_watched = state.settings.mode != "shadow" and state.foreign.must_watch(
            record.foreign, now
        )
        before = record.progress.decided_at
        told = self._machines.handle(record, _WATCHED if is_watched else _OURS, now)
        past = state.memory.past(
            record,
            look.hpa,
            look.size,
            unix,
            lambda: state.targets.is_current(record, look.seen, since=started),
        )
        if before is not None:
            self._state.ports.metrics.gap.add((), max(now - before, 0.0))
        settings = self._shadow if _WATCH in told else state.settings
        live = _live(record, look)
        expected = None if live is None else live.expected(unix)
        seen = structs.replace(look.observation, answers=answers, expected=expected)
        decision = decide(seen, past, settings, unix)
        if live is not None:
            live.note(measured(decision.trace), unix)
        self._writes.begin(look, started, decision, now)


def _live(record: AutoscalerRecord, look: Look) -> LiveForecast | None:
    forecast = record.history.forecast
    return None if forecast is None or not look.hpa.options.forecasts else forecast.live


def _by_metrics(looks: Sequence[Look]) -> list[list[Look]]:
    """Looks that need the same metrics together: a slow one then delays only its own."""
    groups: dict[frozenset[str], list[Look]] = {}
    for look in looks:
        names = frozenset(f"{each.type}/{each.name}" for each in look.hpa.metrics)
        groups.setdefault(names, []).append(look)
    return list(groups.values())
