"""The page over the parts of this process: what ``demo``, ``control`` and ``run`` open."""

import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from adapter.parts import Adapter
from hpa.part import Part as HpaPart
from podscale.core.metrics import MetricsProvider
from podscale.feed.feed import Feed
from podscale.page.feedhealth import FeedSource
from podscale.page.loopback import HOST, listening
from podscale.page.part import PERIOD_S, Page
from podscale.page.sources import Sources
from podscale.page.vpas import RecommendedVpas
from podscale.serving.flags import Flag
from vpa.decisions_api import SizingApi
from vpa.recommender.part import RecommenderPart
from vpa.updater.main import UpdaterPart

PORT = 8087

FLAGS = (
    Flag("page", "bool", False, "Serve the page: on the loopback without, elsewhere under "
         "/page/ of --secure-port with authentication."),
    Flag("page-port", "int", PORT, "Port of the page on 127.0.0.1; 0: any free one."),
)  # fmt: skip


class Choice(Struct, frozen=True):
    """How the page is shown."""

    port: int = PORT  # on the loopback; 0: any free one
    or_any: bool = False  # where the port is taken, another will do
    period_s: float = PERIOD_S  # real seconds between two looks at usage


class Running(Struct, frozen=True):
    """Parts as far as they run in this process."""

    hpa: HpaPart
    provider: MetricsProvider
    adapter: Adapter | None = None
    feed: Feed | None = None
    recommender: RecommenderPart | None = None
    updater: UpdaterPart | None = None


def page_over(running: Running, choice: Choice, wall: Callable[[], float] = time.time) -> Page:
    """Return a page over ``running``. Blocking: reads files."""
    vpas = feed = None
    if running.recommender is not None:
        recommender = running.recommender.recommender
        updater = running.updater.updater if running.updater is not None else None
        leads = running.recommender.is_leader
        vpas = RecommendedVpas(
            recommender, SizingApi(recommender, leads, updater=updater, wall=wall), leads
        )
    if running.feed is not None and running.adapter is not None:
        relister = running.adapter.relister
        feed = FeedSource(running.feed.stats, lambda: tuple(relister.states.values()))
    sources = Sources(
        running.hpa.controller.traces,
        vpas,
        running.hpa.stores.pods,
        running.provider,
        feed,
        running.hpa.is_leader,
    )
    return Page(sources, wall=wall, period_s=choice.period_s)


@asynccontextmanager
async def on_loopback(page: Page, choice: Choice) -> AsyncIterator[str]:
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
