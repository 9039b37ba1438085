"""Two faults at once over the seven promises of DESIGN.md, in virtual time.

Two replicas of the HPA with their own watches, an authorizer, a webhook and a rules file, over one
API server. Besides the two faults only the load changes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from tests.faults.hpa_replica import Replica
from tests.faults.hpa_run import Result, Run
from tests.faults.hpa_weather import NS
from tests.faults.promises import NewPods, Reader, RulesFile
from tests.faults.watched_weather import WATCHED, WatchedReplica, WatchedWeather

STORM_S = 100.0
_BEGINS_S = (15.0, 30.0)
_APART_S = 5.0  # the second begins so much later at most
_LASTS_S = (30.0, 55.0)
_SLOW_S = 4.0  # with the least wait of a request below the 5 s for which a Lease outlives a term
_READS = (*WATCHED, "configmaps", "replicasets", "subjectaccessreviews")


class Pair(Struct, frozen=True):
    """Which faults, and what seeds everything else."""

    history: str
    faults: tuple[str, str]


class PairRun(Run):
    """One pair from beginning to end; ``play`` it."""

    weather_type = WatchedWeather
    replica_type = WatchedReplica

    def __init__(self, pair: Pair, directory: Path) -> None:
        super().__init__(pair.history)
        assert isinstance(self.weather, WatchedWeather)
        self._watched, self._pair = self.weather, pair
        if (NS, "bad") not in self.weather.hpas:
            self._bad()
        self._reader, self._pods = Reader(self.weather), NewPods(self.weather)
        self._replacing = asyncio.Lock()
        self._rules = RulesFile(self.weather, directory / "rules.yaml", self.names)

    async def play(self) -> Result:
        """Let the storm pass; nothing may be wrong in it, and all must be well at the end."""
        loop = asyncio.get_running_loop()
        if "reload" in self._pair.faults:
            await self._rules.start()
        begins_s = self.draw.uniform(*_BEGINS_S)
        tasks = [loop.create_task(each.run()) for each in (self._reader, self._pods)]
        for fault in self._pair.faults:
            tasks.append(loop.create_task(self._suffer(fault, begins_s)))
            begins_s += self.draw.uniform(0.0, _APART_S)
        revoked_at = loop.time() + self.draw.uniform(begins_s, STORM_S)
        end, due = loop.time() + STORM_S, loop.time()
        while loop.time() < end:
            if loop.time() >= due:
                self._turn()
                due = loop.time() + self.draw.uniform(3.0, 9.0)
            if loop.time() >= revoked_at:
                self._reader.take_right()
                revoked_at = float("inf")
            await self._second()
        await self._calm()
        await self._end(tasks)
        return self._result()

    async def _second(self) -> None:
        self._move()
        self._watched.follow(self.sizes)
        await asyncio.sleep(1.0)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for each in tasks:
            each.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                self.problems.append(f"{ended!r}")
        await self._pods.stop()
        if not self._reader.allowed:
            self.problems.append("nobody read a metric")
        if self._pods.created < STORM_S / 5:
            self.problems.append(f"only {self._pods.created} pods were created")

    async def _suffer(self, fault: str, begins_s: float) -> None:
        await asyncio.sleep(begins_s)
        await self._FAULTS[fault](self, self.draw.uniform(*_LASTS_S))

    def _leader(self) -> Replica:
        leading = [each for each in self.replicas if each.elector.may_write()]
        return self.draw.choice(leading or self.replicas)

    def _replica(self, name: str) -> Replica:
        fresh = super()._replica(name)
        if hasattr(self, "_rules"):  # else it is one of the first two
            fresh.measured.unruled = self._rules.unruled
        return fresh

    async def _replace(self) -> None:
        async with self._replacing:  # both faults may kill
            await super()._replace()

    async def _kill(self, _lasts_s: float) -> None:
        await self._replace()

    async def _refuse(self, lasts_s: float) -> None:
        self._watched.refuse(self.draw.choice(_READS))
        await asyncio.sleep(lasts_s)
        self._watched.refused = ""

    async def _silence(self, _lasts_s: float) -> None:
        for plural in self.draw.sample(WATCHED, self.draw.randint(1, 3)):
            self._watched.freeze(plural)

    async def _set_clock(self, lasts_s: float) -> None:
        self._clock()
        await asyncio.sleep(lasts_s)
        self._clock()

    async def _lose(self, lasts_s: float) -> None:
        one = self._leader()
        one.line.is_leaseless = True
        await asyncio.sleep(lasts_s)
        one.line.is_leaseless = False

    async def _spoil(self, lasts_s: float) -> None:
        self._watched.spoil()
        await self._replace()  # who follows reads it
        await asyncio.sleep(lasts_s / 2)
        self._watched.spoil()

    async def _reload(self, lasts_s: float) -> None:
        for what in (self.draw.choice(("broken", "empty", "gone")), "short", "whole"):
            await self._rules.become(what)
            for each in self.replicas:
                each.measured.unruled = self._rules.unruled
            await asyncio.sleep(lasts_s / 3)

    async def _slow(self, lasts_s: float) -> None:
        self._watched.slow_s = _SLOW_S
        await asyncio.sleep(lasts_s)
        self._watched.slow_s = 0.0

    _FAULTS: ClassVar[Mapping[str, Callable[["PairRun", float], Awaitable[None]]]] = {
        "kill": _kill, "503 of one list": _refuse, "frozen watch": _silence, "clock": _set_clock,
        "lost Lease": _lose, "spoiled history": _spoil, "reload": _reload, "slow": _slow,
    }  # fmt: skip


_KINDS = tuple(combinations(PairRun._FAULTS, 2))


def drawn(seed: int, number: int) -> Pair:
    """Return the pair of that number: each of the 28 kinds in turn, with a history of its own."""
    return Pair(f"{seed}/{number}", _KINDS[number % len(_KINDS)])
