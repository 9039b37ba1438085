"""extension-apiserver-authentication followed over a real watch, into a real handshake."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import parse
from podscale.serving.monitoring.health import Health
from podscale.serving.monitoring.logs import Verbosity, configure
from podscale.serving.monitoring.selfmetrics import SelfMetrics
from podscale.serving.running import Clusters, running
from tests.unit.serving.kit import Pki, Shop, wire
from tests.unit.serving.test_trust import PATH, config_map

COLLECTION = PATH.rpartition("/")[0]
PODS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/rps"
HPA = {"X_Remote_User": "hpa", "X_Remote_Group": "system:serviceaccounts"}


class ApiServer:
    """One ConfigMap that can change, and reviews that allow everybody."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.changes: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.reviewed: list[dict[str, Any]] = []
        self.watching = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == PATH:
            return web.json_response(self._stored())
        if request.path == COLLECTION:
            assert request.query["fieldSelector"].startswith("metadata.name=extension-")
            if request.query.get("watch"):
                return await self._watch(request)
            listed = {"metadata": {"resourceVersion": "1"}, "items": [self._stored()]}
            return web.json_response({"kind": "ConfigMapList", "apiVersion": "v1", **listed})
        if request.path.endswith("/subjectaccessreviews"):
            self.reviewed.append((await request.json())["spec"])
            return web.json_response({"status": {"allowed": True}}, status=201)
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    def _stored(self) -> dict[str, Any]:
        self.config["metadata"].setdefault("resourceVersion", "1")
        return {"kind": "ConfigMap", "apiVersion": "v1", **self.config}

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watching.set()
        version = 1
        while (changed := await self.changes.get()) is not None:
            version += 1
            changed["metadata"]["resourceVersion"] = str(version)
            changed = {"kind": "ConfigMap", "apiVersion": "v1", **changed}
            event = json.dumps({"type": "MODIFIED", "object": changed}) + "\n"
            await response.write(event.encode())
        return response


@asynccontextmanager
async def listening(api: ApiServer) -> AsyncIterator[str]:
    server = web.Server(api)
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        api.changes.put_nowait(None)
        await server.shutdown(1)


async def test_a_new_front_proxy_ca_is_believed_without_a_restart(tmp_path: Path) -> None:
    configure("json", Verbosity(), io.StringIO())
    old, new = Pki(), Pki()
    pair = old.server()
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    flags = parse(
        [
            "--bind-address=127.0.0.1",
            f"--tls-cert-file={tmp_path / 'tls.crt'}",
            f"--tls-private-key-file={tmp_path / 'tls.key'}",
        ],
        API_SERVER,
    )
    api_server = ApiServer(config_map(old))
    async with (
        listening(api_server) as url,
        connect(ApiServerTarget(server=url), user_agent="podscale-test") as api,
        running(
            flags,
            clusters=Clusters(api, api),
            groups=[Shop()],
            health=Health(),
            metrics=SelfMetrics(),
            verbosity=Verbosity(),
            port=0,
        ) as server,
    ):
        async with wire(server.port, old.client(old.proxy())) as client:
            assert (await client.get(PODS, **HPA)).code == 200
            await asyncio.wait_for(api_server.watching.wait(), 10)
            changed = asyncio.Event()
            server.trust.listeners.append(lambda _: changed.set())
            await api_server.changes.put(config_map(new))
            await asyncio.wait_for(changed.wait(), 10)
            assert (await client.get(PODS, **HPA)).code == 401
        context = old.client(new.proxy())
        async with wire(server.port, context) as client:
            assert (await client.get(PODS, **HPA)).code == 200
    assert {review["user"] for review in api_server.reviewed} == {"hpa"}
