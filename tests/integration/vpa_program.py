"""A recommender as a process that can be killed: ``KUBECONFIG T0 [down]``.

Time runs sixty times as fast, from ``T0`` on; every container uses the same, with a ripple
that only depends on the time, so that a restart meets what its forerunner would have met.
"""

import asyncio
import math
import sys
import time
from collections.abc import Sequence

import numpy as np
from prometheus_client import CollectorRegistry

from podscale.core.metrics import Answer, ContainerColumns, Question, Unavailable
from podscale.core.pod_state import PodPhase
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.discovery import ApiDiscovery
from tests.integration.vpa_stage import RHYTHM
from vpa.model.checkpoint_selection import SaveBand
from vpa.model.recommendations import DeadBand
from vpa.recommender.flags import Options
from vpa.recommender.part import RecommenderPart
from vpa.stores import VpaStores

SPEED = 60.0
OPTIONS = Options(
    interval_s=0.1, status_band=DeadBand(0.0, 0.0), save_band=SaveBand(0.0, 0.0), workers=4
)


class Ripple:
    """Usage of every running container, by the clock."""

    def __init__(self, stores: VpaStores, t0: float, *, is_down: bool) -> None:
        self._stores = stores
        self._t0 = t0
        self._is_down = is_down

    def now(self) -> float:
        return self._t0 + (time.time() - self._t0) * SPEED

    async def answer(self, questions: Sequence[Question]) -> Sequence[Answer]:
        return [self._columns() for _ in questions]

    def _columns(self) -> Answer:
        if self._is_down:
            return Unavailable("Down", "nobody answers")
        views = [v for v in self._stores.pods.select_all().views() if v.phase == PodPhase.RUNNING]
        now, count = self.now(), len(views)
        return ContainerColumns(
            [view.namespace for view in views],
            [view.name for view in views],
            ["main"] * count,
            np.full(count, 0.2 + 0.1 * math.sin(now / 1800.0)),
            np.full(count, 300.0 * 2**20 + 2**20 * math.sin(now / 900.0)),
            np.full(count, now),
            now,
        )


async def main(kubeconfig: str, t0: str, *words: str) -> None:
    async with connect(ApiServerTarget(kubeconfig=kubeconfig), user_agent="test") as api:
        discovery = ApiDiscovery(api)
        await discovery.refresh()
        stores = VpaStores(api, discovery)
        usage = Ripple(stores, float(t0), is_down="down" in words)
        part = RecommenderPart(
            api, stores, usage, OPTIONS, CollectorRegistry(), lease=None, rhythm=RHYTHM,
            wall=usage.now,
        )  # fmt: skip
        await part.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
