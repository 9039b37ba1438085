"""YAML in pieces says what YAML in one piece says, and leaves the loop to others."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscale.serving.apis.yaml_body import AT_ONCE, made, pieces, whole

TEXTS = st.text(max_size=20) | st.sampled_from(["1Ki", "true", "- x", "a: b", "x " * 60, "\n"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
ITEM = {
    "describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-7d5b-abcde"},
    "metric": {"name": "http_requests_per_second", "selector": None},
    "timestamp": "2023-11-14T22:13:18Z",
    "value": "1500m",
}


def listed(count: int) -> bytes:
    return json.dumps({"kind": "MetricValueList", "items": [ITEM] * count, "metadata": {}}).encode()


@given(st.dictionaries(TEXTS, st.lists(VALUES, max_size=8) | VALUES, max_size=4) | VALUES)
def test_pieces_make_up_the_whole(value: Any) -> None:
    body = json.dumps(value).encode()
    assert b"".join(pieces(body, 8)) == whole(body)


def test_a_long_list_is_made_a_few_items_at_a_time() -> None:
    body = listed(1000)
    found = list(pieces(body))
    assert b"".join(found) == whole(body)
    assert len(found) > len(body) / (2 * AT_ONCE)
    assert max(map(len, found)) < 2 * AT_ONCE


async def test_others_run_between_any_two_pieces() -> None:
    body, turn = listed(1000), asyncio.Lock()
    making = [asyncio.create_task(made(body, turn=turn)) for _ in range(2)]
    turns = 0
    while not all(one.done() for one in making):
        await asyncio.sleep(0)
        turns += 1
    assert [one.result() for one in making] == [whole(body)] * 2
    assert turns >= 2 * len(list(pieces(body)))


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"null", b' {"items":[]}\n', b'{"a":[1]}', b'{"%s":[1,[2,3]]}' % (b"x" * 200)],
)
def test_small_bodies_are_as_ever(body: bytes) -> None:
    assert b"".join(pieces(body, 0)) == whole(body)
