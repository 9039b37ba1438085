"""One scale endpoint that hangs keeps nobody waiting."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from podscale.kube.client.errors import ServerFailed
from podscale.kube.client.resource import Resource
from vpa.scale_cache import ScaleCache

WIDGETS = Resource("example.com", "v1", "widgets", "Widget")
GADGETS = Resource("example.com", "v1", "gadgets", "Gadget")
VERSION = "example.com/v1"
TIMEOUT_S = 0.2


class Kinds:
    async def for_kind(self, kind: str, group: str, version: str = "") -> tuple[Resource, ...]:
        return (WIDGETS,) if kind == "Widget" else (GADGETS,)


class Endpoint:
    """Answers scales, hangs or fails by plural."""

    def __init__(self) -> None:
        self.hangs: set[str] = set()
        self.error: Exception | None = None
        self.delay_s = 0.0
        self.asked: list[str] = []
        self.at_once = self.most_at_once = 0

    async def request(self, method: str, path: str, **_more: Any) -> Any:
        self.asked.append(path)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if any(plural in path for plural in self.hangs):
                await asyncio.Event().wait()
            await asyncio.sleep(self.delay_s)
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error
        meta = {"name": "a", "namespace": "shop"}
        status = {"replicas": 3, "selector": "app=web"}
        body = {"metadata": meta, "spec": {"replicas": 3}, "status": status}
        return SimpleNamespace(body=json.dumps(body).encode())


class World:
    def __init__(self) -> None:
        self.now = 1000.0
        self.endpoint = Endpoint()
        api: Any = self.endpoint
        self.scales = ScaleCache(api, Kinds(), timeout_s=TIMEOUT_S, clock=lambda: self.now)

    async def get(self, name: str, kind: str = "Widget", **more: Any) -> Any:
        return await self.scales.get("shop", VERSION, kind, name, **more)

    async def timed(self, name: str, kind: str = "Widget", **more: Any) -> tuple[Any, float]:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        found = await self.get(name, kind, **more)
        return found, loop.time() - begun


@pytest.fixture
async def world() -> Any:
    made = World()
    yield made
    await made.scales.stop()


async def test_a_known_scale_is_answered_at_once_and_asked_again_beside(world: World) -> None:
    first = await world.get("a")
    world.now += 700.0
    world.endpoint.delay_s = 0.05
    found, took_s = await world.timed("a")
    assert found is first
    assert took_s < 0.04
    await asyncio.sleep(0.1)
    assert (await world.get("a")).at == 1700.0
    assert len(world.endpoint.asked) == 2


async def test_a_known_scale_whose_endpoint_hangs_is_still_known_and_seldom_asked(
    world: World,
) -> None:
    first = await world.get("a")
    world.now += 700.0
    world.endpoint.hangs = {"widgets"}
    for _ in range(20):
        found, took_s = await world.timed("a")
        assert found is first
        assert took_s < TIMEOUT_S / 4
    await asyncio.sleep(TIMEOUT_S * 1.5)
    for _ in range(20):
        assert await world.get("a") is first
    assert len(world.endpoint.asked) == 2
    world.now += 5.1
    assert await world.get("a", waits=True) is first
    await asyncio.sleep(0)
    assert len(world.endpoint.asked) == 3


async def test_unknown_scales_that_hang_cost_one_deadline_for_all_and_other_kinds_none(
    world: World,
) -> None:
    world.endpoint.hangs = {"widgets"}
    names = [f"w{number}" for number in range(20)]
    for name in names:
        world.scales.begin("shop", VERSION, "Widget", name)
    found, took_s = await world.timed("g", "Gadget")
    assert found.scale is not None
    assert took_s < TIMEOUT_S / 2
    begun = asyncio.get_running_loop().time()
    answers = [await world.get(name) for name in names]
    assert asyncio.get_running_loop().time() - begun < TIMEOUT_S * 2
    assert all(each.scale is None and not each.is_answered for each in answers)
    assert world.endpoint.most_at_once <= 5


async def test_who_gives_up_waiting_leaves_the_question_asked(world: World) -> None:
    world.endpoint.delay_s = 0.1
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await world.get("a")
    await asyncio.sleep(0.15)
    found, took_s = await world.timed("a")
    assert found.scale is not None
    assert took_s < 0.05
    assert len(world.endpoint.asked) == 1


async def test_a_failure_is_asked_again_after_a_pause_that_doubles(world: World) -> None:
    world.endpoint.error = ServerFailed(500, "InternalError", "no")
    asked = []
    for _ in range(30):
        found = await world.get("a")
        assert not found.is_answered
        asked.append(len(world.endpoint.asked))
        world.now += 1.0
    assert asked[-1] == 3  # at 0, 5 and 15 s
    world.endpoint.error = None
    world.now += 60.0
    assert (await world.get("a")).scale is not None


async def test_an_old_scale_is_waited_for(world: World) -> None:
    await world.get("a")
    world.now += 4000.0
    world.endpoint.delay_s = 0.05
    assert (await world.get("a")).at == 5000.0


async def test_who_disturbs_pods_waits_for_a_fresh_size(world: World) -> None:
    await world.get("a")
    world.now += 30.0
    world.endpoint.delay_s = 0.05
    assert (await world.get("a", fresh_s=20.0)).at == 1000.0
    await asyncio.sleep(0.1)
    world.now += 30.0
    assert (await world.get("a", fresh_s=20.0, waits=True)).at == 1060.0


async def test_an_object_that_hangs_keeps_no_other_of_its_kind_from_being_known(
    world: World,
) -> None:
    world.endpoint.hangs = {"/bad/"}
    await world.get("bad")
    world.endpoint.delay_s = 0.05
    found, _ = await world.timed("a", patience_s=0.5)
    assert found.scale is not None, "while the kind is slow"
    await world.get("bad", patience_s=0.1)
    assert (await world.get("b")).scale is not None, "the kind has answered"


async def test_many_objects_that_hang_leave_places_to_the_others_of_their_kind(
    world: World,
) -> None:
    world.endpoint.hangs = {"/bad"}
    bad = [f"bad{number}" for number in range(6)]
    for name in bad:
        world.scales.begin("shop", VERSION, "Widget", name)
    await asyncio.sleep(TIMEOUT_S * 3)  # all have hung once
    world.now += 6.0
    for name in bad:
        world.scales.begin("shop", VERSION, "Widget", name)
    await asyncio.sleep(TIMEOUT_S / 4)
    assert world.endpoint.at_once == 2
    for name in ("a", "b", "c"):
        found, took_s = await world.timed(name, patience_s=TIMEOUT_S)
        assert found.scale is not None
        assert took_s < TIMEOUT_S / 4


async def test_what_hung_is_waited_for_by_the_patient_only(world: World) -> None:
    world.endpoint.hangs = {"/bad/"}
    await world.get("bad")
    await world.get("a")
    world.now += 6.0
    _, took_s = await world.timed("bad")
    assert took_s < TIMEOUT_S / 4
    _, took_s = await world.timed("bad", patience_s=TIMEOUT_S / 2)
    assert TIMEOUT_S / 4 < took_s < TIMEOUT_S
    await asyncio.sleep(TIMEOUT_S)
    world.endpoint.hangs = set()
    world.now += 200.0
    assert (await world.get("bad")).scale is not None, "long ago is as never"


async def test_kinds_that_are_only_named_leave_no_places(world: World) -> None:
    for number in range(50):
        await world.get("a", f"Kind{number}")
    world.endpoint.hangs = {"gadgets"}
    world.scales.begin("shop", VERSION, "Kind0", "b")
    await asyncio.sleep(0)
    assert len(world.scales._places) == 1
    await asyncio.sleep(TIMEOUT_S * 1.5)
    assert len(world.scales._places) == 0
