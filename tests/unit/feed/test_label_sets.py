"""Long lists of label sets, which nobody waits for when they go."""

import asyncio

import pytest

from podscale.feed.decoding.wire import InstantAnswer, LabelSets, VectorReader
from podscale.feed.plan import KeyLabels, QueryPlan
from podscale.feed.queries.answer_rows import own_at_once, reading

ROWS = 10_000


class Freed(dict[str, str]):
    """A label set that counts when it goes."""

    count = 0

    def __del__(self) -> None:
        type(self).count += 1


@pytest.fixture(autouse=True)
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Freed, "count", 0)


async def freed_in_turns() -> list[int]:
    """Return how many label sets each turn of the loop freed."""
    turns, before = [], 0
    while Freed.count < ROWS:
        turns.append(Freed.count - before)
        before = Freed.count
        assert len(turns) < ROWS
        await asyncio.sleep(0)
    return turns


async def test_a_turn_of_the_loop_frees_a_few_hundred_label_sets_at_most() -> None:
    labels = LabelSets(Freed(id=str(row)) for row in range(ROWS))
    del labels
    turns = await freed_in_turns()
    assert turns[0] == 0
    assert max(turns) <= 256


@pytest.mark.parametrize("goes_last", ["answer", "rows", "served"])
async def test_so_it_is_whoever_of_an_answer_goes_last(goes_last: str) -> None:
    plan = QueryPlan("external", "r", "m", KeyLabels("namespace", ""), lambda _, __: "")
    labels = LabelSets(Freed(id=str(row)) for row in range(ROWS))
    answer = InstantAnswer("vector", labels, [1.0] * ROWS, [0.0] * ROWS)
    rows = own_at_once(answer, 0.0)
    assert rows is not None
    alive = {"answer": answer, "rows": rows, "served": reading(rows, plan, 300.0)}
    del labels, answer, rows
    last = alive.pop(goes_last)
    alive.clear()
    await asyncio.sleep(0)
    assert Freed.count == 0
    del last
    assert max(await freed_in_turns()) <= 256


def test_without_a_loop_they_go_at_once() -> None:
    labels = LabelSets(Freed(id=str(row)) for row in range(ROWS))
    del labels
    assert Freed.count == ROWS


def test_what_a_decoder_collects_is_such_a_list() -> None:
    reader = VectorReader()
    reader.page(b'[{"metric":{"id":"1"},"value":[0,"1"]}]')
    answer = reader.end(b'{"status":"success","data":{"resultType":"vector","result":[]}}')
    assert isinstance(answer.metrics, LabelSets)
