"""The webhook as a process, with a constant answer beside it, and history on demand.

``/`` is the webhook, ``/constant`` the same server with nothing to decide, ``/history?N`` reads
N days into a recommender's model in this process. Prints its
port when its watches are synced.
"""

import asyncio
import gc
import sys
from typing import Any

from podscale.feed.options import PrometheusOptions
from podscale.kube.client.api import user_agent
from podscale.kube.client.connect import connect
from podscale.kube.discovery import ApiDiscovery
from podscale.process.clusters import discover
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse, Route
from podscale.serving.flags import parse
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity, configure
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.running import Clusters, running
from tests.bench.vpa_past import CONTAINERS, END_S, STEP_S, queries
from vpa import flags as common
from vpa.admission import flags as flags_
from vpa.admission.webhook import Webhook
from vpa.model.cluster import ClusterModel
from vpa.recommender.history.usage_history import HistorySpan, LoadedHistory, UsageHistory, load
from vpa.stores import VpaStores

CONSTANT = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": {"uid": "constant", "allowed": True}}  # fmt: skip
_LOOK_S = 20.0


class Nobody:
    """Counts nothing."""

    def admitted(self, resource: str, outcome: str, seconds: float) -> None: ...


def constant(request: ApiRequest) -> Answered:
    return ApiResponse(value=CONSTANT)


class History:
    """Reads history into a model, one at a time; answers what came of it, or null while it
    reads.
    """

    def __init__(self, prometheus: str) -> None:
        self._prometheus = prometheus
        self._reading: asyncio.Task[LoadedHistory] | None = None

    async def handle(self, request: ApiRequest) -> Answered:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(float(request.body or b"8")))
        done, _ = await asyncio.wait({self._reading}, timeout=_LOOK_S)
        if not done:
            return ApiResponse(value=None)
        found, self._reading = self._reading.result(), None
        value: dict[str, Any] = {"containers": found.containers, "samples": found.samples}
        return ApiResponse(value=value)

    async def _read(self, days: float) -> LoadedHistory:
        return await load(
            UsageHistory(PrometheusOptions(url=self._prometheus), *queries()),
            HistorySpan(days * 86400.0, STEP_S), ClusterModel(), END_S,
            lambda _, pod: {"app": pod.rpartition("-")[0]}, lambda _: None,
        )  # fmt: skip


async def _serve(kubeconfig: str, directory: str, prometheus: str) -> None:
    flags = parse(
        [f"--kubeconfig={kubeconfig}", "--bind-address=127.0.0.1", "--port=0", "--address=",
         "--register-webhook=false",
         f"--cert-dir={directory}", f"--client-ca-file={directory}/absent"], flags_.TABLE,
    )  # fmt: skip
    verbosity = Verbosity(0)
    configure("console", verbosity)
    async with connect(common.target(flags), user_agent=user_agent("admission")) as api:
        discovery, metrics = ApiDiscovery(api), SelfMetrics()
        await discover(discovery)
        stores = VpaStores(api, discovery, needs_pods=False)
        webhook = Webhook(
            stores, Nobody().admitted, boost=flags_.boost(flags), gates=flags_.gates(flags),
        )  # fmt: skip
        routes = [
            Route("/", webhook.handle, methods=("POST",), is_public=True),
            Route("/constant", constant, methods=("POST",), is_public=True),
            Route("/history", History(prometheus).handle, methods=("POST",), is_public=True),
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(stores.run())
            async with running(
                flags_.serving(flags), clusters=Clusters(), routes=routes, health=Health(),
                metrics=metrics, verbosity=verbosity, port=0,
            ) as server:  # fmt: skip
                await stores.wait_synced()
                gc.collect()
                gc.freeze()
                print("port", server.port, len(stores.vpas), CONTAINERS, flush=True)
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:4]))
