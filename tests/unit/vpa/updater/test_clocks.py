"""A clock that is set moves neither the age of a resize nor the webhook's sign of life."""

from types import SimpleNamespace
from typing import Any

import pytest

from podscale.kube.errors import ObjectNotFound
from podscale.kube.wire import encode, format_micro_time
from tests.unit.vpa.updater.worlds import NOW, pod
from vpa.updater.observe import Observer, Seen
from vpa.updater.sign_of_life import SignOfLife

RESIZING = [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}]
TIMEOUT_S = 60.0


class Lease:
    """The Lease at the API server, and both of our clocks."""

    def __init__(self) -> None:
        self.renewed: float | None = NOW
        self.wall, self.clock = NOW, 100.0
        api: Any = self
        self.sign = SignOfLife(api, "kube-system", "vpa", clock=lambda: self.clock)

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


async def test_no_lease_is_no_life() -> None:
    lease = Lease()
    lease.renewed = None
    assert not await lease.is_alive()


def test_a_resize_ages_by_the_monotonic_clock() -> None:
    clock = [100.0]
    stores: Any = None
    observer = Observer(stores, clock=lambda: clock[0])
    view: Any = SimpleNamespace(uid="web-0")
    seen = Seen(view, pod(conditions=RESIZING))
    assert observer.resize_since_s(seen) == 0.0
    clock[0] += 7.0
    assert observer.resize_since_s(seen) == 7.0
