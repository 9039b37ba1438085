"""The recommender's loop beside others on the event loop."""

import asyncio
import time
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.kube.store import Store
from podscale.kube.watching import Listed, Listing, Page
from podscale.kube.wire import decode, encode
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stored import StoredEvent, StoredVpa
from vpa.stores import Stores

MANY = 10_000


def stored(number: int) -> StoredVpa:
    name = f"vpa-{number}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    meta = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "1"}
    return decode(encode({"metadata": meta, "spec": {"targetRef": target}}), StoredVpa)


def recommender() -> Recommender:
    stores = Stores(API, NoKinds())
    steps: list[Any] = [Listing(), Page([stored(n) for n in range(MANY)], "5"), Listed("5")]
    for step in steps:
        stores.vpas.apply(step, scope="", now=time.monotonic())
    evictions: Store[StoredEvent] = Store(("",))
    metrics = RecommenderMetrics(CollectorRegistry())
    provider: Any = None  # nothing is measured
    return Recommender(API, stores, evictions, provider, Options(), metrics)


async def test_others_get_their_turn_while_thousands_of_vpas_are_loaded() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    made = recommender()
    async with asyncio.TaskGroup() as group:
        other = group.create_task(others())
        await asyncio.sleep(0)
        before = turns
        await made._load_vpas()
        during = turns - before
        other.cancel()
    assert len(made.cluster.vpas) == MANY
    assert during > 3
