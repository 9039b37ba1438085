"""What is remembered about every autoscaler: in its record, and (in replace mode) stored.

A history taken over from another leader is completed when its object is first decided
on: only then the size of the target is known. Where histories cannot be read for long, a
term begins without them, and joins them to its own when they come. ``now`` is unix seconds
here, as in decisions; the clock may have been set since a record was written.
"""

import asyncio
import math
from collections.abc import Callable, Container

import structlog
from msgspec import Struct

from hpa.cluster.record import AutoscalerRecord, ForecastState, HistoryState, Key, SentScale
from hpa.decide.api.spec import HPA
from hpa.decide.behavior import remember_scale
from hpa.decide.observation import Past
from hpa.history import history
from hpa.history.clock import SteadyClock
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.history import HistoryRecord
from hpa.selfmetrics import HpaMetrics
from podscale.kube.client.errors import KubeError, NotLeading
from podscale.kube.leadership.lease import Term

# Longer than a hand-over, under the default lease. Under a longer one each crash is a silence,
# and rightly so: nobody recommended anything for as long, and a window may have run out.
_SILENT_S = 60.0


class _Loaded(Struct, frozen=True):
    """A stored history that has not been looked at yet."""

    # All times are by the clock of who stored it.
    record: HistoryRecord
    alive_until: float | None
    taken_over_at: float
    is_silent: bool  # nobody led for so long that nobody recommended anything

    def is_of(self, record: AutoscalerRecord) -> bool:
        """Whether it is of this object, and not of an earlier one of the name; "" is of a
        release that stored no uid."""
        return self.record.uid in ("", record.uid)


