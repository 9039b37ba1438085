"""Checkpoints of which some hang, pass after pass."""

import asyncio
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.core.selectors import selector
from podscale.kube.client.errors import ApiUnreachable
from tests.unit.vpa.model.worlds import NOW, usage, vpa
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.model.cluster import ClusterModel
from vpa.model.groups import Named
from vpa.model.samples.checkpoints import Checkpoint
from vpa.recommender.flags import Options
from vpa.recommender.history.checkpoints import Checkpoints, CheckpointWrites
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores

COUNT, STUCK = 40, 16  # those that were put first hang
OPTIONS = Options(workers=4, checkpoints_timeout_s=0.1)


class Sticky(Checkpoints):
    """Checkpoints of which the first hang until the pass is over, or somewhat shorter."""

    def __init__(self) -> None:
        super().__init__(API, ("",))
        self.written: set[int] = set()

    async def write(self, named: Named, checkpoint: Checkpoint, extra: str | None) -> bool:
        number = int(named[0].name.removeprefix("vpa-"))
        if number < STUCK:
            await asyncio.sleep(0.06 if number % 2 else 60.0)
            raise ApiUnreachable("the deadline passed", is_timeout=True)
        self.written.add(number)
        return True


async def test_checkpoints_that_hang_do_not_keep_the_others_from_being_written() -> None:
    cluster = ClusterModel()
    pods = tuple(f"web-{number}" for number in range(COUNT))
    for number, pod in enumerate(pods):
        cluster.put_vpa(vpa(f"vpa-{number}"), selector.parse(f"app={pod}"), NOW)
        cluster.put_pod("shop", pod, {"app": pod}, ["app"], NOW)
    cluster.take(usage(NOW, 0.2, 5e8, pods=pods))
    checkpoints = Sticky()
    stores: Any = VpaStores(API, NoKinds())
    metrics = RecommenderMetrics(CollectorRegistry())
    saving = CheckpointWrites(cluster, checkpoints, stores, OPTIONS, metrics, NOW)
    for minute in range(3):
        await saving.maintain(NOW + minute * 60.0)
    assert checkpoints.written == set(range(STUCK, COUNT))
