"""Bounded caches: so many bytes, so long, and what is wanted stays."""

import tracemalloc
from collections.abc import Callable

import pytest

from podscale.core import boundedcache
from podscale.core.boundedcache import BoundedCache
from podscale.core.selectors import selector
from podscale.serving import request_info
from podscale.serving.apis import negotiate

KIB = 1024


def test_what_is_put_is_found_and_what_is_not_is_none() -> None:
    cache: BoundedCache[str, int] = BoundedCache(1024 * KIB)
    cache.put("a", 1, 10)
    assert (cache.get("a"), cache.get("b"), len(cache)) == (1, None, 1)
    cache.put("a", 2, 20)
    assert (cache.get("a"), len(cache)) == (2, 1)
    cache.clear()
    assert (cache.get("a"), len(cache), cache.held_bytes) == (None, 0, 0)


def test_bytes_are_bounded_whatever_comes() -> None:
    cache: BoundedCache[int, str] = BoundedCache(512 * KIB)
    most = 0
    for number in range(5_000):
        cache.put(number, "x", number % 1_500)
        cache.get(number // 2)
        most = max(most, cache.held_bytes)
    assert 256 * KIB < most <= 512 * KIB


def test_putting_one_key_again_counts_it_once() -> None:
    cache: BoundedCache[str, int] = BoundedCache(512 * KIB)
    for number in range(1_000):
        cache.put("a", number, 1_000)
    assert cache.held_bytes < 2 * KIB


def test_one_large_entry_does_not_crowd_out_the_others() -> None:
    cache: BoundedCache[str, int] = BoundedCache(512 * KIB)
    cache.put("small", 1, 100)
    cache.put("large", 2, 3 * KIB)
    assert (cache.get("small"), cache.get("large")) == (1, None)


def test_what_is_looked_up_stays_while_strangers_come() -> None:
    cache: BoundedCache[str, int] = BoundedCache(512 * KIB)
    cache.put("wanted", 1, 100)
    for number in range(5_000):
        cache.put(f"stranger {number}", 2, 1_000)
        if number % 100 == 0:
            assert cache.get("wanted") == 1
    assert cache.get("stranger 0") is None


def test_what_nobody_looks_up_is_gone_after_its_age_and_the_rest_is_not() -> None:
    cache: BoundedCache[str, int] = BoundedCache(512 * KIB, age_s=60.0)
    boundedcache.grow_older(1_000.0)
    cache.put("wanted", 1, 100)
    cache.put("forgotten", 2, 100)
    for second in range(1_000, 1_061):
        boundedcache.grow_older(float(second))
        assert cache.get("wanted") == 1
    assert cache.get("forgotten") is None


def test_a_clock_that_is_set_back_does_not_keep_entries_for_ever() -> None:
    cache: BoundedCache[str, int] = BoundedCache(512 * KIB, age_s=60.0)
    cache.grow_older(1e9)
    cache.put("a", 1, 100)
    cache.grow_older(5.0)
    cache.grow_older(35.0)
    assert cache.get("a") is None


def _accepts(number: int) -> None:
    text = ",".join(f"a{number}/{each};p{each}=v" for each in range(40))
    negotiate.media(text, offers_table=False, pretty="", agent="")


def _targets(number: int) -> None:
    request_info.parse_target("GET", f"/a/{number}?" + "&".join(f"{number}{i}" for i in range(80)))
    request_info.parse_target("GET", f"/apis/g/v/{number}" + "/ab" * 150)


def _selectors(number: int) -> None:
    selector.parse(",".join(f"k{number}x{each}" for each in range(60)))
    selector.parse(f"k{number} in ({','.join(f'v{each}' for each in range(200))})")


@pytest.mark.parametrize(
    ("call", "cache"),
    [
        pytest.param(_accepts, negotiate._chosen, id="accept"),
        pytest.param(_targets, request_info._known, id="target"),
        pytest.param(_selectors, selector._known, id="selector"),
    ],
)
def test_the_sizes_that_are_told_are_not_less_than_what_is_held(
    call: Callable[[int], None], cache: BoundedCache[object, object]
) -> None:
    cache.clear()
    call(-1)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(400):
            call(number)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    told = cache.held_bytes
    cache.clear()
    assert held > 100 * KIB
    assert held <= told * 1.2
