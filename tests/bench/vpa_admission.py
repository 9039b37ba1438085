"""The webhook over 10,000 VPAs at 500 pods a second, beside a constant of the same server."""

import asyncio
import gc
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.bench.figures import Figures
from tests.bench.vpa_cluster import HASH, name_of, namespace_of
from tests.bench.vpa_load import p99, post
from tests.tools.process import Program, wait_until

VPAS = 10_000
RATE, TURN_S, TURNS = 500.0, 6.0, 5


def review(index: int) -> bytes:
    """Return what the API server asks about a new pod of one workload."""
    name, namespace = name_of(index), namespace_of(index)
    mounts = [{"name": f"v{n}", "mountPath": f"/data/{n}", "readOnly": True} for n in range(4)]
    env = [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(12)]
    containers = [
        {"name": each, "image": f"registry/{name}:v1", "env": env, "volumeMounts": mounts,
         "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1"}}}
        for each in ("app", "side")
    ]  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-{HASH}",
             "uid": f"r-{index}", "controller": True}  # fmt: skip
    meta = {"generateName": f"{name}-{HASH}-", "ownerReferences": [owner],
            "labels": {"app": name, "pod-template-hash": HASH}}  # fmt: skip
    request = {
        "uid": f"review-{index}", "operation": "CREATE", "namespace": namespace,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
                   "spec": {"containers": containers}},
        "oldObject": None,
    }  # fmt: skip
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode()


@contextmanager
def webhook(directory: Path, vpas: int, prometheus: str = "") -> Iterator[tuple[Program, int]]:
    """Run cluster and webhook; yields the latter and its port."""
    kubeconfig = directory / "kubeconfig"

    def said(program: Program) -> str:
        return program.log.read_text() if program.log.exists() else ""

    cluster = Program("cluster", [sys.executable, "-m", "tests.bench.vpa_cluster",
                                  f"--vpas={vpas}", f"--kubeconfig={kubeconfig}"],
                      directory / "cluster.log")  # fmt: skip
    with cluster:
        wait_until("the sandbox serves", lambda: "http" in said(cluster), 180, (cluster,))
        words = [sys.executable, "-m", "tests.bench.vpa_webhook",
                 str(kubeconfig), str(directory), prometheus]  # fmt: skip
        server = Program("webhook", words, directory / "webhook.log")
        with server:
            wait_until("the webhook is synced", lambda: "port " in said(server), 180, (server,))
            line = next(each for each in said(server).splitlines() if each.startswith("port "))
            yield server, int(line.split()[1])


def measure(figures: Figures, directory: Path) -> None:
    """Hold the webhook's p99 to the constant's."""
    bodies = [review(index) for index in range(0, VPAS, 7)]
    constant: list[float] = []
    decided: list[float] = []
    gc.collect()
    gc.freeze()
    with webhook(directory, VPAS) as (_, port):
        for turn in range(-1, TURNS):  # the first warms up
            for path, into in (("/constant", constant), ("/", decided)):
                took = asyncio.run(post(port, path, bodies, RATE, TURN_S))
                if turn >= 0:
                    into.append(p99(took) * 1000.0)
    figures.note(f"{VPAS:,} VPAs, {RATE:g} reviews/s; p99 ms by turns: constant "
                 f"{[round(each, 2) for each in constant]}, webhook "
                 f"{[round(each, 2) for each in decided]}")  # fmt: skip
    ratio = median(decided) / median(constant)
    figures.at_most("p99 of the webhook / of a constant", ratio, 3.0)
