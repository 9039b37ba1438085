"""What the flags of room and headroom come to, and what is refused."""

import pytest

from podscale.nodes import flags as nodes_flags
from podscale.nodes.decide.ballast import BallastSettings
from podscale.nodes.flags import NodesChoice
from podscale.nodes.headroom.shapes import HeadroomLimit
from podscale.serving import flags


def chosen(*words: str) -> NodesChoice:
    parsed = flags.parse(words, nodes_flags.TABLE)
    assert nodes_flags.problems(parsed) == []
    return nodes_flags.choice(parsed, own_namespace="podscale")


def test_neither_is_on_by_default() -> None:
    assert (chosen().room, chosen().headroom) == (None, None)


def test_defaults_are_those_of_the_decision() -> None:
    # One truth in two places: who builds settings without flags decides as the command does.
    assert chosen().ballast == BallastSettings() == BallastSettings(
        cpu_threshold=0.8, memory_threshold=0.85, window_s=300, step=0.02, release=0.5,
        write_interval_s=60,
    )  # fmt: skip
    assert chosen().mode == "shadow"


def test_what_is_switched_on() -> None:
    got = chosen("--make-room", "--min-replicas=3", "--headroom-max=memory=1Gi, cpu=1500m")
    assert got.room is not None
    assert (got.room.min_replicas, got.room.admission[0]) == (3, "podscale")
    elsewhere = chosen("--make-room", "--ballast-namespace=own")
    assert elsewhere.room is not None
    assert (elsewhere.namespace, elsewhere.room.ballast_namespace) == ("own", "own")
    assert got.headroom is not None
    assert got.headroom.limit == HeadroomLimit(1500, 2**30, 50)
    more = chosen("--headroom-max=cpu=8,memory=1Gi,pods=200").headroom
    assert more is not None
    assert more.limit.pods == 200


@pytest.mark.parametrize("text", ["cpu=8", "8", "cpu=8,memory=lots", "cpu=-1,memory=1Gi",
                                  "cpu=1,memory=1Gi,nvidia.com/gpu=1",
                                  "cpu=1,pods=5", "cpu=1,memory=1Gi,pods=-1"])  # fmt: skip
def test_an_unreadable_limit_is_refused_with_an_example(text: str) -> None:
    parsed = flags.parse([f"--headroom-max={text}"], nodes_flags.TABLE)
    (problem,) = nodes_flags.problems(parsed)
    assert "cpu=8,memory=32Gi" in problem


def test_a_share_above_one_is_refused() -> None:
    parsed = flags.parse(["--eviction-tolerance=1.5"], nodes_flags.TABLE)
    assert nodes_flags.problems(parsed) == ["--eviction-tolerance must be between 0 and 1"]
