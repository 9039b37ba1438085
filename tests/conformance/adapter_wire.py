"""The adapter as a server, in a thread with a loop of its own, and a client that shows bytes."""

import asyncio
import http.client
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from aiohttp import web

from adapter import flags as adapter_flags
from adapter.adapter import Adapter
from podscale.core.metrics import MetricsProvider
from podscale.serving import flags as serving_flags
from tests.conformance.adapter_world import (
    Authorities,
    ScriptedCluster,
    ScriptedPrometheus,
    kubeconfig,
)
from tests.kit.adapter import ServedAdapter, served_adapter

# The conditions of DESIGN.md's conformance row. Without TTL the authorization cache is cold
# for every row.
CONDITIONS = (
    "--coalescing=off",
    "--sample-timestamps=off",
    "--authorization-cluster-first=false",
    "--authorization-webhook-cache-authorized-ttl=0s",
    "--authorization-webhook-cache-unauthorized-ttl=0s",
)


class Answer(NamedTuple):
    """What came back, and what it caused upstream."""

    status: int
    content_type: str
    body: Any  # decoded JSON, or text
    headers: dict[str, str]
    calls: list[str]
    seconds: float


class Wire:
    """A running adapter and its world."""

    def __init__(
        self,
        served: ServedAdapter,
        cluster: ScriptedCluster,
        prometheus: ScriptedPrometheus,
        authorities: Authorities,
        loop: asyncio.AbstractEventLoop,
        config: dict[str, Any],
        server: str,
    ) -> None:
        self.server = server  # the cluster's URL
        self.config = config
        self.served = served
        self.cluster = cluster
        self.prometheus = prometheus
        self.port = served.server.port
        self._authorities = authorities
        self._loop = loop

    def ask(self, path: str, options: dict[str, Any] | None = None) -> Answer:
        """Send one request on a connection of its own."""
        options = options or {}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        certificate = options.get("cert")
        if certificate:
            context.load_cert_chain(self._authorities.certificates[certificate])
        headers = {"Accept": "application/json", "User-Agent": "cases"}
        headers |= options.get("headers") or {}
        token = options.get("token", "admin")
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self.cluster.calls.clear()
        self.prometheus.calls.clear()
        started = time.monotonic()
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context)
        try:
            connection.request(options.get("method", "GET"), path, headers=headers)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        content_type = response.headers.get("Content-Type", "")
        decoded: Any = body.decode()
        if content_type.startswith("application/json") and body:
            decoded = json.loads(body)
        calls = [*self.cluster.calls, *self.prometheus.calls]
        seconds = time.monotonic() - started
        return Answer(
            response.status, content_type, decoded, dict(response.headers), calls, seconds
        )

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine on the adapter's loop."""

        async def called() -> Any:
            return await work()

        return asyncio.run_coroutine_threadsafe(called(), self._loop).result(30)


def is_loaded(adapter: Adapter) -> bool:
    """Return whether pods are there and every rule has been listed, or have failed to be."""
    pods = adapter.objects.pods
    return (pods.is_synced or pods.is_refused) and adapter.relister.is_tried


@contextmanager
def wire(
    directory: Path,
    config: dict[str, Any],
    cluster: Callable[[Authorities], ScriptedCluster],
    prometheus: ScriptedPrometheus,
    *arguments: str,
    others: list[MetricsProvider] | None = None,
    until: Callable[[Adapter], bool] = is_loaded,
) -> Iterator[Wire]:
    """Run the adapter in front of a scripted world, with ``arguments`` beside what it needs.

    The block begins when ``until`` holds.
    """
    authorities = Authorities(directory)
    (directory / "rules.yaml").write_text(json.dumps(config))
    started: list[Wire] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    stopping: list[Callable[[], None]] = []

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        stopping.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with AsyncExitStack() as stack:
            scripted = cluster(authorities)
            api = await _listen(stack, scripted.app())
            (directory / "kubeconfig").write_text(kubeconfig(api))
            flags = serving_flags.parse(
                [
                    f"--config={directory / 'rules.yaml'}",
                    f"--prometheus-url={await _listen(stack, prometheus.app())}",
                    f"--lister-kubeconfig={directory / 'kubeconfig'}",
                    f"--cert-dir={directory / 'certificates'}",
                    "--bind-address=127.0.0.1",
                    *arguments,
                ],
                adapter_flags.TABLE,
            )
            assert not adapter_flags.problems(flags)
            served = await stack.enter_async_context(served_adapter(flags, others=others or []))
            adapter = served.adapter
            while not until(adapter):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            started.append(Wire(served, scripted, prometheus, authorities, loop, config, api))
            ready.set()
            await stop.wait()

    def thread() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            failed.append(error)
        finally:
            ready.set()

    worker = threading.Thread(target=thread, name="adapter")
    worker.start()
    try:
        assert ready.wait(30), "the adapter did not start"
        if failed:
            raise failed[0]
        yield started[0]
    finally:
        for stop in stopping:
            stop()
        worker.join(30)
    if failed:
        raise failed[0]


async def _listen(stack: AsyncExitStack, app: web.Application) -> str:
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}"
