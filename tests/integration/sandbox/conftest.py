"""A sandbox, and a client of it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.integration.sandbox.client import Client
from tests.kit.apiserver.server import FaultySandbox


@pytest.fixture
async def server() -> AsyncIterator[FaultySandbox]:
    async with FaultySandbox(bookmark_interval_s=0.2) as running:
        yield running


@pytest.fixture
async def client(server: FaultySandbox) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)
