"""Mode taint: who gets it, who loses it, and what of others' taints is left."""

import msgspec
import pytest
from structlog.testing import capture_logs

from podscale.kube.client.wire import decode
from podscale.kube.objects.cluster import Node
from podscale.nodes.cluster.patches import TAINT_KEY, remove_taints, write_taint
from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import OLD, Rounds

OURS = {"key": TAINT_KEY, "effect": "NoSchedule"}
OTHER = {
    "key": "dedicated",
    "effect": "NoExecute",
    "value": "x",
    "timeAdded": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def fleet() -> Fleet:
    made = Fleet()
    for name in ("a", "b"):
        made.node(name)
        made.pod(f"web-{name}", name, "2", started=OLD)
        made.usage[name] = (6.0, GI)
    return made


async def test_a_full_node_is_tainted_until_it_is_well_below(fleet: Fleet) -> None:
    rounds = Rounds(fleet, mode="taint")
    await rounds.at(0)
    assert fleet.tainted() == []
    for second, cores, tainted in (
        (100, 7.9, []), (200, 12.0, ["a"]), (600, 7.3, ["a"]), (1000, 7.1, []), (1400, 7.9, []),
    ):  # fmt: skip
        fleet.usage["a"] = (cores, GI)
        for step in range(0, 400, 50):  # until the window holds nothing else
            await rounds.at(second + step)
        assert fleet.tainted() == tainted, second
    gauge = rounds.registry.get_sample_value("podscale_nodes_tainted")
    assert gauge == 0


async def test_memory_taints_as_well_and_a_node_is_written_once_a_minute(fleet: Fleet) -> None:
    rounds = Rounds(fleet, mode="taint")
    fleet.usage["a"] = (1.0, 31 * GI)
    await rounds.at(0)
    assert fleet.tainted() == ["a"]
    fleet.nodes["a"]["spec"]["taints"] = []  # somebody takes it away again and again
    for second in (15, 30, 45):
        await rounds.at(second)
        assert fleet.tainted() == []
    await rounds.at(61)
    assert fleet.tainted() == ["a"]


async def test_what_lets_ballast_go_takes_the_taint_away_at_once(fleet: Fleet) -> None:
    rounds = Rounds(fleet, mode="taint")
    fleet.usage["a"] = (9.0, GI)
    await rounds.at(0)
    fleet.nodes["a"]["spec"]["unschedulable"] = True
    assert fleet.tainted() == ["a"]
    await rounds.at(5)
    assert fleet.tainted() == []


async def test_that_all_nodes_are_tainted_is_said_once(fleet: Fleet) -> None:
    rounds = Rounds(fleet, mode="taint")
    fleet.usage = dict.fromkeys(fleet.nodes, (9.0, GI))
    with capture_logs() as logs:
        for second in (0, 15, 30):
            await rounds.at(second)
    (told,) = logs
    assert told["event"].startswith(f"all of {len(fleet.nodes)} nodes have the taint")


async def test_who_does_not_lead_writes_no_taint(fleet: Fleet) -> None:
    rounds = Rounds(fleet, mode="taint")
    rounds.leads = False
    fleet.usage["a"] = (9.0, GI)
    assert (await rounds.at(0))["a"]
    assert fleet.tainted() == []


async def test_others_taints_stay_as_they_are(fleet: Fleet) -> None:
    fleet.nodes["a"]["spec"] = {"taints": [dict(OTHER)]}
    fleet.feed()
    for is_wanted, taints in ((True, [OTHER, OURS]), (True, [OTHER, OURS]), (False, [OTHER])):
        node = decode(msgspec.json.encode(fleet.nodes["a"]), Node)
        assert await write_taint(fleet, node, is_wanted=is_wanted) == "done"
        assert fleet.nodes["a"]["spec"]["taints"] == taints
    stale = decode(msgspec.json.encode(fleet.nodes["a"]), Node)
    fleet.nodes["a"]["metadata"]["resourceVersion"] = "99"
    assert await write_taint(fleet, stale, is_wanted=True) == "failed"
    assert fleet.nodes["a"]["spec"]["taints"] == [OTHER]


async def test_off_and_the_watchdog_take_every_taint_away(fleet: Fleet) -> None:
    fleet.nodes["a"]["spec"] = {"taints": [dict(OTHER), dict(OURS)]}
    fleet.nodes["b"]["spec"] = {"taints": [dict(OURS)]}
    fleet.feed()
    assert await remove_taints(fleet) == {"done": 2}
    assert fleet.tainted() == []
    assert fleet.nodes["a"]["spec"]["taints"] == [OTHER]
    assert await remove_taints(fleet) == {}
