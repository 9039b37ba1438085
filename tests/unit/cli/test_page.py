"""A port that is taken is told with the flag that chooses another; a page costs no history."""

import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from podscale.cli.page import PageChoice, on_loopback, page_over
from podscale.page.part import PagePart, PageRequests
from podscale.serving.flags import FlagError, parse
from podscale.serving.http.server import HttpServer
from tests.unit.vpa.test_stores import API, NoKinds
from vpa.admission import flags as admission_flags
from vpa.recommender.flags import Options
from vpa.recommender.part import RecommenderPart
from vpa.stores import VpaStores


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield int(listening.getsockname()[1])


class Still:
    """A page that nobody looks at."""

    desk = cast(PageRequests, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        yield


async def test_the_pages_port_is_told_by_its_own_flag(taken: int) -> None:
    page = cast(PagePart, Still())
    with pytest.raises(OSError, match=rf"127.0.0.1:{taken}: address already.*--page-port"):
        async with on_loopback(page, PageChoice(taken)):
            pass
    async with on_loopback(page, PageChoice(taken, or_any=True)) as url:
        assert f":{taken}/" not in url


async def test_the_servers_port_is_told_by_its_flags(taken: int) -> None:
    async def nobody(*_: Any, **__: Any) -> Any:
        raise AssertionError

    async with HttpServer(nobody) as server:
        with pytest.raises(OSError, match=rf":{taken}: address already in use .*--secure-port"):
            await server.listen("127.0.0.1", taken, None)


def test_a_webhook_without_certificates_says_where_they_may_come_from() -> None:
    flags = parse(["--tls-cert-file=none.pem"], admission_flags.TABLE)
    with pytest.raises(FlagError, match=r"no none\.pem and .*--service=NAMESPACE/NAME"):
        admission_flags.serving(flags)


def test_the_page_keeps_no_second_history_of_what_the_api_of_decisions_tells() -> None:
    stores = VpaStores(API, NoKinds())
    provider: Any = None  # nothing is measured
    part = RecommenderPart(API, stores, provider, Options(), CollectorRegistry(), lease=None)
    assert part.groups
    shared: Any = SimpleNamespace(parts={"recommender": part}, readers=[], wall=time.time)
    page_over(shared, PageChoice())
    assert len([each for each in stores._listeners if "SizingApi" in repr(each)]) == 1
