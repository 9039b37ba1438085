"""Ballast without a leader."""

import asyncio
import math
from datetime import UTC, datetime

import pytest

from podscale.kube.objects.cluster import LeaseSpec
from podscale.nodes.watchdog import RenewalAge, WatchdogChoice, let_go, watch
from tests.unit.nodes.fleet import Fleet

CHOICE = WatchdogChoice(patience_s=300.0, interval_s=15.0)


def test_the_age_counts_from_when_a_change_was_seen() -> None:
    age = RenewalAge()
    renewed = LeaseSpec(holder_identity="a", renew_time=1000.0)
    # At first only the writer's clock can tell, as far as it says the past.
    assert age.note(renewed, now=50.0, wall_s=1200.0) == 200.0
    assert age.note(renewed, now=60.0, wall_s=math.nan) == 210.0
    # A clock that is a day behind renews all the same.
    assert age.note(LeaseSpec(holder_identity="a", renew_time=-85_000.0), now=70.0,
                    wall_s=1220.0) == 0.0  # fmt: skip
    assert RenewalAge().note(renewed, now=0.0, wall_s=500.0) == 0.0


def test_a_lease_that_nobody_has_is_old_from_the_first_look_on() -> None:
    age = RenewalAge()
    assert age.note(LeaseSpec(), now=10.0, wall_s=0.0) == 0.0
    assert age.note(LeaseSpec(), now=400.0, wall_s=0.0) == 390.0


async def test_only_what_holds_more_than_the_least_is_resized() -> None:
    fleet = Fleet()
    for node, cpu in (("a", "3"), ("b", "1m"), ("c", "250m")):
        fleet.ballast(node, cpu)
    fleet.pod("web", "a", "2")
    assert await let_go(fleet, "podscale-ballast") == 2
    assert sorted(name for name, _ in fleet.patches) == ["ballast-a", "ballast-c"]
    assert await let_go(fleet, "podscale-ballast") == 0


@pytest.mark.looptime
async def test_ballast_is_let_go_five_minutes_after_the_last_renewal() -> None:
    fleet = Fleet()
    fleet.ballast("a", "3")
    loop = asyncio.get_running_loop()

    def renew(at: float) -> None:
        time = datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
        fleet.lease = {"metadata": {"name": "podscale-nodes"},
                       "spec": {"holderIdentity": "x", "renewTime": time}}  # fmt: skip

    renew(1_000_000.0)
    watching = asyncio.ensure_future(
        watch(fleet, CHOICE, clock=loop.time, wall=lambda: 1_000_000.0 + loop.time())
    )
    try:
        for second in range(0, 1200, 10):  # led for twenty minutes
            renew(1_000_000.0 + second)
            await asyncio.sleep(10)
        fleet.is_down = True  # for longer than anybody's patience: nothing to be done
        await asyncio.sleep(400)
        assert fleet.patches == []
        fleet.is_down = False
        await asyncio.sleep(16)
        assert [name for name, _ in fleet.patches] == ["ballast-a"]
        # And again, when a leader that is not seen to renew writes once more.
        fleet.ballast("a", "2")
        await asyncio.sleep(16)
        assert fleet.held("a") == "1m"
    finally:
        watching.cancel()
