"""``podscale`` with a defect: its loops of HPA and recommender never return once a file exists.

A program: ``python -m tests.cluster.frozen FILE podscale's words``.
"""

import asyncio
import sys
from pathlib import Path

from hpa.loop.controller import Controller
from hpa.loop.reconciler import Reconciler
from podscale.cli.entry import main
from vpa.recommender.loop import Recommender

_POLL_S = 0.05


def inject(file: Path) -> None:
    """Have both loops freeze, each in the middle of what it does."""
    tick, once = Controller._tick, Recommender.once

    async def freezing_tick(
        self: Controller, group: asyncio.TaskGroup, reconciler: Reconciler, *, first: int
    ) -> None:
        ticking = group.create_task(tick(self, group, reconciler, first=first))
        while not file.exists():  # noqa: ASYNC110 - of another process
            await asyncio.sleep(_POLL_S)
        ticking.cancel()
        await asyncio.Event().wait()

    async def freezing_once(self: Recommender) -> None:
        if file.exists():
            await asyncio.Event().wait()
        await once(self)

    Controller._tick = freezing_tick  # type: ignore[method-assign]
    Recommender.once = freezing_once  # type: ignore[method-assign]


if __name__ == "__main__":
    inject(Path(sys.argv.pop(1)))
    main()