class HistoryMemory:
    """The pasts of one term of leadership."""

    def __init__(self, config_maps: HistoryConfigMaps | None, clock: SteadyClock) -> None:
        """``config_maps`` None: nothing is stored (shadow)."""
        self._config_maps = config_maps
        self._clock = clock
        self._term = 0
        self._loaded: dict[Key, _Loaded] = {}
        self._renewed_at: Callable[[], float] = lambda: math.inf
        self._ahead_s = 0.0  # of the clock of who stored them, of ``clock.set_s``
        self._unread_since: float | None = None  # by ``clock.now``; None: what is stored was read

    def begin(
        self, behind_s: float = 0.0, renewed_at: Callable[[], float] = lambda: math.inf
    ) -> None:
        """Forget the term before: until ``load``, nothing is known of what was stored.

        Who stored it had a clock that was ``behind_s`` behind ours. Nothing is stored by a clock
        that was set since the Lease was ``renewed_at``: who leads next would take it for the one
        of before, and forget by the difference. A rescale shows in the status and in the size.
        """
        self._renewed_at = renewed_at
        self._term += 1
        self._loaded.clear()
        self._ahead_s = self._clock.set_s - behind_s
        self._unread_since = None if self._config_maps is None else self._clock.now()

    async def load(self, alive_until: float | None) -> int:
        """Take over what is stored; returns for how many objects. Raises ``KubeError``.

        ``alive_until`` is the renewTime of the Lease that we took: the leader before us
        recommended the same until then, by its own clock.
        """
        if self._config_maps is None:
            return 0
        if alive_until is not None:
            alive_until = float(alive_until)  # the wire's own class of float is none in a trace
        at = self._clock.unix() - self._behind_s
        is_silent = alive_until is None or at - alive_until > _SILENT_S
        records = await self._config_maps.load()
        for key, record in records.items():
            self._loaded[key] = _Loaded(record, alive_until, at, is_silent)
        self._unread_since = None
        return len(records)

    @property
    def is_read(self) -> bool:
        """Whether what is stored was read in this term; until then nothing is stored."""
        return self._unread_since is None

    @property
    def _behind_s(self) -> float:
        return self._clock.set_s - self._ahead_s

    def knows_rescales(self, hpa: HPA, *, is_up: bool) -> bool:
        """Return whether every rescale that the policies of a direction may count is known: an
        earlier leader's are not while its histories are not read, until all are too old."""
        if self._unread_since is None or hpa.behavior is None:
            return True
        rules = hpa.behavior.up if is_up else hpa.behavior.down
        longest_s = max((policy.period_seconds for policy in rules.policies), default=0)
        return self._clock.now() - self._unread_since >= longest_s

    def prune(self, known: Container[Key]) -> None:
        """Drop what is stored of objects that went while nobody led.

        Not at once: a new leader's watch may be behind what the last one decided on.
        """
        for key in [key for key in self._loaded if key not in known]:
            self.forget(key)

    def past(
        self,
        record: AutoscalerRecord,
        hpa: HPA,
        size: int | None,
        now: float,
        is_current: Callable[[], bool] = lambda: True,
    ) -> Past:
        """Return the past of one object; ``size`` is its target's now (None: not known).

        A history taken over is completed once the size ``is_current``: what a watch tells that
        is behind would count as a rescale that never was.
        """
        state = self._state(record)
        if state.past is not None:
            if self._loaded and record.key in self._loaded:
                self._join(record, state, hpa, now)
            self._settle(state, hpa, size)
            return state.past
        loaded = self._loaded.get(record.key)
        if loaded is not None and not loaded.is_of(record):
            self.forget(record.key)
            loaded = None
        past, expected = _before(loaded, hpa)
        is_taken_over = loaded is not None or not self.is_read
        if size is not None and is_taken_over and not is_current():
            state.doubted = size
            size = None
        if loaded is not None:
            is_unknown = loaded.is_silent or history.is_behind(loaded.record, hpa)
            if size is not None and is_unknown:
                past = history.resumed(past, size, loaded.taken_over_at)
        past, expected = history.recovered(past, hpa, expected, self._behind_s, now)
        past = history.shifted(past, self._behind_s, now)
        if size is not None:
            if not self.is_read and expected is None:
                state.found = size, self._clock.now()
            known_at = -math.inf if loaded is None else loaded.record.at + self._behind_s
            earliest = max(known_at, history.newest_rescale(past))
            past = history.drifted(past, hpa, expected, size, now, earliest)
            self._adopt_forecast(record, self._loaded.pop(record.key, None))
            state.past = past
        return past

    def is_in_question(self, record: AutoscalerRecord, hpa: HPA, size: int) -> bool:
        """Return whether a history is to be taken over that tells of another size.

        The watch may be behind the writes of the leader before by moments, and the difference
        would count as a rescale that never was: the API server itself is to be asked. Not where
        there is no policy that counts any: it may fail to answer, and many may differ at once.
        """
        if (self.is_read and not self._loaded) or hpa.behavior is None:
            return False
        if self._state(record).past is not None:
            return False
        loaded = self._loaded.get(record.key)
        past, expected = _before(loaded if loaded and loaded.is_of(record) else None, hpa)
        _, expected = history.recovered(past, hpa, expected)
        return expected is not None and expected != size

    def put(
        self,
        record: AutoscalerRecord,
        past: Past,
        size: int | None,
        now: float,
        *,
        is_stored: bool = True,
    ) -> None:
        """Remember; what is stored is written only where something in it changed.

        ``size`` None: it was not looked at, or could not be; or it is the one in doubt, and not
        one that was just written. The last known one stays, and a history taken over stays as
        it is until it can be completed.
        """
        state = self._state(record)
        doubted, state.doubted = state.doubted, None
        if size is None or size == doubted:
            if state.past is None:
                return
        else:
            state.size = size
            if state.sent and size != state.sent[0].before:
                state.sent = ()  # a later write went in: ours, and in ``past``
        state.past = past
        if self._config_maps is None or not is_stored or self._unread_since is not None:
            return
        if self._renewed_at() < self._clock.set_at:
            return
        if record.key in self._loaded:
            return  # read during this pass: it stands there until the next one has joined both
        verdict = None if state.forecast is None else state.forecast.verdict
        mark = history.mark(past, state.size, verdict)
        if state.mark != mark:
            state.mark = mark
            stored = history.to_record(past, state.size, now, record.uid, verdict)
            self._config_maps.put(record.key, stored)

    def forecast(self, record: AutoscalerRecord) -> ForecastState:
        """Return the forecast of one object that wants one."""
        state = self._state(record)
        if state.forecast is None:
            state.forecast = ForecastState()
        return state.forecast

    def sent(self, record: AutoscalerRecord, sent: SentScale) -> None:
        """Note a rescale whose answer was lost: it counts once its size is seen."""
        state = self._state(record)
        others = [each for each in state.sent if each.after != sent.after]
        state.sent = (*(each for each in others if each.before == sent.before), sent)

    def adopt(self, record: AutoscalerRecord, hpa: HPA) -> None:
        """Count a rescale of another controller as ours, once it stands in the status."""
        state = self._state(record)
        if state.past is not None:
            state.past = history.adopted(state.past, hpa)

    def forget(self, key: Key) -> None:
        """Drop what is stored of a deleted object."""
        self._loaded.pop(key, None)
        if self._config_maps is not None:
            self._config_maps.put(key, None)

    def _state(self, record: AutoscalerRecord) -> HistoryState:
        """Return what is remembered, as of the clock as it is set now."""
        state, set_s = record.history, self._clock.set_s
        if state.term != self._term:
            state = record.history = HistoryState(self._term, set_s)
        elif state.set_s != set_s:
            if state.past is not None:
                state.past = history.shifted(state.past, set_s - state.set_s)
            state.set_s, state.mark = set_s, None  # what is stored follows with this pass
        return state

    def _adopt_forecast(self, record: AutoscalerRecord, loaded: _Loaded | None) -> None:
        # What the gate of the leader before us said.
        if loaded is not None and loaded.record.forecast is not None:
            state = self.forecast(record)
            state.verdict = state.verdict or loaded.record.forecast

    def _join(self, record: AutoscalerRecord, state: HistoryState, hpa: HPA, now: float) -> None:
        """Join the stored history, which could be read only now, to the one of this term."""
        loaded, found = self._loaded.pop(record.key), state.found
        state.found = None
        if state.past is None or not loaded.is_of(record):
            return
        self._adopt_forecast(record, loaded)
        past = history.from_record(loaded.record, loaded.alive_until)
        past = history.joined(history.shifted(past, self._behind_s, now), state.past)
        if found is not None:
            size, at = found
            earliest = loaded.record.at + self._behind_s
            expected = loaded.record.size
            past = history.drifted(past, hpa, expected, size, self._clock.unix_at(at), earliest)
        state.past = past

    def _settle(self, state: HistoryState, hpa: HPA, size: int | None) -> None:
        """Count what was sent, once the target has another size than before."""
        if not state.sent or state.past is None or size is None or size == state.sent[0].before:
            return  # the watch may be behind
        sent, state.sent = state.sent, ()
        for each in sent:
            if each.after == size:
                at = self._clock.unix_at(each.at)
                state.past = remember_scale(state.past, hpa.behavior, each.before, size, at)


