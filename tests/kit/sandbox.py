"""The sandbox as a process of its own: an API server, and workloads where they are asked for.

Prints its URL, and below it that of the metrics page where workloads run.
"""

import argparse
import asyncio
import gc
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import yaml

from podscale.sandbox.server import SandboxCluster
from tests.kit.apiserver.server import FaultySandbox


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.kit.sandbox", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS")
    parser.add_argument("--rbac", action="store_true", help="enforce RBAC")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig here")
    parser.add_argument("--history", type=int, default=20_000, help="changes kept per resource")
    parser.add_argument("--bookmark-interval", type=float, default=60.0, help="seconds")
    parser.add_argument(
        "--nodes",
        type=int,
        default=0,
        help="run workloads on that many nodes; 0 runs the API server alone",
    )
    parser.add_argument("manifests", nargs="*", type=Path, help="YAML files to start with")
    return parser.parse_args()


async def _serve(arguments: argparse.Namespace) -> None:
    server = FaultySandbox(
        port=arguments.port,
        tls=arguments.tls,
        enforce_rbac=arguments.rbac,
        history=arguments.history,
        bookmark_interval_s=arguments.bookmark_interval,
    )
    for manifest in arguments.manifests:
        for content in yaml.safe_load_all(manifest.read_text()):
            if content:
                server.objects.put(content)
    # What is loaded stays: collecting it again and again would cost more than serving it.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with _running(server, arguments.nodes) as addresses:
        if arguments.kubeconfig:
            server.kubeconfig(arguments.kubeconfig)
        # Whoever started us waits for these lines.
        print(*addresses(), sep="\n", flush=True)
        await stopped.wait()


@asynccontextmanager
async def _running(server: FaultySandbox, nodes: int) -> AsyncIterator[Callable[[], list[str]]]:
    if not nodes:
        async with server:
            yield lambda: [server.url]
        return
    async with SandboxCluster(server, nodes=nodes) as cluster:
        yield lambda: [server.url, cluster.metrics_url]


if __name__ == "__main__":
    asyncio.run(_serve(_arguments()))
