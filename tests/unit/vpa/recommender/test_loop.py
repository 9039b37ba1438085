"""The recommender's loop beside others on the event loop."""

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from podscale.core.selectors import selector
from podscale.kube.client.wire import decode, encode
from podscale.kube.informer.store import Store
from podscale.kube.objects.vpa import StoredVpa
from tests.kit.stores import fill
from tests.unit.loop_turns import others
from tests.unit.vpa.model.worlds import NOW
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.model.samples.checkpoints import Checkpoint, HistogramCheckpoint
from vpa.model.samples.membership import VpaKey
from vpa.recommender.flags import Options
from vpa.recommender.loop import Recommender
from vpa.recommender.part import RecommenderPart
from vpa.recommender.pod_feed import StoredEvent
from vpa.recommender.selfmetrics import RecommenderMetrics
from vpa.stores import VpaStores
from vpa.targets import ResolvedTarget

MANY = 10_000


def stored(number: int, target_name: str = "", version: str = "1") -> StoredVpa:
    name = f"vpa-{number}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target_name or name}
    meta = {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version}
    return decode(encode({"metadata": meta, "spec": {"targetRef": target}}), StoredVpa)


def recommender(count: int = MANY) -> Recommender:
    stores = VpaStores(API, NoKinds())
    fill(stores.vpas, [stored(n) for n in range(count)], "5", watched_s=None)
    evictions: Store[StoredEvent] = Store(("",))
    metrics = RecommenderMetrics(CollectorRegistry())
    provider: Any = None  # nothing is measured
    return Recommender(API, stores, evictions, provider, Options(), metrics)


async def test_others_get_their_turn_while_thousands_of_vpas_are_loaded() -> None:
    made = recommender()
    async with others() as turns:
        await made._load_vpas()
    assert len(made.cluster.vpas) == MANY
    assert turns.taken > 3


async def test_a_target_that_is_misspelt_for_a_while_costs_no_history() -> None:
    made = recommender(1)
    key = VpaKey("shop", "vpa-0")
    apps = {name: selector.parse(f"app={name}") for name in ("web", "db")}

    async def resolve(_namespace: str, target: Any, **_: Any) -> ResolvedTarget:
        found = apps.get(target.name)
        return ResolvedTarget(found, None if found is not None else "absent")

    workloads: Any = SimpleNamespace(resolve=resolve, ask_ahead=lambda _targets: None)
    made.stores.workloads = workloads

    async def named(target: str, version: str) -> None:
        fill(made.stores.vpas, [stored(0, target, version)], version, watched_s=None)
        await made._load_vpas()

    await named("web", "10")
    learned = HistogramCheckpoint({4: 10000}, 10.0, NOW)
    made.cluster.load_checkpoint(
        key, "app", Checkpoint(learned, learned, NOW - 1e6, NOW, 100), None, NOW
    )
    await named("wbe", "11")
    assert "app" in made.cluster.vpas[key].initial
    await named("web", "12")
    assert "app" in made.cluster.vpas[key].initial
    await named("bd", "13")
    await named("db", "14")
    assert made.cluster.vpas[key].initial == {}, "another workload begins anew"


def test_decisions_are_followed_once_however_often_they_are_looked_up() -> None:
    stores = VpaStores(API, NoKinds())
    provider: Any = None
    registry = CollectorRegistry()
    part = RecommenderPart(API, stores, provider, Options(), registry, lease=None)
    groups = [part.groups for _ in range(5)]
    assert all(list(each) == [part.decisions] for each in groups)
    assert len([each for each in stores._listeners if "SizingApi" in repr(each)]) == 1
