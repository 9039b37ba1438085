"""The gate of forecasts over the HPAs of a running controller, in a child process.

The controller says which HPAs, and what to ask Prometheus for; the child (this module run as a
program) reads, replays and answers. It lives for one round, with the lowest priority.
"""

import asyncio
import os
import sys
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct, structs

from hpa.decide.api.spec import HPA
from hpa.decide.settings import Settings
from hpa.forecast import daily
from hpa.forecast.daily import GateAnswer, GateQuestion, GateSight
from hpa.forecast.gate import NONE
from hpa.simulate.workload import Plant
from podscale.core.times.rfc3339 import rfc3339
from podscale.feed.errors import QueryError
from podscale.feed.options import PrometheusOptions
from podscale.feed.range_reader import HistoryClient
from podscale.replay.history import HistoryWindow, LoadQuery, PastReader
from podscale.replay.inputs import ReplayError

TOGETHER = 64  # HPAs of one batch: as many are replayed side by side
_STEP_S = 60
_READY_STEP_S = 3600
_MOST_SAMPLES = 10_000_000  # of one HPA
_LENGTH_BYTES = 8
_NICE = 19
_DEADLINE_S, _EACH_S = 300.0, 50.0  # of a batch, longer by each of its HPAs, which are read in it
_MOST_BATCHES = 256  # that wait, until those that fail are not divided any more
_ENVIRONMENT = {
    # The threads of numpy's products wait for each other by spinning, whatever their priority.
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1",
    # glibc keeps what one HPA's arrays took for the next one's: giving it back and taking it
    # again was at least 75 page faults each.
    "MALLOC_MMAP_THRESHOLD_": str(2**25), "MALLOC_TRIM_THRESHOLD_": str(2**28),
}  # fmt: skip

QueriesOf = Callable[[HPA], Sequence[LoadQuery]]  # raises ReplayError


class _Asked(Struct, frozen=True):
    question: GateQuestion
    queries: Sequence[LoadQuery]


class _Batch(Struct, frozen=True):
    asked: list[_Asked]
    settings: Settings
    now: float
    prometheus: PrometheusOptions = PrometheusOptions()


class _Answers(Struct, frozen=True):
    of: list[GateAnswer | str]  # a text: why there is none
    cpu_s: float  # of the child so far


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.shape, value.dtype.str, value.tobytes()]
    return float(value) if isinstance(value, float) else str(value)  # a time of the wire; a path


def _made(kind: type, value: Any) -> Any:
    if not isinstance(value, list):
        return kind(value)
    shape, dtype, data = value
    return np.frombuffer(data, np.dtype(dtype)).reshape(shape)


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_batches = msgspec.msgpack.Decoder(_Batch, dec_hook=_made)
_answers = msgspec.msgpack.Decoder(_Answers, dec_hook=_made)


class GateProcess:
    """Asks a child: what the HPA part calls a gate."""

    def __init__(self, prometheus: PrometheusOptions, queries_of: QueriesOf) -> None:
        self._prometheus = prometheus
        self._queries_of = queries_of
        self.cpu_s = 0.0  # of all children so far

    async def answers(
        self, questions: Sequence[GateQuestion], settings: Settings, now: float
    ) -> AsyncGenerator[tuple[GateQuestion, GateAnswer | str], None]:
        """Yield the answer to each, or why there is none. Closed early, the child is ended.

        Where a child fails another goes on; the HPAs over which it failed are asked about after
        all others, one by one. Namespaces take turns.
        """
        had: Counter[str] = Counter()

        def turn(each: GateQuestion) -> int:
            had[each.hpa.namespace] += 1
            return had[each.hpa.namespace]

        questions = sorted(questions, key=turn)
        starts = range(0, len(questions), TOGETHER)
        batches = deque(questions[first : first + TOGETHER] for first in starts)
        child: asyncio.subprocess.Process | None = None
        spent_s = 0.0
        try:
            while batches:
                asked: list[_Asked] = []
                for each in batches.popleft():
                    try:
                        asked.append(_Asked(each, _summed(self._queries_of(each.hpa))))
                    except ReplayError as error:
                        yield each, str(error)
                    await asyncio.sleep(0)
                if not asked:
                    continue
                try:
                    if child is None:
                        child, spent_s = await _started(), 0.0
                    async with asyncio.timeout(_DEADLINE_S + _EACH_S * len(asked)):
                        batch = _encode(_Batch(asked, settings, now, self._prometheus))
                        found = _answers.decode(await _answered_by(child, batch))
                except (OSError, EOFError) as error:
                    if child is not None:
                        await _end(child)
                        child = None
                    if len(asked) > 1 and len(batches) < _MOST_BATCHES:
                        batches.extend([each.question] for each in asked)
                        continue
                    found = _Answers([f"its process failed: {error!r}"] * len(asked), spent_s)
                self.cpu_s, spent_s = self.cpu_s + found.cpu_s - spent_s, found.cpu_s
                for one, given in zip(asked, found.of, strict=True):
                    yield one.question, given
        finally:
            if child is not None:
                await _end(child)


