"""The questions of 300 HPAs, answered by prometheus-adapter and by ours, by turns.

Etcd, kube-apiserver and Prometheus are real. Who asks is not counted, nor what the API server
spends on passing questions on, which is the same for both (``bench_hpa_plane`` counts it): a plain
client sends to the adapter what kube-controller-manager would ask, evenly over each period of 15 s,
which lets ours share less than bursts would. What all of them cost while nobody asks is measured in
each turn and subtracted. Both have the same rules, account and relist interval, and each its own
other defaults, apart from prometheus-adapter's rate of API requests.
``PODSCALE_BENCH_PLANE_HPAS``: another number.
"""

import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bench.bench_hpa import PERIOD_S
from tests.bench.figures import Figures, resident_mb
from tests.bench.hpa_cluster import namespace_of
from tests.bench.periods import above, line, mean, measure
from tests.bench.plane_stage import PlaneStage, pods_question
from tests.bench.yardstick import load
from tests.tools.process import LOOPBACK

TURNS = 2
IDLE_PERIODS, WARM_PERIODS, PERIODS = 2, 2, 4
CLIENTS = 5  # as many as kube-controller-manager has by default
ASKER = "horizontal-pod-autoscaler"


def main() -> int:
    count = int(os.environ.get("PODSCALE_BENCH_PLANE_HPAS", "300"))
    figures = Figures("bench-adapter, beside prometheus-adapter")
    spent = {True: Counter[str](), False: Counter[str]()}
    memory_mb: dict[bool, float] = {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        PlaneStage(Path(scratch), figures, count) as stage,
    ):
        account = {"name": ASKER, "namespace": "kube-system"}
        stage.plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        for _ in range(TURNS):
            for is_upstream in spent:
                used, memory_mb[is_upstream] = _turn(stage, is_upstream=is_upstream)
                name = "prometheus-adapter" if is_upstream else "podscale adapter"
                figures.note(f"{name}: {line(used)} a period; {memory_mb[is_upstream]:.0f} MB")
                spent[is_upstream].update(used)
    theirs, ours = spent.values()
    for what, limit in (("adapter", 0.3), ("Prometheus", 0.15)):
        detail = f"({ours[what] / TURNS:.3f} against {theirs[what] / TURNS:.3f} s a period)"
        name = f"{what}'s CPU, ours / prometheus-adapter"
        figures.at_most(name, ours[what] / theirs[what], limit, detail)
    figures.at_most(
        "CPU of adapter, API server, etcd and Prometheus, ours / prometheus-adapter",
        ours.total() / theirs.total(), 1 / 7,
        f"({ours.total() / TURNS:.3f} against {theirs.total() / TURNS:.3f} s a period)",
    )  # fmt: skip
    figures.at_most(
        "memory, ours / prometheus-adapter", memory_mb[False] / memory_mb[True], 1.9,
        f"({memory_mb[False]:.0f} against {memory_mb[True]:.0f} MB)",
    )  # fmt: skip
    return figures.finish()


def _turn(stage: PlaneStage, *, is_upstream: bool) -> tuple[dict[str, float], float]:
    """Return CPU seconds a period of each process while one adapter is asked, and its MB."""
    paths = [
        path
        for index in range(stage.count)
        for path in (
            pods_question(index, "load"),
            pods_question(index, "connections"),
            f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace_of(index)}/queue",
        )
    ]
    token = stage.plane.service_account("kube-system", ASKER).token or ""
    rate, seconds = len(paths) / PERIOD_S, (WARM_PERIODS + PERIODS) * PERIOD_S + 1
    with stage.adapter(is_upstream=is_upstream) as stack, ThreadPoolExecutor(1) as pool:
        urls = [f"https://{LOOPBACK}:{stack.port}{path}" for path in paths]
        pids = {"adapter": stack.replicas[0].pid, **stage.servers}
        time.sleep(WARM_PERIODS * PERIOD_S)  # an API server has much to do for a new APIService
        idle = mean(measure(pids, IDLE_PERIODS, PERIOD_S))
        stage.figures.note(f"idle: {line(idle)}")
        asking = pool.submit(
            load, urls, stage.directory, clients=CLIENTS, seconds=seconds, rate=rate, token=token
        )
        time.sleep(WARM_PERIODS * PERIOD_S)
        used = mean(measure(pids, PERIODS, PERIOD_S))
        memory_mb = resident_mb(pids["adapter"])
        answered = asking.result()
    if answered["failed"] or answered["requests"] < 0.98 * rate * seconds:
        raise RuntimeError(f"{answered['requests']} of {rate * seconds:.0f} answered: {answered}")
    return above(idle, used), memory_mb


if __name__ == "__main__":
    sys.exit(main())
