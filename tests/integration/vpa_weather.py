"""Updaters on the stage, behind a connection that loses or refuses what a test says."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from podscale.kube.client.errors import ApiUnreachable
from tests.integration.vpa_stage import RHYTHM, Stage, stage
from vpa.updater.decide.priority import UpdaterSettings
from vpa.updater.flags import Options
from vpa.updater.part import UpdaterPart

QUICK = Options(interval_s=0.1, lease="", settings=UpdaterSettings(in_place=True))
PER_DAY = "vpa.podscale.io/max-disruptions-per-day"


@pytest.fixture
async def small(tmp_path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as built:
        yield built


class Weather:
    """A connection that loses or refuses what a test says, and counts what goes out."""

    def __init__(self, small: Stage) -> None:
        self._api = small.api
        self.user_agent = small.api.user_agent
        self.stream = small.api.stream
        self.sent: Counter[str] = Counter()
        self.refuse: Callable[[str, str], Exception | None] = lambda _method, _path: None
        self.lose: Callable[[str, str], bool] = lambda _method, _path: False
        self.instead: Exception = ApiUnreachable("the answer was lost", is_timeout=True)

    async def request(self, method: Any, path: str, **more: Any) -> Any:
        self.sent[f"{method} {path.rpartition('/')[2]}"] += 1
        refused = self.refuse(method, path)
        if refused is not None:
            raise refused
        answer = await self._api.request(method, path, **more)
        if self.lose(method, path):
            raise self.instead
        return answer


@asynccontextmanager
async def updating(
    small: Stage,
    weather: Weather,
    options: Options = QUICK,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[UpdaterPart]:
    stores = small.stores(needs_nodes=True, needs_budgets=True)
    part = UpdaterPart(
        weather, stores, options, registry or CollectorRegistry(), lease=None, rhythm=RHYTHM
    )
    task = asyncio.create_task(part.run())
    try:
        yield part
    finally:
        await part.stop()
        task.cancel()
        await asyncio.wait({task})


def loops(part: UpdaterPart) -> Callable[[int], Callable[[], bool]]:
    """Return what says whether that many more loops have ended."""

    def more(count: int) -> Callable[[], bool]:
        ended = part.updater.loop.succeeded + count
        return lambda: part.updater.loop.succeeded >= ended

    return more


def annotate(small: Stage, **annotations: str) -> None:
    held = small.vpa()
    metadata = {**held["metadata"], "annotations": annotations}
    small.objects.update("verticalpodautoscalers", "default", "web", {**held, "metadata": metadata})


def is_eviction(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/eviction")


def is_resize(method: str, path: str) -> bool:
    return method == "PATCH" and path.endswith("/resize")
