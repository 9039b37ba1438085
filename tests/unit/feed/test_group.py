"""What a group remembers of who wanted what."""

from hypothesis import given
from hypothesis import strategies as st

from podscale.feed.plan import Demand
from podscale.feed.queries.group import _Memory
from tests.unit.feed.prometheus import pods_plan

PLAN = pods_plan()
STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 40.0),
        st.sets(st.sampled_from("abcdefgh"), min_size=1).map(sorted).map(tuple) | st.none(),
    ),
    min_size=1,
    max_size=20,
)


@given(STEPS)
def test_names_are_remembered_from_when_they_were_wanted_last(steps) -> None:
    now_s, plain, memory = 0.0, dict[str, float](), None
    for pause_s, names in steps:
        now_s += pause_s
        if names is None:  # somebody looks what is to be forgotten
            oldest_s = now_s - 45.0
            if memory is None or memory.wanted_s < oldest_s:
                memory, plain = None, {}
                continue
            kept = {name: at for name, at in plain.items() if at >= oldest_s}
            assert memory.forget(oldest_s) == (len(kept) < len(plain))
            plain = kept
        else:
            demand = Demand(PLAN, "n", names)
            if memory is None:
                memory = _Memory(demand, now_s)
            else:
                memory.take(demand, now_s)
            plain |= dict.fromkeys(names, now_s)
        if memory is not None:
            assert len(memory) == len(plain)
            assert sorted(memory.names()) == sorted(plain)
