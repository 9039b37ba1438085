"""The sandbox answers as the real API server does."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.plane import Plane
from tests.integration.sandbox_contract import Send, play
from tests.integration.sandbox_sending import sender
from tests.kit.apiserver.server import FaultySandbox


@pytest.fixture
def sandbox() -> Iterator[FaultySandbox]:
    """A sandbox on a loop of its own: the plane's client blocks."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> FaultySandbox:
        return await FaultySandbox(enforce_rbac=True).__aenter__()

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def real(plane: Plane) -> Send:
    def send(method: str, path: str, body: object, headers: Mapping[str, str]) -> tuple[int, Any]:
        answer = plane.admin.request(method, path, body, headers)
        try:
            return answer.status, answer.body
        except json.JSONDecodeError:
            return answer.status, answer.raw.decode()

    return send


def test_the_sandbox_answers_as_the_real_api_server(plane: Plane, sandbox: FaultySandbox) -> None:
    with plane.namespace() as namespace:
        expected = play(real(plane), namespace)
    sandbox.objects.put({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "its-own"}})
    got = play(sender(sandbox), "its-own")
    different = [pair for pair in zip(expected, got, strict=True) if pair[0] != pair[1]]
    assert different == []
