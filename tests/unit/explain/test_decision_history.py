"""How many changes of an object are kept, and that each is the same again."""

import random
from typing import Any

import msgspec
import pytest

from podscale.explain.decision_history import ChangeRing, DecisionHistory

KEY = ("jobs", "worker")


def told(turn: int, pods: int) -> dict[str, Any]:
    """A SizingDecision as they are made, with numbers that differ each time."""
    chance = random.Random(turn)
    amount = chance.randrange(10**8, 10**9)
    names = [f"worker-ng47swltg8-{turn // 5 * pods + n:05d}" for n in range(pods)]
    return {
        "kind": "SizingDecision",
        "metadata": {"name": "worker", "namespace": "jobs", "creationTimestamp": str(turn)},
        "status": {
            "first_reason": "PercentileOfUsage",
            "facts": {
                "percentile": 0.9, "margin": 0.15, "usage": chance.random() * 1e9,
                "confidence": chance.random(), "samples": turn, "last_sample": turn,
            },
            "sentences": [f"memory of app: {amount}. The amount is a percentile of the usage."],
            "recommendation": [{"container": "app", "decision": {"value": str(amount)}}],
            "pods": [
                {"pod": name, "first_reason": "WithinBoundsYoung", "also": [],
                 "change": "It has to get older, or leave its bounds.", "admission": [
                     {"container": "app", "value": "memory request", "vpa": "worker",
                      "first_reason": "RecommendationApplied", "facts": {"recommended": amount}},
                 ]}
                for name in names
            ],
        },
    }  # fmt: skip


@pytest.mark.parametrize(("pods", "least"), [(2, 32), (10, 20), (2000, 1)])
def test_changes_are_kept_as_far_as_they_fit_and_come_back_as_they_were(
    pods: int, least: int
) -> None:
    earlier = DecisionHistory[tuple[str, str], ChangeRing](ChangeRing)
    made = [msgspec.json.encode(told(turn, pods)) for turn in range(60)]
    for turn, body in enumerate(made):
        earlier.of(KEY).add(float(turn), turn, f"Reason{turn}", body)
        assert (earlier.of(KEY).mark, earlier.reason(KEY)) == (turn, f"Reason{turn}")
    since = earlier.known_since(KEY)
    assert since is not None
    assert len(made) - since >= least
    assert earlier.before(KEY, since - 1) is None
    for turn in range(int(since), len(made)):
        assert earlier.before(KEY, turn + 0.5) == made[turn]
    earlier.forget(KEY)
    assert earlier.known_since(KEY) is None
