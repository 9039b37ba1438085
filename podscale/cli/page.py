"""The parts of the product in one process, with the page over them.

The demo runs them at a clock of its own.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import structlog
from msgspec import Struct, structs

from adapter import part as adapter_part
from adapter.adapter import Adapter
from hpa.part import HpaPart
from podscale.cli.parts import KINDS
from podscale.nodes.part import NodesPart
from podscale.page.health import FeedSource
from podscale.page.part import HOST, PERIOD_S, PagePart, listening
from podscale.page.sampler import PageSources
from podscale.process.compose import Composed, composed
from podscale.process.part import Flagged, Kinds, Shared
from podscale.serving.apis.api import Route
from podscale.serving.flags import Flag
from podscale.serving.monitoring.logs import Verbosity
from vpa.recommender.part import RecommenderPart

log = structlog.get_logger(__name__)

PORT = 8087

FLAGS = (
    Flag("page", "bool", False, "Serve the web page: on localhost without authentication, or at "
         "/page/ on --secure-port with it."),
    Flag("page-port", "int", PORT, "Port of the page on 127.0.0.1; 0: any free one."),
)  # fmt: skip


class PageChoice(Struct, frozen=True):
    """How the page is shown."""

    port: int = PORT  # on the loopback; 0: any free one
    or_any: bool = False  # where the port is taken, another will do
    period_s: float = PERIOD_S  # real seconds between two looks at usage


def composed_with_page(
    flags: Flagged,
    verbosity: Verbosity,
    *,
    kinds: Kinds = KINDS,
    port: int | None = None,
    shows: PageChoice | None = None,
    is_launcher: bool = False,
    wall: Callable[[], float] = time.time,
    opened: Callable[[str], None] = lambda _url: None,
) -> AbstractAsyncContextManager[Composed]:
    """Run the parts that have flags while the block runs; see ``composed``.

    ``shows`` None: there is no page; else ``opened`` is called with its URL.
    """
    beside = None if shows is None else partial(_page, shows, opened)
    return composed(flags, kinds, verbosity, open_reader=adapter_part.reader(), beside=beside,
                    is_launcher=is_launcher, port=port, wall=wall)  # fmt: skip


@asynccontextmanager
async def _page(
    shows: PageChoice, opened: Callable[[str], None], shared: Shared
) -> AsyncIterator[Sequence[Route]]:
    made = await asyncio.to_thread(page_over, shared, shows)
    async with on_loopback(made, shows) as url:
        log.info("page", url=url)
        opened(url)
        yield made.desk.routes()


def page_over(shared: Shared, choice: PageChoice) -> PagePart:
    """Return a page over the parts of this process. Blocking: reads files."""
    hpa, recommender, nodes = (shared.parts.get(name) for name in ("hpa", "recommender", "nodes"))
    vpas = feed = None
    if isinstance(recommender, RecommenderPart):
        vpas = recommender.decisions
    reader = next(iter(shared.readers), None)
    if isinstance(reader, Adapter):
        adapter = reader
        feed = FeedSource(
            adapter.feed.stats,
            lambda: tuple(adapter.relister.states.values()),
            lambda: adapter.rules_problem,
            adapter.feed.outage,
        )
    sources = PageSources(vpas=vpas, feed=feed)
    if isinstance(nodes, NodesPart):
        rounds = nodes.rounds
        sources = structs.replace(sources, nodes=lambda: rounds.decided, is_leader=nodes.is_leader)
    if isinstance(hpa, HpaPart):
        sources = structs.replace(
            sources, traces=hpa.controller.traces, pods=hpa.stores.pods,
            provider=shared.source(is_feed=True), is_leader=hpa.is_leader,
        )  # fmt: skip
    return PagePart(sources, wall=shared.wall, period_s=choice.period_s)


@asynccontextmanager
async def on_loopback(page: PagePart, choice: PageChoice) -> AsyncIterator[str]:
    """Follow the parts and serve while the block runs; yields the URL.

    Raises OSError where the port is taken, unless any other will do.
    """
    port = choice.port
    if _is_taken(port):
        if not choice.or_any:
            raise OSError(
                f"cannot listen on {HOST}:{port}: address already in use (--page-port chooses "
                "another, 0 any free one)"
            )
        port = 0
    async with page.running(), listening(page.desk, port) as url:
        yield url


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False
