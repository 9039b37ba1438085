"""Ballast without a leader."""

import asyncio
import math

import pytest
from structlog.testing import capture_logs

from podscale.kube.client.api import Response
from podscale.kube.client.wire import format_micro_time
from podscale.nodes.watchdog import LAST_ROUND, RoundAge, WatchdogChoice, let_go, watch
from tests.kit.api import Sent
from tests.unit.nodes.fleet import Fleet

CHOICE = WatchdogChoice(patience_s=300.0, interval_s=15.0)


def test_the_age_counts_from_when_a_change_was_seen() -> None:
    age = RoundAge()
    # At first only the writer's clock can tell, as far as it says the past.
    assert age.note(1000.0, now=50.0, wall_s=1200.0) == 200.0
    assert age.note(1000.0, now=60.0, wall_s=math.nan) == 210.0
    # A clock that is a day behind tells of a round all the same.
    assert age.note(-85_000.0, now=70.0, wall_s=1220.0) == 0.0
    assert RoundAge().note(1000.0, now=0.0, wall_s=500.0) == 0.0


def test_a_lease_that_nobody_has_is_old_from_the_first_look_on() -> None:
    age = RoundAge()
    assert age.note(None, now=10.0, wall_s=0.0) == 0.0
    assert age.note(None, now=400.0, wall_s=0.0) == 390.0


async def test_only_what_holds_more_than_the_least_is_resized() -> None:
    fleet = Fleet()
    for node, cpu in (("a", "3"), ("b", "1m"), ("c", "250m")):
        fleet.ballast(node, cpu)
    fleet.pod("web", "a", "2")
    assert await let_go(fleet, "podscale-ballast") == 2
    assert sorted(name for name, _ in fleet.patches) == ["ballast-a", "ballast-c"]
    assert await let_go(fleet, "podscale-ballast") == 0


@pytest.mark.looptime
async def test_ballast_is_let_go_five_minutes_after_the_last_round_that_worked() -> None:
    fleet = Fleet()
    fleet.ballast("a", "3")
    loop = asyncio.get_running_loop()

    def renew(at: float, worked: float) -> None:
        fleet.lease = {"metadata": {"name": "podscale-nodes",
                                    "annotations": {LAST_ROUND: format_micro_time(worked)}},
                       "spec": {"holderIdentity": "x",
                                "renewTime": format_micro_time(at)}}  # fmt: skip

    renew(1_000_000.0, 1_000_000.0)
    watching = asyncio.ensure_future(
        watch(fleet, CHOICE, clock=loop.time, wall=lambda: 1_000_000.0 + loop.time())
    )
    try:
        for second in range(0, 1200, 10):  # led for twenty minutes
            renew(1_000_000.0 + second, 1_000_000.0 + second)
            await asyncio.sleep(10)
        # The leader lives, and that is all it does.
        for second in range(1200, 1530, 10):
            assert second > 1490 or fleet.held("a") == "3"
            renew(1_000_000.0 + second, 1_000_000.0 + 1190)
            await asyncio.sleep(10)
        assert fleet.held("a") == "1m"
        renew(1_000_000.0 + 1530, 1_000_000.0 + 1530)
        await asyncio.sleep(16)  # it is seen
        fleet.ballast("a", "3")
        fleet.patches.clear()
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


class ListedFleet(Fleet):
    """One that counts lists of ballast."""

    lists = 0

    async def reply(self, sent: Sent) -> Response:
        self.lists += sent.method == "GET" and sent.path.endswith("/pods")
        return await super().reply(sent)


@pytest.mark.looptime
async def test_ballast_that_nobody_holds_is_seldom_listed() -> None:
    """As where the part is in mode shadow, which says of no round that it worked."""
    fleet = ListedFleet()
    fleet.ballast("a")
    loop = asyncio.get_running_loop()
    watching = asyncio.ensure_future(watch(fleet, CHOICE, clock=loop.time, wall=loop.time))
    try:
        await asyncio.sleep(3000)
        assert 8 <= fleet.lists <= 10
        fleet.ballast("a", "3")
        await asyncio.sleep(316)
        assert fleet.held("a") == "1m"
    finally:
        watching.cancel()


@pytest.mark.looptime
async def test_a_lease_that_is_not_there_is_said_before_its_ballast_is_let_go() -> None:
    fleet = Fleet()
    fleet.ballast("a", "3")
    loop = asyncio.get_running_loop()
    with capture_logs() as logs:
        watching = asyncio.ensure_future(watch(fleet, CHOICE, clock=loop.time, wall=loop.time))
        await asyncio.sleep(290)
        told = [(each["event"], each["lease"]) for each in logs]
        assert told == [("watching", "podscale/podscale-nodes"),
                        ("not known when a round worked", "podscale/podscale-nodes")]  # fmt: skip
        assert "there is no such Lease: --lease" in logs[1]["why"]
        await asyncio.sleep(30)
        assert logs[2]["event"].startswith("no leader looks after ballast")
        assert "worked_s_ago" not in logs[2]
        watching.cancel()
