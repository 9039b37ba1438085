"""A sandbox, and a client of it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from podscale.sandbox.server import SandboxServer
from tests.integration.sandbox.client import Client


@pytest.fixture
async def server() -> AsyncIterator[SandboxServer]:
    async with SandboxServer(bookmark_interval_s=0.2) as running:
        yield running


@pytest.fixture
async def client(server: SandboxServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)
