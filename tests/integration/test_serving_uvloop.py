"""What depends on the event loop's own TLS, once more on uvloop, which is what we run on."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from podscale.serving.monitoring.logs import Verbosity, configure
from tests.integration.serving import (
    test_access,
    test_answers,
    test_connections,
    test_handshakes,
    test_running,
)
from tests.unit.serving.kit import Pki, ScriptedApi

Scenario = Callable[[Path, Pki, ScriptedApi], Awaitable[None]]


@pytest.mark.parametrize(
    "scenario",
    [
        test_access.test_proxy_certificate_speaks_for_the_user_in_its_headers,
        test_access.test_certificate_of_an_unknown_ca_ends_the_handshake,
        test_access.test_a_ca_that_leaves_takes_open_connections_with_it,
        test_connections.test_a_client_that_hangs_up_cancels_its_request,
        test_answers.test_beyond_the_limit_requests_get_429,
        test_connections.test_pipelined_requests_are_answered_in_order,
        test_answers.test_a_public_route_takes_bodies_without_credentials,
        test_connections.test_slow_clients_are_given_up,
        test_connections.test_a_reader_that_stalls_does_not_hold_our_memory,
        test_running.test_draining_fails_readiness_first_and_lets_requests_finish,
        test_running.test_serving_certificate_changes_without_a_restart,
        test_handshakes.test_silent_strangers_make_room_for_who_speaks,
        test_handshakes.test_where_all_connections_speak_a_newcomer_is_turned_away,
        test_handshakes.test_a_handshake_under_way_holds_up_no_end,
        test_handshakes.test_what_tls_keeps_for_a_connection_is_bounded,
        test_connections.test_many_idle_connections_cost_nothing_but_themselves,
    ],
    ids=lambda scenario: scenario.__name__.removeprefix("test_"),
)
def test_on_uvloop(tmp_path: Path, scenario: Scenario) -> None:
    configure("json", Verbosity(), io.StringIO())

    async def run() -> None:
        async with asyncio.timeout(30):
            await scenario(tmp_path, Pki(), ScriptedApi())

    uvloop.run(run())