async def _started() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, env={**os.environ, **_ENVIRONMENT},
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _end(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    ending = asyncio.ensure_future(child.communicate())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending  # which takes no time, and closes the pipes
        raise


async def _answered_by(child: asyncio.subprocess.Process, batch: bytes) -> bytes:
    assert child.stdin is not None and child.stdout is not None  # noqa: S101, PT018 - pipes
    child.stdin.write(len(batch).to_bytes(_LENGTH_BYTES, "big"))
    child.stdin.write(batch)
    await child.stdin.drain()
    length = await child.stdout.readexactly(_LENGTH_BYTES)
    return await child.stdout.readexactly(int.from_bytes(length, "big"))


def _summed(queries: Sequence[LoadQuery]) -> list[LoadQuery]:
    # One series instead of one for each pod that there has been: fifty times less to decode.
    return [
        structs.replace(
            each,
            text=f"sum by ({each.container}) ({each.text})" if each.only else f"sum({each.text})",
            pod="",
        )
        for each in queries
    ]


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer batches until the parent closes the pipe. Runs in the child."""
    os.nice(_NICE)
    client: HistoryClient | None = None
    while body := _frame(source):
        batch = _batches.decode(body)
        if client is None and any(each.question.lived is None for each in batch.asked):
            client = HistoryClient(batch.prometheus)  # costs most of a second of imports
        found = asyncio.run(_answered(batch, client))
        body = _encode(_Answers(found, sum(os.times()[:2])))
        sink.write(len(body).to_bytes(_LENGTH_BYTES, "big"))
        sink.write(body)
        sink.flush()


def _frame(source: BinaryIO) -> bytes:
    return source.read(int.from_bytes(source.read(_LENGTH_BYTES), "big"))


async def _answered(batch: _Batch, client: HistoryClient | None) -> list[GateAnswer | str]:
    found: list[GateAnswer | str] = [""] * len(batch.asked)
    seen: list[tuple[int, GateSight]] = []
    questions = [each.question for each in batch.asked]
    is_regretted = daily.regrets(questions, batch.settings)
    for place, each in enumerate(batch.asked):
        question = each.question
        if question.lived is not None or client is None:
            if question.verdict is not None and is_regretted[place]:
                given = structs.replace(question.verdict, candidate=NONE)
                found[place] = GateAnswer(given)
            continue
        try:
            async with asyncio.timeout(_EACH_S):
                seen.append((place, await _sight(each, client, batch.now)))
        except TimeoutError:  # of thousands of metrics, or of a query that takes minutes
            found[place] = f"its history was not read within {_EACH_S:g} s"
        except (ReplayError, QueryError) as error:
            found[place] = str(error)
    answers = daily.answers([each for _, each in seen], batch.settings, batch.now)
    for (place, _), answer in zip(seen, answers, strict=True):
        found[place] = answer
    return found


async def _sight(asked: _Asked, client: HistoryClient, now: float) -> GateSight:
    question = asked.question
    if not daily.has_targets(question):
        raise ReplayError("a metric has no target, or its pods request nothing of it")
    today_s = daily.day_of(now)
    window = HistoryWindow(today_s - daily.HISTORY_S, now, _STEP_S, _MOST_SAMPLES)
    past = PastReader(client, window, lambda *_: None)
    load = await past.load(question.hpa, asked.queries)
    if load.end_s < today_s:  # whole days are judged, and the last one is yesterday
        raise ReplayError(f"Prometheus has no sample of the metrics since {rfc3339(load.end_s)}")
    plant = Plant(requests=question.requests)
    if ready_after_s := await past.ready_after(question.hpa, _READY_STEP_S):
        plant = structs.replace(plant, ready_after_s=ready_after_s)
    return GateSight(question, load, plant)


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        serve(sys.stdin.buffer, sys.stdout.buffer)
