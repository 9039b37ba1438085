"""The rows of nodes on the page."""

import math

import pytest

from podscale.page.health import shown_nodes
from tests.unit.nodes.fleet import GI, Fleet
from tests.unit.nodes.test_rounds import NOW, Rounds


async def test_a_node_says_when_its_usage_was_last_read():
    fleet = Fleet()
    for name in ("measured", "unknown"):
        fleet.node(name)
        fleet.ballast(name)
    fleet.usage["measured"] = (6.0, GI)
    rounds = Rounds(fleet)
    await rounds.at(0)
    fleet.is_silent = True
    await rounds.at(601)
    known, unknown = shown_nodes(rounds.rounds.decided).rows
    assert (known.name, known.reason, known.measured) == ("measured", "StaleUsage", NOW)
    assert math.isnan(unknown.measured)
    # Of 10 cores the threshold leaves 8, of which 6 are used.
    assert (known.cpu.room, known.cpu.allocatable) == (pytest.approx(2.0), 10.0)
    assert math.isnan(unknown.cpu.room)
