"""A clock that is set moves neither the age of a resize nor the webhook's sign of life."""

from types import SimpleNamespace
from typing import Any

import pytest

from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.client.wire import encode, format_micro_time
from tests.unit.vpa.updater.worlds import NOW, pod
from vpa.updater.cluster.pod_observer import PodObserver
from vpa.updater.loop.loop import WatchedLease

RESIZING = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
TIMEOUT_S = 60.0


class Lease:
    """The Lease at the API server, and both of our clocks."""

    def __init__(self) -> None:
        self.renewed: float | None = NOW
        self.wall, self.clock = NOW, 100.0
        api: Any = self
        self.sign = WatchedLease(api, "kube-system", "vpa", clock=lambda: self.clock)

    async def request(self, _method: str, _path: str, **_more: Any) -> Any:
        if self.renewed is None:
            raise ObjectNotFound(404, "NotFound", "no")
        body = {"metadata": {"name": "vpa"}, "spec": {"renewTime": format_micro_time(self.renewed)}}
        return SimpleNamespace(body=encode(body))

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.clock += seconds

    async def is_alive(self) -> bool:
        return (await self.sign.read(self.wall)).is_alive(self.wall, TIMEOUT_S)


async def test_where_the_clocks_agree_the_age_is_what_the_lease_says() -> None:
    lease = Lease()
    lease.passes(59.0)
    assert await lease.is_alive()
    lease.passes(2.0)
    assert not await lease.is_alive()
    lease.renewed = lease.wall
    lease.passes(30.0)
    assert await lease.is_alive()
    assert (await lease.sign.read(lease.wall)).age_s(lease.wall) == pytest.approx(30.0, abs=0.1)


async def test_a_dead_webhook_dies_although_our_clock_is_set_back() -> None:
    lease = Lease()
    assert await lease.is_alive()
    lease.wall -= 3600.0
    lease.passes(61.0)
    assert not await lease.is_alive()


async def test_a_dead_webhook_that_we_see_with_a_clock_behind_dies_within_its_timeout() -> None:
    lease = Lease()
    lease.wall -= 3600.0
    assert await lease.is_alive()
    lease.passes(61.0)
    assert not await lease.is_alive()


async def test_a_live_webhook_lives_although_our_clock_is_ahead() -> None:
    lease = Lease()
    lease.wall += 3600.0
    assert not await lease.is_alive()  # nothing says yet that it is renewed
    lease.passes(60.0)
    lease.renewed = NOW + 55.0
    assert await lease.is_alive()
    lease.passes(61.0)
    assert not await lease.is_alive()


class Webhook:
    """Renews every ten seconds by a clock of its own; the updater looks every minute."""

    def __init__(self, behind_s: float) -> None:
        self.behind_s = behind_s
        self.lease = Lease()
        self.is_dead = False
        self._at = self.lease.wall  # of the last renewal
        self._renew()

    def _renew(self) -> None:
        self.lease.renewed = self._at - self.behind_s

    def passes(self, seconds: float) -> None:
        self.lease.passes(seconds)
        while not self.is_dead and self._at + 10.0 <= self.lease.wall:
            self._at += 10.0
            self._renew()

    async def loop(self) -> tuple[bool, bool]:
        """Return whether it seemed to live, and whether that took a second look."""
        lease, sign = self.lease, self.lease.sign
        found = await sign.read(lease.wall)
        again = sign.has_to_look_again(TIMEOUT_S)
        if again:
            self.passes(12.0)
            found = await sign.read(lease.wall, at_most=True)
        lives = found.is_alive(lease.wall, TIMEOUT_S)
        self.passes(60.0 - 12.0 * again)
        return lives, again


@pytest.mark.parametrize("behind_s", [3600.0, 90.0, 57.0, -30.0, -3600.0])
async def test_a_difference_of_clocks_is_learnt_once(behind_s: float) -> None:
    webhook = Webhook(behind_s)
    webhook.passes(3.0)
    loops = [await webhook.loop() for _ in range(20)]
    assert all(lives for lives, _ in loops)
    assert sum(again for _, again in loops) <= 2
    assert not any(again for _, again in loops[2:])
    webhook.behind_s -= 1000.0  # its clock is set, or it moves to another node
    loops = [await webhook.loop() for _ in range(20)]
    assert all(lives for lives, _ in loops)
    assert not any(again for _, again in loops[2:])
    webhook.behind_s += 500.0
    loops = [await webhook.loop() for _ in range(20)]
    assert all(lives for lives, _ in loops)
    assert not any(again for _, again in loops[2:])


@pytest.mark.parametrize("behind_s", [3600.0, 90.0, 0.0, -3600.0])
@pytest.mark.parametrize("dies_s", [1.0, 20.0, 45.0])
async def test_a_webhook_dies_within_a_loop_of_its_timeout_although_its_clock_is_known(
    behind_s: float, dies_s: float
) -> None:
    webhook = Webhook(behind_s)
    for _ in range(5):
        assert (await webhook.loop())[0]
    webhook.passes(dies_s)
    webhook.is_dead = True
    webhook.passes(60.0 - dies_s)
    lived = [(await webhook.loop())[0] for _ in range(3)]
    assert lived[1:] == [False, False]


@pytest.mark.parametrize("set_ahead_s", [0.0, 30.0, 1000.0])
async def test_what_was_learnt_before_a_clock_was_set_makes_no_webhook_younger(
    set_ahead_s: float,
) -> None:
    webhook = Webhook(3600.0)
    for _ in range(5):
        await webhook.loop()
    webhook.behind_s -= set_ahead_s
    for _ in range(3):
        assert (await webhook.loop())[0]
    webhook.is_dead = True
    webhook.passes(60.0)
    assert not (await webhook.loop())[0]


async def test_no_lease_is_no_life() -> None:
    lease = Lease()
    lease.renewed = None
    assert not await lease.is_alive()


def test_a_resize_ages_by_the_monotonic_clock() -> None:
    clock = [100.0]
    stores: Any = None
    observer = PodObserver(stores, clock=lambda: clock[0])
    seen = pod(conditions=RESIZING)
    assert observer.resize_since_s(seen) == 0.0
    clock[0] += 7.0
    assert observer.resize_since_s(seen) == 7.0
