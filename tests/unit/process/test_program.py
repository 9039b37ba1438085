"""What a program says and returns when it ends by itself."""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import structlog

from podscale.kube.client.errors import ApiUnreachable, KubeError, NotConfigured
from podscale.process.program import Serve, run
from podscale.serving.flag_table import API_SERVER
from podscale.serving.flags import FlagError, Flags, parse
from podscale.serving.monitoring.logs import Verbosity

FLAGS = parse([], API_SERVER)


@pytest.fixture(autouse=True)
async def as_before() -> AsyncIterator[None]:
    """What ``run`` sets for its process is unset."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)


class Served:
    def __init__(self) -> None:
        self.is_stopped = False

    async def stop(self) -> None:
        self.is_stopped = True


def failing_at_start(error: Exception) -> Serve:
    @asynccontextmanager
    async def serve(_flags: Flags, _verbosity: Verbosity) -> AsyncIterator[Served]:
        async with asyncio.TaskGroup():
            raise error
        yield Served()

    return serve


def failing_later(error: Exception) -> Serve:
    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise error

    @asynccontextmanager
    async def serve(_flags: Flags, _verbosity: Verbosity) -> AsyncIterator[Served]:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            yield Served()

    return serve


@pytest.mark.parametrize(("error", "code"), [
    pytest.param(FlagError("--x is not"), 2, id="a-flag"),
    pytest.param(NotConfigured("no kubeconfig"), 2, id="no-kubeconfig"),
    pytest.param(ApiUnreachable("refused"), 1, id="no-api-server"),
    pytest.param(OSError("in use"), 1, id="a-port"),
])  # fmt: skip
async def test_what_must_be_changed_first_is_told_from_what_may_pass(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(FLAGS, [], failing_at_start(error)) == code
    said = "".join(capsys.readouterr())
    assert str(error) in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "error",
    [ValueError("of a task"), KubeError("odd"), NotConfigured("now"), FlagError("of no flag")],
)
async def test_an_error_while_running_says_where_it_was_and_is_no_failed_start(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(FLAGS, [], failing_later(error)) == 1
    said = "".join(capsys.readouterr())
    assert "cannot start" not in said
    assert "in fail" in said  # the function that raised
    assert str(error) in said


async def test_a_signal_ends_an_endless_start_and_stops_what_runs_first() -> None:
    started, served = asyncio.Event(), Served()

    @asynccontextmanager
    async def endless(_flags: Flags, _verbosity: Verbosity) -> AsyncIterator[Served]:
        started.set()
        await asyncio.Event().wait()
        yield served

    @asynccontextmanager
    async def serve(_flags: Flags, _verbosity: Verbosity) -> AsyncIterator[Served]:
        started.set()
        yield served

    for which, is_stopped in ((endless, False), (serve, True)):
        started.clear()
        running = asyncio.create_task(run(FLAGS, [], which))
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0
        assert served.is_stopped is is_stopped
