"""``podscale`` that says, every second, how long its event loop kept somebody waiting.

Somebody comes every 10 ms, whatever the loop does, and waits until it has a turn. Of that counts
what the process worked meanwhile: who gets no CPU, because others on the machine have it, holds
nobody. ``told_by`` reads it again from the program's log.
"""

import asyncio
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import uvloop
from msgspec import Struct

from podscale.cli.entry import main
from tests.tools.process import Program

PERIOD_S = 0.01
LEAST_S = 0.0005  # what is shorter counts as this
_MARK = "turns of the loop:"


class Second(Struct, frozen=True):
    """What was measured from ``start`` to ``end``, which are monotonic times of the machine."""

    start: float
    end: float
    waited: list[float]  # seconds, of everybody who came


def told_by(program: Program) -> Iterator[Second]:
    """Yield what a program has said."""
    for line in program.log.read_text(errors="replace").splitlines():
        if line.startswith(_MARK):
            start, end, others, *waited = map(float, line.removeprefix(_MARK).split())
            yield Second(start, end, [*waited, *[LEAST_S] * int(others)])


async def _tell() -> None:
    start = time.monotonic()
    due, spent, waited = start + PERIOD_S, time.process_time(), list[float]()
    while True:
        await asyncio.sleep(due - time.monotonic())
        now = time.monotonic()
        if now < due:
            continue
        worked = time.process_time() - spent
        spent += worked
        # As if the machine were ours alone.
        share = min(worked / max(now - due, 1e-9), 1.0)
        while due <= now:
            waited.append((now - due) * share)
            due += PERIOD_S
        if now > start + 1.0:
            long = [f"{each:.4f}" for each in waited if each > LEAST_S]
            print(_MARK, start, now, len(waited) - len(long), *long, file=sys.stderr)
            start, waited = now, []


def _measured(part: Coroutine[Any, Any, Any], run: Any = uvloop.run) -> Any:
    async def both() -> Any:
        telling = asyncio.create_task(_tell())
        try:
            return await part
        finally:
            telling.cancel()

    return run(both())


if __name__ == "__main__":
    uvloop.run = _measured
    if sys.argv[1] == "nodes":
        from tests.cluster.short_times import shorten

        shorten()
    main()
