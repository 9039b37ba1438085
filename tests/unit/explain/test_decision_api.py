"""Decisions, which only a leader has, and how many long lists of them it makes at a time."""

import asyncio
import time
from typing import Any

from podscale.explain.decision_api import DecisionApi, DecisionKind
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info

LIST = "/apis/example.io/v1/things"


def request(path: str = LIST) -> ApiRequest:
    info = request_info("GET", path, {})
    return ApiRequest("GET", path, info, {}, {}, b"", ANONYMOUS_USER, Media(), 0.0)


async def test_many_who_list_wait_for_each_other_and_one_object_waits_for_nobody() -> None:
    making = most = 0
    go_on = asyncio.Event()

    async def answer(_: ApiRequest) -> Answered:
        nonlocal making, most
        making += 1
        most = max(most, making)
        await go_on.wait()
        making -= 1
        return ApiResponse(value={})

    resource = ApiResource("things", "thing", True, "Thing", ("get", "list"))

    class Things(DecisionApi[Any]):
        _one = _list = lambda _self, request: answer(request)
        _decided = _known = _earlier = _known_since = _body = _cells = None

    kind = DecisionKind("example.io", "v1", resource, ())
    api = Things(kind, lambda: True, refusal="", wall=time.time)

    async def ask(path: str) -> Answered:
        found = api.handle(request(path))
        assert not isinstance(found, Answered)
        return await found

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(ask(LIST))
        given_up = group.create_task(ask(LIST))
        await asyncio.sleep(0.01)
        lists = making
        group.create_task(ask("/apis/example.io/v1/namespaces/shop/things/web"))
        await asyncio.sleep(0.01)
        assert making == lists + 1
        given_up.cancel()  # as at its deadline; nothing is left un-awaited
        go_on.set()
    assert lists == 2
    assert most == 3
