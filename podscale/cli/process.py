"""The parts of the product in one process, with the page over them.

The demo runs them at a clock of its own.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

import structlog

from adapter import part as adapter_part
from podscale.cli import page
from podscale.cli.parts import KINDS
from podscale.process.compose import Composed, composed
from podscale.process.part import Flagged, Shared
from podscale.serving.apis.api import Route
from podscale.serving.monitoring.logs import Verbosity

log = structlog.get_logger(__name__)


def composed_with_page(
    flags: Flagged,
    verbosity: Verbosity,
    *,
    port: int | None = None,
    shows: page.PageChoice | None = None,
    is_launcher: bool = False,
    wall: Callable[[], float] = time.time,
    opened: Callable[[str], None] = lambda _url: None,
) -> AbstractAsyncContextManager[Composed]:
    """Run the parts that have flags while the block runs; see ``composed``.

    ``shows`` None: there is no page; else ``opened`` is called with its URL.
    """
    return composed(
        flags,
        KINDS,
        verbosity,
        open_reader=adapter_part.reader(),
        beside=None if shows is None else partial(_page, shows, opened),
        is_launcher=is_launcher,
        port=port,
        wall=wall,
    )


@asynccontextmanager
async def _page(
    shows: page.PageChoice, opened: Callable[[str], None], shared: Shared
) -> AsyncIterator[Sequence[Route]]:
    made = await asyncio.to_thread(page.page_over, shared, shows)
    async with page.on_loopback(made, shows) as url:
        log.info("page", url=url)
        opened(url)
        yield made.desk.routes()
