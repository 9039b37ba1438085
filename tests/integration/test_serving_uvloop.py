"""What depends on the event loop's own TLS, once more on uvloop, which is what we run on."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from podscale.serving.logs import Verbosity, configure
from tests.integration import test_serving as on_asyncio
from tests.unit.serving.kit import Pki, ScriptedApi

Scenario = Callable[[Path, Pki, ScriptedApi], Awaitable[None]]


@pytest.mark.parametrize(
    "scenario",
    [
        on_asyncio.test_proxy_certificate_speaks_for_the_user_in_its_headers,
        on_asyncio.test_certificate_of_an_unknown_ca_ends_the_handshake,
        on_asyncio.test_a_ca_that_leaves_takes_open_connections_with_it,
        on_asyncio.test_a_client_that_hangs_up_cancels_its_request,
        on_asyncio.test_beyond_the_limit_requests_get_429,
        on_asyncio.test_pipelined_requests_are_answered_in_order,
        on_asyncio.test_a_public_route_takes_bodies_without_credentials,
        on_asyncio.test_slow_clients_are_given_up,
        on_asyncio.test_a_reader_that_stalls_does_not_hold_our_memory,
        on_asyncio.test_draining_fails_readiness_first_and_lets_requests_finish,
        on_asyncio.test_serving_certificate_changes_without_a_restart,
        on_asyncio.test_many_idle_connections_cost_nothing_but_themselves,
    ],
    ids=lambda scenario: scenario.__name__.removeprefix("test_"),
)
def test_on_uvloop(tmp_path: Path, scenario: Scenario) -> None:
    configure("json", Verbosity(), io.StringIO())

    async def run() -> None:
        async with asyncio.timeout(30):
            await scenario(tmp_path, Pki(), ScriptedApi())

    uvloop.run(run())
