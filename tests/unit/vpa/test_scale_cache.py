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


async def test_a_scale_that_is_no_longer_believed_is_read_again(world: World) -> None:
    first = await world.get("a")
    world.now += 500.0
    assert await world.get("a") is first
    world.now += 200.0
    assert (await world.get("a")).at == 1700.0
    assert len(world.endpoint.asked) == 2


async def test_a_known_scale_whose_endpoint_hangs_is_still_known_and_seldom_asked(
    world: World,
) -> None:
    first = await world.get("a")
    world.now += 700.0
    world.endpoint.hangs = {"widgets"}
    begun = asyncio.get_running_loop().time()
    for _ in range(20):
        assert (await world.get("a")).scale is first.scale
    assert asyncio.get_running_loop().time() - begun < TIMEOUT_S * 2, "one deadline for all"
    assert len(world.endpoint.asked) == 2
    world.now += 10.1
    found, took_s = await world.timed("a")
    assert found.scale is first.scale
    assert took_s < TIMEOUT_S / 4, "its kind is slow"
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


async def test_a_failure_is_asked_again_every_ten_seconds(world: World) -> None:
    world.endpoint.error = ServerFailed(500, "InternalError", "no")
    for _ in range(30):
        assert not (await world.get("a")).is_answered
        world.now += 1.0
    assert len(world.endpoint.asked) == 3
    world.endpoint.error = None
    assert (await world.get("a")).scale is not None


async def test_who_disturbs_pods_waits_for_a_fresh_size(world: World) -> None:
    await world.get("a")
    world.now += 30.0
    world.endpoint.delay_s = 0.05
    assert (await world.get("a")).at == 1000.0
    assert (await world.get("a", fresh_s=20.0)).at == 1030.0


async def test_an_object_that_hangs_keeps_no_other_of_its_kind_from_being_known(
    world: World,
) -> None:
    world.endpoint.hangs = {"/bad/"}
    await world.get("bad")
    world.endpoint.delay_s = 0.05
    found, _ = await world.timed("a", patience_s=0.5)
    assert found.scale is not None


async def test_many_objects_that_hang_leave_places_to_the_others_of_their_kind(
    world: World,
) -> None:
    world.endpoint.hangs = {"/bad"}
    bad = [f"bad{number}" for number in range(6)]
    for name in bad:
        await world.get(name, patience_s=TIMEOUT_S)  # all have hung once
    await asyncio.sleep(TIMEOUT_S / 4)
    world.now += 11.0
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
    await asyncio.sleep(TIMEOUT_S / 4)
    world.now += 11.0
    _, took_s = await world.timed("bad")
    assert took_s < TIMEOUT_S / 4
    _, took_s = await world.timed("bad", patience_s=TIMEOUT_S / 2)
    assert TIMEOUT_S / 4 < took_s < TIMEOUT_S
    await asyncio.sleep(TIMEOUT_S)
    world.endpoint.hangs = set()
    world.now += 200.0
    assert (await world.get("bad")).scale is not None, "long ago is as never"


async def test_what_hangs_leaves_nothing_behind_but_a_line_that_says_so(world: World) -> None:
    world.endpoint.hangs = {"widgets"}
    await asyncio.gather(*(world.get(f"w{number}") for number in range(50)))
    assert world.endpoint.most_at_once <= 4
    if world.scales._requests:  # those that nobody waits for any more end by themselves
        await asyncio.wait(world.scales._requests.values())
    await asyncio.sleep(0)
    assert not world.scales._requests
    assert world.scales._known.held_bytes < 50 * 4096


@pytest.mark.parametrize(
    ("kind", "name", "version"),
    [
        pytest.param("Widget", "n" * 254, VERSION, id="long name"),
        pytest.param("Widget", "../../secrets", VERSION, id="path for a name"),
        pytest.param("Widget", "", VERSION, id="no name"),
        pytest.param("K" * 64, "a", VERSION, id="long kind"),
        pytest.param("Wid/get", "a", VERSION, id="path for a kind"),
        pytest.param("Widget", "a", "example.com/v1/v2", id="path for a group"),
        pytest.param("Widget", "a", "g" * 254 + "/v1", id="long group"),
        pytest.param("Widget", "a", "example.com/" + "v" * 64, id="long version"),
    ],
)
async def test_what_is_no_segment_of_a_path_is_not_there_and_not_asked_for(
    world: World, kind: str, name: str, version: str
) -> None:
    world.scales.begin("shop", version, kind, name)
    found = await world.scales.get("shop", version, kind, name)
    assert (found.scale, found.is_answered) == (None, True)
    assert world.endpoint.asked == []
    assert len(world.scales._known) == 0
