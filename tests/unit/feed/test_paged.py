"""A long column reads as a list does, and neither the collector nor its end holds the loop up."""

import asyncio
import gc
import weakref

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.feed.decoding.paged import BLOCK, PagedList


class Item:
    """Something whose end can be seen."""


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=4), st.data())
def test_it_reads_as_a_list(sizes, data):
    listed, paged = [], PagedList()
    for size in sizes:
        more = list(range(len(listed), len(listed) + size))
        listed += more
        paged.extend(data.draw(st.sampled_from([more, iter(more), PagedList(more)])))
    assert list(paged) == listed == paged
    assert len(paged) == len(listed)
    assert paged[BLOCK // 2 : 2 * BLOCK + 3] == listed[BLOCK // 2 : 2 * BLOCK + 3]
    if listed:
        place = data.draw(st.integers(-len(listed), len(listed) - 1))
        assert paged[place] == listed[place]
    for outside in (len(listed), -len(listed) - 1):
        with pytest.raises(IndexError):
            paged[outside]


def test_a_copy_does_not_grow_with_it():
    paged = PagedList(range(BLOCK + 1))
    copy = paged.copy()
    paged.extend(range(BLOCK))
    copy.append("its own")
    assert (len(paged), len(copy)) == (2 * BLOCK + 1, BLOCK + 2)
    assert list(paged)[BLOCK:] == [BLOCK, *range(BLOCK)]


def test_undecoded_label_sets_are_kept_as_they_are():
    raw = msgspec.json.decode(b"[%b]" % b",".join([b'{"a":"b"}'] * BLOCK), type=list[msgspec.Raw])
    assert [bytes(each) for each in PagedList(raw)] == [b'{"a":"b"}'] * BLOCK


def test_the_collector_does_not_look_into_it():
    paged = PagedList({"id": str(number)} for number in range(20 * BLOCK))
    seen = gc.get_referents(*gc.get_referents(paged))
    assert not any(isinstance(each, dict) and "id" in each for each in seen)


async def test_it_is_freed_one_block_in_a_turn():
    items = [Item() for _ in range(3 * BLOCK)]
    alive = weakref.WeakSet(items)
    paged = PagedList(items)
    items.clear()
    counts = []
    del paged
    for _ in range(4):
        counts.append(len(alive))
        await asyncio.sleep(0)
    assert counts == [3 * BLOCK, 2 * BLOCK, BLOCK, 0]


async def test_blocks_that_somebody_else_holds_outlive_it():
    paged = PagedList(range(3 * BLOCK))
    other = paged.copy()
    del paged
    for _ in range(4):
        await asyncio.sleep(0)
    assert list(other) == list(range(3 * BLOCK))


def test_without_a_loop_it_is_freed_at_once():
    item = Item()
    gone = weakref.ref(item)
    paged = PagedList([item, *range(3 * BLOCK)])
    del item, paged
    assert gone() is None
