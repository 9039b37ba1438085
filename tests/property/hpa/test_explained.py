"""Explanations of random situations say only what there is."""

import re
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from hpa.decide.reconcile import decide
from hpa.explain.explanation import explain
from tests.property.hpa import worlds
from tests.property.hpa.worlds import NOW

seeds = st.integers(0, 2**32).map(Random)
NOTHING = re.compile(r"\bNone\b")


@given(seeds)
@settings(max_examples=1000, deadline=None)
def test_no_sentence_tells_of_none(draw: Random) -> None:
    seen, past = worlds.observation(draw), worlds.past(draw, NOW)
    found = explain(decide(seen, past, worlds.settings(draw), NOW).trace)
    told = [each for each in (*found.sentences, found.change) if NOTHING.search(each)]
    assert told == []
    assert None not in found.facts.values()
