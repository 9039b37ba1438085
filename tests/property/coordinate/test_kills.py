"""Whatever is killed at whichever write of a coordinated change: no load lacks its cores."""

import os

import pytest

from podscale.coordinate import sizes
from tests.cluster.short_days import HALF_DAY_S, HOUR_S, QUIET_S
from tests.property.coordinate.killed_parts import SimulatedCluster, changes_with_kills

STORIES = (3, 6) if os.environ.get("PODSCALE_SHORT") else range(24)
CHANGES = 8


@pytest.fixture(autouse=True)
def short_days(monkeypatch):
    monkeypatch.setattr(sizes, "_HALF_DAY_S", HALF_DAY_S)
    monkeypatch.setattr(sizes, "_WEEK_S", 2 * HALF_DAY_S)
    monkeypatch.setattr(sizes, "LEAST_QUIET_S", QUIET_S)
    monkeypatch.setattr(sizes, "_SLOT_S", HOUR_S)
    monkeypatch.setattr(sizes, "_LATEST_S", QUIET_S)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", STORIES)
async def test_no_kill_at_any_write_leaves_fewer_cores_than_there_is_load(seed):
    cluster = SimulatedCluster(
        seed, is_evicting=bool(seed % 2), leaves_within_s=(1.0, 5.0)[seed // 2 % 2]
    )
    await changes_with_kills(cluster, CHANGES, (("hpa", "recommender"), ("hpa",))[seed // 4 % 2])
    assert cluster.faults == []
