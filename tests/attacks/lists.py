"""A Prometheus whose list of series somebody has written on purpose, and what a relist of it costs.

It serves from a thread, so that neither its turns nor its bytes count as the adapter's.
"""

import asyncio
import json
import threading
import time
import tracemalloc
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeVar

from adapter.discovery.relist import Relister, RelistOptions
from adapter.sources.source_router import OneSource
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from tests.unit.adapter.world import rules

T = TypeVar("T")
Labels = Mapping[str, str]

RULES = """
rules:
- seriesQuery: '{__name__=~"^http_.*|^queue_.*"}'
  resources: {template: <<.Resource>>}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
# Sorted behind all that the attacks send, as Prometheus sorts.
HONEST: tuple[Labels, ...] = (
    {"__name__": "http_requests", "deployment": "web", "namespace": "shop", "pod": "web-1"},
    {"__name__": "queue_depth", "namespace": "shop", "service": "queue"},
)
EXPOSED = {
    *(("http_requests", kind) for kind in ("deployments.apps", "namespaces", "pods")),
    *(("queue_depth", kind) for kind in ("namespaces", "services")),
}


def answer(hostile: Iterable[Labels]) -> bytes:
    """Return the series as Prometheus writes them, the honest ones last."""
    entries = [*hostile, *HONEST]
    return json.dumps({"status": "success", "data": entries}, separators=(",", ":")).encode()


@contextmanager
def prometheus(body: bytes) -> Iterator[str]:
    """Serve ``body`` for every request; the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


async def relisted(url: str) -> Relister:
    """Return the lists after one relist."""
    compiled = rules(RULES)
    options = PrometheusOptions(url=url, series_deadline_s=120.0)
    async with PrometheusClient(options) as client:
        relister = Relister(OneSource(client), compiled, RelistOptions())
        await relister.relist()
        return relister


def exposed(relister: Relister) -> set[tuple[str, str]]:
    """Return metric and kind of all that is listed."""
    return {(metric, kind) for kind, metric in relister.custom.sources}


async def grown_bytes(work: Coroutine[None, None, object]) -> int:
    """Return how far the memory grew at most while ``work`` was done."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await work
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


async def cpu_s(work: Coroutine[None, None, object]) -> float:
    """Return the CPU time of this thread for ``work``."""
    before = time.thread_time()
    await work
    return time.thread_time() - before


async def longest_turn_s(work: Coroutine[None, None, T]) -> tuple[float, T]:
    """Return the longest time that nobody else had a turn of the loop, in CPU time."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watcher = asyncio.create_task(watch())
    try:
        done = await work
    finally:
        watcher.cancel()
    return longest, done
