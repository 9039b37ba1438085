"""Random clusters in which resizes wait for room: budgets hold, and only those go that may."""

import os
import random
from collections import Counter

from tests.unit.nodes.room_cluster import Json, RoomCluster

SEEDS = 200 if os.environ.get("PODSCALE_SHORT") else 1_000
ROUNDS = 8


def drawn(rng: random.Random) -> RoomCluster:
    """Full nodes, workloads with and without budgets, some of whose pods grow."""
    cluster = RoomCluster()
    for number in range(rng.randint(2, 5)):
        cluster.node(f"node-{number}", rng.choice((6, 10, 16)))
    for number in range(rng.randint(2, 7)):
        cpu = rng.choice((300, 500, 1000, 1700, 2500))
        where: list[str] = []
        for _ in range(rng.randint(1, 6)):
            fits = [name for name in cluster.nodes
                    if cluster.left(name) - where.count(name) * cpu >= cpu]  # fmt: skip
            where += rng.sample(fits, min(len(fits), 1))
        if where:
            cluster.workload(
                f"app{number}", f"{cpu}m", *where, opted_in=rng.random() < 0.8,
                pdb=rng.choice((None, 0, 1, len(where) - 1, len(where))),
                replicas=len(where) + rng.choice((0, 0, 0, 1)),
                mode=rng.choice(("InPlaceOrRecreate", "InPlace")),
                priority=rng.choice((0, 0, 100)),
            )  # fmt: skip
    return cluster


async def test_budgets_hold_in_every_run() -> None:
    counts = Counter[str]()
    for seed in range(SEEDS):
        rng = random.Random(seed)
        cluster = drawn(rng)

        def check(pod: Json, cluster: RoomCluster = cluster) -> None:
            name = pod["metadata"]["labels"]["app"]
            assert cluster.vpas[name]["metadata"]["annotations"], "not opted in"
            live = cluster.healthy(name)
            # The updater's: two at least, and no more than half of them down.
            assert live >= 2, f"{name} has {live}"
            configured = cluster.sets[name]["spec"]["replicas"]
            least = configured - configured // 2
            assert live - 1 >= least or (configured // 2 == 0 and live == configured)

        cluster.before_eviction = check
        growing = [cluster.resize(name, f"{rng.choice((2, 4, 6, 9, 12))}")
                   for name in cluster.sets if rng.random() < 0.5]  # fmt: skip
        waiting = [pod for pod in growing if cluster.is_waiting(pod)]
        for _ in range(ROUNDS):
            evicted = await cluster.round(300)
            for name, budget in cluster.budgets.items():
                lost = sum(each.startswith(f"{name}-") for each in evicted)
                if lost:
                    assert cluster.healthy(name) >= budget["spec"]["minAvailable"]
            counts["evictions"] += len(evicted)
            cluster.kubelet()
            cluster.controllers()
            cluster.kubelet()
        assert not cluster.refused
        counts["waited"] += len(waiting)
        moved = sum(pod["metadata"]["name"] in cluster.evicted for pod in waiting)
        counts["moved"] += moved
        counts["granted"] += sum(not cluster.is_waiting(pod) for pod in waiting)
    print(
        f"{SEEDS} clusters: {counts['waited']} resizes found no room, {counts['granted']} fit "
        f"after {ROUNDS} rounds and {counts['moved']} pods moved: {counts['evictions']} evictions, "
        "none against a budget"
    )
    assert counts["granted"] > 0.2 * counts["waited"]
