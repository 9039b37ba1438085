"""Usage of nodes as load-watcher tells it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from podscale.nodes.apis import NodeApis
from podscale.serving.apis.api import ApiRequest, ApiResponse, Media
from podscale.serving.auth.user import ANONYMOUS_USER
from podscale.serving.request_info import request_info
from podscale.serving.status import Status
from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import NOW, Rounds


def apis(rounds: Rounds, wall: Callable[[], float]) -> NodeApis:
    return NodeApis(rounds.rounds, rounds.fleet, None, stale_s=600, wall=wall)  # type: ignore


async def answer_of(watcher: NodeApis, path: str, **query: str) -> ApiResponse | Status:
    values = {key: [value] for key, value in query.items()}
    request = ApiRequest("GET", path, request_info("GET", path, values), values, {}, b"",
                         ANONYMOUS_USER, Media(), 0.0)  # fmt: skip
    route = watcher.routes()[path.startswith("/watcher/")]
    answer = route.handler(request)
    return await answer if isinstance(answer, Awaitable) else answer


async def get(watcher: NodeApis, path: str, **query: str) -> Any:
    answer = await answer_of(watcher, path, **query)
    return answer if isinstance(answer, Status) else msgspec.json.decode(answer.body)


@pytest.fixture
def rounds() -> Rounds:
    fleet = Fleet()
    for name in ("a", "b", "silent"):
        fleet.node(name)
    fleet.usage = {"a": (2.0, 8 * GI), "b": (5.0, GI)}
    return Rounds(fleet)


async def test_percent_of_capacity_in_windows(rounds: Rounds) -> None:
    await rounds.at(0)
    rounds.fleet.usage["a"] = (4.0, 8 * GI)
    await rounds.at(400)
    watcher = apis(rounds, lambda: NOW + 400)
    got = await get(watcher, "/watcher")
    assert got["window"] == {"duration": "15m", "start": NOW - 500, "end": NOW + 400}
    assert (got["timestamp"], got["source"]) == (NOW + 400, "podscale")
    nodes = got["data"]["NodeMetricsMap"]
    assert nodes.keys() == {"a", "b"}  # what was not measured is not told as 0
    assert [(m["type"], m["operator"], m["rollup"], m["value"]) for m in nodes["a"]["metrics"]] == [
        ("CPU", "AVG", "15m", 30.0), ("CPU", "STD", "15m", 10.0), ("CPU", "Latest", "15m", 40.0),
        ("Memory", "AVG", "15m", 25.0), ("Memory", "STD", "15m", 0.0),
        ("Memory", "Latest", "15m", 25.0),
    ]  # fmt: skip
    recent = await get(watcher, "/watcher", window="5m")
    assert recent["data"]["NodeMetricsMap"]["a"]["metrics"][0]["value"] == 40.0


async def test_one_node_in_either_way_of_asking(rounds: Rounds) -> None:
    await rounds.at(0)
    watcher = apis(rounds, lambda: NOW)
    for got in (await get(watcher, "/watcher/b"), await get(watcher, "/watcher", host="b")):
        assert got["data"]["NodeMetricsMap"].keys() == {"b"}
    assert (await get(watcher, "/watcher/silent"))["data"]["NodeMetricsMap"] == {}
    assert (await get(watcher, "/watcher/gone")).code == 404


async def test_what_cannot_be_answered(rounds: Rounds) -> None:
    watcher = apis(rounds, lambda: NOW)
    assert (await get(watcher, "/watcher")).code == 503
    assert (await get(watcher, "/watcher", window="1h")).code == 400


async def test_what_was_measured_before_the_window_is_not_told(rounds: Rounds) -> None:
    await rounds.at(0)
    rounds.fleet.is_silent = True
    watcher = apis(rounds, lambda: rounds.now)
    await rounds.at(400)
    assert (await get(watcher, "/watcher"))["data"]["NodeMetricsMap"].keys() == {"a", "b"}
    for path in ("/watcher", "/watcher/a"):
        assert (await get(watcher, path, window="5m"))["data"]["NodeMetricsMap"] == {}
    await rounds.at(901)
    assert (await get(watcher, "/watcher"))["data"]["NodeMetricsMap"] == {}


async def test_an_answer_grows_old_while_rounds_decide_nothing(rounds: Rounds) -> None:
    await rounds.at(0)
    watcher = apis(rounds, lambda: rounds.now)
    assert (await get(watcher, "/watcher"))["data"]["NodeMetricsMap"]
    rounds.now += 901  # and no round: the watches are behind
    assert (await get(watcher, "/watcher"))["data"]["NodeMetricsMap"] == {}


async def test_readers_of_one_round_and_window_share_the_bytes_of_the_answer(
    rounds: Rounds,
) -> None:
    await rounds.at(0)
    watcher = apis(rounds, lambda: rounds.now)
    away = asyncio.create_task(answer_of(watcher, "/watcher"))
    await asyncio.sleep(0)
    away.cancel()  # who leaves takes the answer from nobody
    answers = await asyncio.gather(*[answer_of(watcher, "/watcher") for _ in range(20)])
    answers += [await answer_of(watcher, "/watcher")]
    bodies = {id(each.body): each.body for each in answers if isinstance(each, ApiResponse)}
    (first,) = bodies.values()
    assert first
    await answer_of(watcher, "/watcher", window="5m")
    assert len(watcher._bodies) == 2
    await rounds.at(15)
    answer = await answer_of(watcher, "/watcher")
    assert isinstance(answer, ApiResponse)
    assert answer.body != first
    assert len(watcher._bodies) == 1  # of the newest round only
