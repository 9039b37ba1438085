"""When ballast is raised, lowered, left alone and let go."""

import math

import numpy as np
import pytest
from msgspec.structs import replace

from podscale.nodes.decide.ballast import (
    LEAST,
    BallastPlan,
    BallastSettings,
    HeldBallast,
    Reason,
    plan,
)
from tests.unit.nodes.columns import held, nodes, states

SETTINGS = BallastSettings()
THETA = np.array([[0.8], [0.85]])
# U 6000 of C 10000, A 9800, Σ 4000: R = 6000 + 9800 - 8000 - 4000.
LOADED = 3800.0


def planned(usage: float, ballast: HeldBallast, **said: bool) -> BallastPlan:
    return plan(nodes([usage]), states(1, **said), ballast, THETA, 1000.0, SETTINGS)


@pytest.mark.parametrize(("usage", "cpu", "now_cpu", "reason", "is_due"), [
    pytest.param(6000, 1, LOADED, "Loaded", True, id="first-time"),
    pytest.param(6000, LOADED - 150, LOADED, "WithinStep", False, id="a-step-is-2-percent-of-A"),
    pytest.param(6000, LOADED - 200, LOADED, "Loaded", True, id="raised"),
    pytest.param(6000, LOADED + 200, LOADED, "Loaded", True, id="lowered"),
    pytest.param(9000, 1, 5800, "Loaded", True, id="never-more-than-is-left-by-requests"),
    pytest.param(20_000, 1, 5800, "Loaded", True, id="usage-above-capacity"),
    pytest.param(4100, 1, 1, "LowUsage", False, id="taken-up-only-a-step-above-the-edge"),
    pytest.param(4300, 1, 2100, "Loaded", True, id="taken-up"),
    pytest.param(4100, 1900, 1900, "WithinStep", False, id="kept-down-to-the-edge"),
    pytest.param(3900, 1700, 1, "LowUsage", True, id="let-go-below-the-edge"),
    pytest.param(math.nan, 1700, 1, "StaleUsage", True, id="what-was-never-measured-is-open"),
    pytest.param(-5, 1700, 1, "StaleUsage", True, id="negative-is-not-measured"),
    pytest.param(math.inf, 1700, 1, "StaleUsage", True, id="infinite-is-not-measured"),
])  # fmt: skip
def test_plan(usage: float, cpu: float, now_cpu: float, reason: str, is_due: bool) -> None:
    got = planned(usage, held(cpu))
    assert (got.requests[0, 0], Reason(got.reason[0]).token) == (now_cpu, reason)
    assert got.is_due[0] == is_due


@pytest.mark.parametrize(("said", "reason"), [
    ("is_excluded", "Excluded"), ("is_pressed", "Pressure"), ("is_cordoned", "Cordoned"),
    ("is_draining", "Draining"),
])  # fmt: skip
def test_what_releases_does_so_at_once(said: str, reason: str) -> None:
    got = planned(6000, held(LOADED, written_s=999.0), **{said: True})
    assert Reason(got.reason[0]).token == reason
    assert got.is_due[0]
    assert (got.requests == LEAST).all()
    # Released already: there is nothing to write, whatever the load says.
    assert not planned(6000, held(1.0), **{said: True}).is_due[0]


def test_a_silent_feed_lets_go_after_two_windows() -> None:
    for now, token in ((1599.0, "WithinStep"), (1601.0, "StaleUsage")):
        got = plan(nodes([6000]), states(1), held(LOADED), THETA, now, SETTINGS)
        assert Reason(got.reason[0]).token == token
        assert got.is_due[0] == (token == "StaleUsage")


def test_a_pod_of_lower_priority_opens_its_node_and_no_other() -> None:
    ballast = replace(held(LOADED, 5800), has_lesser=np.array([True, False]))
    got = plan(nodes([6000, 9000]), states(2), ballast, THETA, 1000.0, SETTINGS)
    assert [Reason(each).token for each in got.reason] == ["LowerPriority", "WithinStep"]
    assert got.is_due.tolist() == [True, False]
    assert got.requests[0].tolist() == [1.0, 5800.0]


def test_a_node_is_written_once_a_minute() -> None:
    got = planned(6000, held(1.0, written_s=950.0))
    assert (Reason(got.reason[0]).token, bool(got.is_due[0])) == ("TooSoon", False)
    assert planned(6000, held(1.0, written_s=940.0)).is_due[0]


@pytest.mark.parametrize("field", ["capacity", "allocatable", "requested", "young"])
@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
def test_nonsense_about_one_node_leaves_that_node_alone(field: str, bad: float) -> None:
    both = nodes([6000, 6000])
    column = getattr(both, field).copy()
    column[1, 1] = bad
    got = plan(replace(both, **{field: column}), states(2), held(1.0, 1.0), THETA, 1000.0, SETTINGS)
    assert [Reason(r).token for r in got.reason] == ["Loaded", "Unreadable"]
    assert got.is_due.tolist() == [True, False]


def test_a_node_without_ballast_is_not_written_and_is_open() -> None:
    got = planned(6000, held(math.nan))
    assert (Reason(got.reason[0]).token, bool(got.is_due[0])) == ("NoBallast", False)


def test_a_node_full_by_requests_keeps_the_least() -> None:
    full = nodes([9000], requested=9800.0)
    got = plan(full, states(1), held(1.0), THETA, 1000.0, SETTINGS)
    assert (got.requests[0, 0], bool(got.is_due[0])) == (1.0, False)


def test_young_pods_count_with_what_they_requested() -> None:
    got = plan(nodes([5000], young=1000.0), states(1), held(1.0), THETA, 1000.0, SETTINGS)
    assert got.requests[0, 0] == LOADED


def test_noise_of_five_percent_writes_hardly_any_node() -> None:
    rng = np.random.default_rng(1)
    count, rounds = 2_000, 60
    steady = rng.uniform(2000, 9500, count)
    samples = steady * rng.uniform(0.95, 1.05, (rounds + 20, count))
    current = held(*[1.0] * count)
    written: list[float] = []
    for number in range(rounds):
        now = 1000.0 + 15 * number
        cluster = nodes(samples[number : number + 20].mean(axis=0).tolist())
        measured = replace(cluster, measured_s=np.full(count, now))
        got = plan(measured, states(count), current, THETA, now, SETTINGS)
        written.append(float(got.is_due.mean()))
        requests = np.where(got.is_due, got.requests, current.requests)
        current = HeldBallast(requests, np.where(got.is_due, now, current.written_s))
    print(f"nodes written: first round {written[0]:.1%}, then at most {max(written[1:]):.2%}")
    assert written[0] > 0.5
    assert max(written[4:]) <= 0.05