def _before(loaded: _Loaded | None, hpa: HPA) -> tuple[Past, int | None]:
    """Return the history of the leaders before us, and the size that they left."""
    if loaded is None:
        return Past(), None
    return history.taken_over(loaded.record, loaded.alive_until, hpa), loaded.record.size


_log = structlog.get_logger()

_PATIENCE_S = 60.0
_PAUSE_S = 1.0  # after a read that failed, doubled ...
_PAUSE_MAX_S = 30.0  # ... up to this
_FLUSH_S = 2.0


class HistoryKeeper(Struct, eq=False):
    """The stored histories of one term: read at its start, written while it lasts, flushed at its
    end. Without ConfigMaps (shadow) nothing is stored.

    Histories that cannot be read hold a term up for a minute. Then it begins without them, grows
    what may grow, and goes on trying: until it succeeds nothing is stored, because that would be
    written over what stands there.
    """

    memory: HistoryMemory
    config_maps: HistoryConfigMaps | None
    metrics: HpaMetrics

    async def read_in_time(self, term: Term) -> None:
        """Take over what is stored, unless that takes for too long."""
        now = asyncio.get_running_loop().time
        began, memory = now(), self.memory
        # Scrapes are answered in a thread without a loop.
        self.metrics.read.unread_s = lambda: 0.0 if memory.is_read else now() - began
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._read(term)
        except TimeoutError:
            _log.error(
                "histories not readable: going on without them",
                windows="begin anew",
                policies="longer than this term has lasted allow nothing",
            )

    async def keep(self, term: Term) -> None:
        """Store what changes, for ever, once what is stored has been read."""
        await self._read(term)
        config_maps = self.config_maps
        if config_maps is None:
            return
        now = asyncio.get_running_loop().time
        self.metrics.read.unsaved_s = lambda: config_maps.unsaved_s(now())
        while True:
            try:
                await config_maps.run()
            except NotLeading:
                await asyncio.sleep(1.0)  # the end of the term is near; the guard said it first

    async def end(self) -> None:
        """Store what waits. On SIGTERM we still lead: the next leader must find everything."""
        self.metrics.read.unread_s = self.metrics.read.unsaved_s = lambda: 0.0
        if self.config_maps is None or not self.memory.is_read:
            return
        try:
            async with asyncio.timeout(_FLUSH_S):
                await self.config_maps.flush()
        except (KubeError, NotLeading, TimeoutError) as error:
            _log.warning("histories not flushed", error=str(error))

    async def _read(self, term: Term) -> None:
        pause_s = _PAUSE_S
        while not self.memory.is_read:
            try:
                if count := await self.memory.load(term.previous_renew_time):
                    _log.info("histories taken over", count=count)
            except KubeError as error:
                _log.warning("histories not readable yet", error=str(error))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _PAUSE_MAX_S)
