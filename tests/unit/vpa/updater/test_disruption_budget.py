"""How many pods of a group may go down in one loop."""

import pytest

from tests.unit.vpa.updater.worlds import RS, decided, pod, vpa
from vpa.updater.decide.disruption_budget import Owner, OwnerSize, PodGroup, budget_for
from vpa.updater.decide.priority import UpdaterSettings


def downs(
    kind: str,
    live: int,
    size: OwnerSize,
    *,
    tolerance: float = 0.5,
    pending: int = 0,
    conditions: list[dict[str, str]] | None = None,
) -> int:
    """Return how many running pods one loop takes down."""
    owner = {"kind": kind, "name": "o", "controller": True}
    pods = [
        pod(
            f"p{n}",
            owner=owner,
            phase="Pending" if n < pending else "Running",
            conditions=conditions,
        )
        for n in range(live)
    ]
    settings = UpdaterSettings(eviction_tolerance=tolerance)
    budget = budget_for(pods, vpa(), {Owner(kind, "o"): size}, settings)
    taken = 0
    for one in pods[pending:]:
        group = budget.group(one)
        if isinstance(group, PodGroup) and budget.allows(group):
            budget.began(group, one, in_place=False)
            taken += 1
    return taken


@pytest.mark.parametrize(
    ("kind", "live", "size", "taken"),
    [
        pytest.param("StatefulSet", 5, OwnerSize(replicas=5), 2, id="half"),
        pytest.param("Job", 5, OwnerSize(), 2, id="a-job-has-its-live-pods"),
        pytest.param("PodSet", 5, OwnerSize(), 2, id="an-unknown-kind-has-a-budget"),
        pytest.param("PodSet", 4, OwnerSize(replicas=6), 1, id="and-the-size-of-its-scale"),
        pytest.param("PodSet", 20, OwnerSize(replicas=4), 10, id="which-may-have-grown-since"),
        pytest.param("ReplicaSet", 5, OwnerSize(), 0, id="a-known-kind-must-be-known"),
        pytest.param("DaemonSet", 4, OwnerSize(desired=4), 2, id="daemons"),
        pytest.param("DaemonSet", 4, OwnerSize(desired=2), 3, id="more-than-are-desired-may-go"),
        pytest.param("DaemonSet", 4, OwnerSize(desired=0), 0, id="none-desired"),
        pytest.param("DaemonSet", 4, OwnerSize(), 0, id="daemons-of-unknown-number"),
    ],
)
def test_budget(kind: str, live: int, size: OwnerSize, taken: int) -> None:
    assert downs(kind, live, size) == taken


@pytest.mark.parametrize("phase", ["Running", "Pending"])
@pytest.mark.parametrize("mode", ["Recreate", "InPlaceOrRecreate"])
def test_a_group_that_is_kept_for_the_end_of_its_boosts_is_not_evicted(
    phase: str, mode: str
) -> None:
    settings = UpdaterSettings(cpu_startup_boost=True)
    unready = [{"type": "Ready", "status": "False"}]
    only = pod(annotations={"vpaCpuStartupBoost/app": "{}"}, conditions=unready, phase=phase,
               resizePolicy=[])  # fmt: skip
    group = budget_for([only], vpa(mode), {RS: OwnerSize(replicas=1)}, settings).group(only)
    assert isinstance(group, PodGroup)
    assert group.only_unboosts
    got = decided(only, vpa(mode), others=0, size=OwnerSize(replicas=1), settings=settings)
    assert got.action != "evict"
    assert got.reasons[0] == "TooFewReplicas" or mode == "InPlaceOrRecreate"


def test_daemons_that_all_crash_get_the_update_that_would_end_it() -> None:
    crashing = [{"type": "Ready", "status": "False"}]
    assert downs("DaemonSet", 10, OwnerSize(desired=10), conditions=crashing) == 5


def test_pending_daemons_use_the_budget_up() -> None:
    assert downs("DaemonSet", 10, OwnerSize(desired=10), pending=5) == 0


def test_pending_pods_lower_what_runs() -> None:
    assert downs("ReplicaSet", 4, OwnerSize(replicas=4), pending=1) == 1


@pytest.mark.parametrize("configured", range(2, 30))
@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_what_stays_up_is_never_less_than_promised(configured: int, tolerance: float) -> None:
    size = OwnerSize(replicas=configured)
    taken = downs("ReplicaSet", configured, size, tolerance=tolerance)
    assert taken <= max(1, int(configured * tolerance))
