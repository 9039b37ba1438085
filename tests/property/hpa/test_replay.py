"""A stored trace gives its decision again, bit for bit."""

import os
from random import Random

import msgspec

from hpa.decide.conclusion import conclude
from hpa.decide.decision import Decision, Outcome, Trace
from hpa.decide.reconcile import decide, replay
from hpa.explain.explanation import explain
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW

SEED = 20_260_000
COUNT = 3_000 if os.environ.get("PODSCALE_SHORT") else 100_000
EXPLAINED = COUNT // 20

encode = msgspec.msgpack.Encoder(enc_hook=float).encode  # of times that were read
OUTCOMES = (
    Outcome(),
    Outcome("conflict", "the object has been modified"),
    Outcome("failed", "forbidden"),
    Outcome("not_tried"),
    Outcome("written", "", "backend down"),
)


def read(kind: type[float], value: float) -> float:
    return kind(value)  # times of conditions


def made(draw: Random) -> Decision:
    return decide(worlds.observation(draw), worlds.past(draw, NOW), worlds.settings(draw), NOW)


def test_replayed_traces_give_their_decisions() -> None:
    kinds: set[tuple[str, ...]] = set()
    for number in range(COUNT):
        draw = Random(SEED + number)
        decision = made(draw)
        done = conclude(decision, draw.choice(OUTCOMES), NOW + 0.5)
        stored = encode(done.trace)
        again = replay(msgspec.msgpack.decode(stored, type=Trace, dec_hook=read))
        assert encode(again) == encode(decision), number
        kinds.add(tuple(type(step).__name__ for step in decision.trace.steps))
    print(f"{COUNT} traces from seed {SEED}, {len(kinds)} different ways of deciding")
    assert len(kinds) > 25


def test_everything_decided_can_be_stored_and_explained() -> None:
    for number in range(EXPLAINED):
        draw = Random(SEED - 1 - number)
        decision = made(draw)
        done = conclude(decision, draw.choice(OUTCOMES), NOW + 0.5)
        assert msgspec.msgpack.decode(encode(done), type=Decision, dec_hook=read) == done
        # JSON has no infinity: what is read back decides the same all the same.
        text = msgspec.json.encode(done.trace, enc_hook=float)
        again = replay(msgspec.json.decode(text, type=Trace, dec_hook=read))
        assert encode(again) == encode(decision)
        told = explain(done.trace)
        assert told.first_reason
        assert told.sentences or told.first_reason
        assert told.change
        msgspec.json.encode(told)
