"""The algebra of ballast: the fit check with it says what measured load says without it."""

import os

import numpy as np

from podscale.nodes.decide.ballast import LEAST, Bools, Floats, NodeColumns, needed

COUNT = 10_000 if os.environ.get("PODSCALE_SHORT") else 100_000
UNIT = np.array([[1.0], [2.0**20]])
THETA = np.array([[0.8], [0.85]])


def drawn(rng: np.random.Generator, count: int) -> tuple[NodeColumns, Floats]:
    """Nodes with Σ ≤ A that nobody measured idle, and one pod for each."""
    capacity = np.stack([
        rng.integers(1, 128, count) * 1000.0, rng.integers(1, 1024, count) * 2.0**30
    ])  # fmt: skip
    allocatable = np.floor(capacity * rng.uniform(0.7, 1.0, (2, count)))
    requested = np.floor(allocatable * rng.choice([0, rng.uniform(), 1, 0.5, 0.97], (2, count)))
    usage = capacity * rng.uniform(0, 1.3, (2, count))  # more than there is: a reading may be
    young = np.where(rng.random((2, count)) < 0.2, rng.uniform(0, 0.3) * capacity, 0)
    pods = np.ceil(capacity * rng.uniform(0.0001, 0.6, (2, count)))
    return NodeColumns(capacity, allocatable, usage, young, requested), pods


def test_the_fit_check_with_ballast_admits_exactly_by_load_and_requests() -> None:
    rng = np.random.default_rng(27)
    nodes, pods = drawn(rng, COUNT)
    ballast = needed(nodes, THETA)
    load = nodes.usage + nodes.young

    def refused(pod: Floats) -> Bools:
        # kube-scheduler's noderesources.Fit: more than what is left of allocatable.
        return np.asarray(pod > nodes.allocatable - nodes.requested - ballast)

    def admitted_by_load(pod: Floats) -> Bools:
        by_load: Bools = load + pod <= THETA * nodes.capacity
        return by_load & (nodes.requested + pod <= nodes.allocatable)

    # To within one unit: what the predicate admits with a unit to spare fits, and what it
    # refuses by more than one does not.
    assert not (refused(pods) & admitted_by_load(pods + UNIT)).any()
    assert not (~refused(pods) & ~admitted_by_load(pods - UNIT)).any()
    both = admitted_by_load(pods)
    assert 0.05 < both.mean() < 0.95  # both answers are drawn
    assert (ballast >= LEAST).all()
    room = nodes.allocatable - nodes.requested
    assert (ballast <= np.maximum(room, LEAST)).all()
