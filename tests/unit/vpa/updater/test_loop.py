"""When the updater believes that admission lives."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from podscale.kube.client.wire import encode, format_micro_time
from tests.unit.vpa.updater.worlds import NOW
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.decision import UpdateDecision
from vpa.updater.flags import Options
from vpa.updater.loop.loop import Updater
from vpa.updater.loop.vpa_reconcile import OutOfTime
from vpa.updater.selfmetrics import UpdaterMetrics

pytestmark = pytest.mark.looptime

_INVALID = "vpa_updater_admission_controller_status_invalid_total"


class Webhook:
    """Renews its Lease every ten seconds by a clock that is behind, until it dies."""

    def __init__(self, behind_s: float) -> None:
        self.behind_s = behind_s
        self.died_at: float | None = None

    async def request(self, _method: str, _path: str, **_more: Any) -> Any:
        at = asyncio.get_running_loop().time()
        renewed = min(at, self.died_at if self.died_at is not None else at) // 10 * 10
        time = format_micro_time(NOW + renewed - self.behind_s)
        body = {"metadata": {"name": "vpa"}, "spec": {"renewTime": time}}
        return SimpleNamespace(body=encode(body))


def updater(webhook: Webhook, registry: CollectorRegistry, interval_s: float) -> Updater:
    async def no_vpas(**_more: Any) -> dict[Any, Any]:
        return {}

    def clock() -> float:
        return asyncio.get_running_loop().time()

    stores: Any = SimpleNamespace(is_current=lambda: True, pods=None)
    api: Any = webhook
    actor: Any = None
    options = Options(interval_s=interval_s)
    made = Updater(
        api, stores, actor, options, UpdaterMetrics(registry),
        wall=lambda: NOW + clock(), clock=clock,
    )  # fmt: skip
    made._tools.observer.index = no_vpas  # type: ignore[method-assign]
    return made


async def deaths(webhook: Webhook, interval_s: float, loops: int = 5) -> float:
    """Return in how many loops the webhook was taken for dead."""
    registry = CollectorRegistry()
    part = updater(webhook, registry, interval_s)
    at = asyncio.get_running_loop().time()
    for _ in range(loops):
        at += interval_s
        await asyncio.sleep(at - asyncio.get_running_loop().time())
        await part.once()
    return registry.get_sample_value(_INVALID, {"reason": "invalid"}) or 0.0


@pytest.mark.parametrize("interval_s", [60.0, 300.0, 3600.0])
@pytest.mark.parametrize("behind_s", [0.0, 58.0, 120.0, 86400.0])
async def test_a_webhook_whose_clock_is_behind_lives_at_every_interval(
    behind_s: float, interval_s: float
) -> None:
    assert await deaths(Webhook(behind_s), interval_s) == 0


@pytest.mark.parametrize("behind_s", [0.0, 120.0])
async def test_one_that_dies_is_dead_in_every_loop_since(behind_s: float) -> None:
    webhook = Webhook(behind_s)
    webhook.died_at = 700.0
    assert await deaths(webhook, 300.0) == 3


async def test_a_dead_one_is_looked_at_again_once() -> None:
    webhook = Webhook(0.0)
    webhook.died_at = 0.0
    begun = asyncio.get_running_loop().time()
    assert await deaths(webhook, 300.0) == 5
    assert asyncio.get_running_loop().time() - begun < 5 * 300.0 + 1.0


@pytest.mark.parametrize("behind_s", [120.0, -120.0, 86400.0])
async def test_a_clock_that_is_off_costs_the_first_loops_a_second_look_only(
    behind_s: float,
) -> None:
    loop = asyncio.get_running_loop()
    part = updater(Webhook(behind_s), CollectorRegistry(), 60.0)
    took = []
    for _ in range(10):
        begun = loop.time()
        await part.once()
        took.append(loop.time() - begun)
        await asyncio.sleep(60.0 - took[-1])
    assert max(took[:2]) > 10.0
    assert max(took[2:]) < 1.0


async def test_who_does_not_update_any_more_tells_nothing_of_what_it_decided_before() -> None:
    part = updater(Webhook(0.0), CollectorRegistry(), 60.0)
    stores: Any = part._stores

    async def synced() -> None: ...

    stores.wait_synced = synced
    term: Any = None  # it is the fence that asks
    running = asyncio.create_task(part.run(term))
    await asyncio.sleep(1.0)
    seen: Any = SimpleNamespace(namespace="shop", name="web-0")
    key, decision = VpaKey("shop", "web"), UpdateDecision("none", ("UpdateModeOff",), {})
    part.decisions.note(seen, key, decision, NOW)
    assert part.decisions.of(key)
    running.cancel()
    await asyncio.wait({running})
    assert not part.decisions.of(key)
    part.decisions.note(seen, key, decision, NOW)  # of another term
    assert len(part.decisions.everything()) == 1


async def turns(names: str, endless: str, loops: int, interval_s: float = 60.0) -> str:
    """Return whose turns were taken, where one uses up whatever time is left."""
    taken = ""

    async def some_vpas(**_more: Any) -> dict[VpaKey, Any]:
        return {VpaKey("shop", name): () for name in names}

    async def turn(key: VpaKey, _rivals: Any, _view: Any, deadline: float) -> None:
        nonlocal taken
        taken += key.name
        if key.name == endless:
            await asyncio.sleep(deadline - asyncio.get_running_loop().time())
            raise OutOfTime

    part = updater(Webhook(0.0), CollectorRegistry(), interval_s)
    part._turn = turn  # type: ignore[method-assign]
    part._tools.observer.index = some_vpas  # type: ignore[method-assign]
    part.decisions.forget = lambda _stores: None  # type: ignore[method-assign]
    for _ in range(loops):
        await part.once()
    return taken


@pytest.mark.parametrize("endless", "abc")
async def test_one_that_uses_up_every_loop_leaves_every_third_to_the_others(endless: str) -> None:
    taken = await turns("abc", endless, 99)
    assert {name: taken.count(name) >= 33 for name in "abc"} == dict.fromkeys("abc", True), taken


async def test_one_that_is_alone_and_never_done_goes_on_in_each_loop() -> None:
    assert await turns("a", "a", 10) == "a" * 10
