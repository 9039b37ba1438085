"""Histories in ConfigMaps: spread, bounded, written by one leader after another."""

import asyncio
import base64
import gzip
import json
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from hpa.history.configmaps import FEWEST, LARGEST_BYTES, HistoryConfigMaps
from hpa.history.history import HistoryRecord
from podscale.kube.client.errors import (
    Forbidden,
    KubeError,
    NotLeading,
    ServerFailed,
    TooManyRequests,
)
from podscale.kube.client.wire import encode
from tests.unit.hpa.world import World, history_of

pytestmark = pytest.mark.looptime
RECORD = HistoryRecord(((3, 100.0),), size=3, at=100.0)


def rewrite(config_map: Any, packed: bytes) -> None:
    config_map["binaryData"]["history.json.gz"] = base64.b64encode(packed).decode()


async def written(shards: HistoryConfigMaps, seconds: float) -> None:
    task = asyncio.ensure_future(shards.run())
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    await asyncio.wait({task})


async def test_what_was_put_is_loaded_by_the_next_one() -> None:
    world = World()
    first = HistoryConfigMaps(world, "podscale", "hpa")
    keys = [(f"ns-{n % 7}", f"web-{n}") for n in range(200)]
    for n, key in enumerate(keys):
        first.put(key, HistoryRecord(((n, 100.0 + n),), size=n, at=100.0))
    await written(first, 1.0)
    assert 1 < len(world.config_maps) <= FEWEST
    found = await HistoryConfigMaps(world, "podscale", "hpa").load()
    assert found == {
        key: HistoryRecord(((n, 100.0 + n),), size=n, at=100.0) for n, key in enumerate(keys)
    }


@pytest.mark.parametrize(
    ("others", "fewest", "most"),
    [
        pytest.param(0, 15, 20, id="small: what is not written yet would be forgotten"),
        pytest.param(10_000, 2, 3, id="large: a write costs both sides"),
    ],
)
async def test_a_shard_is_written_soon_and_then_at_most_every_gap(
    others: int, fewest: int, most: int
) -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=5.0)
    many = tuple((n, float(n)) for n in range(others))
    shards.put(("shop", "web"), HistoryRecord(many, at=0.0))
    task = asyncio.ensure_future(shards.run())
    for n in range(100):
        shards.put(("shop", "web"), HistoryRecord((*many, (n, float(n))), at=float(n)))
        if n == 5:
            assert len(world.writes) == 1
        await asyncio.sleep(0.1)
    assert fewest <= len(world.writes) <= most
    await asyncio.sleep(5.0)
    assert "[99,99.0]" in history_of(world.writes[-1][2])
    task.cancel()
    await asyncio.wait({task})


async def test_an_older_leaders_last_write_does_not_stop_ours() -> None:
    world = World()
    old, new = (HistoryConfigMaps(world, "podscale", "hpa") for _ in range(2))
    old.put(("shop", "web"), RECORD)
    await written(old, 1.0)
    await new.load()
    old.put(("shop", "web"), HistoryRecord(size=9, at=200.0))
    await written(old, 1.0)
    new.put(("shop", "web"), HistoryRecord(size=4, at=300.0))
    await written(new, 1.0)
    assert (await HistoryConfigMaps(world, "podscale", "hpa").load())[("shop", "web")].size == 4


async def test_a_failed_write_is_tried_again_and_a_lost_lease_ends_it() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=1.0)
    world.fail = lambda method, _path: (
        ServerFailed(500, "", "etcd is full") if method != "GET" else None
    )
    shards.put(("shop", "web"), RECORD)
    task = asyncio.ensure_future(shards.run())
    await asyncio.sleep(3.0)
    assert world.config_maps == {}
    world.fail = lambda _method, _path: None
    await asyncio.sleep(3.0)
    assert len(world.config_maps) == 1

    def guard() -> None:
        raise NotLeading("no more")

    world.guard = guard
    shards.put(("shop", "web"), None)
    with pytest.raises(NotLeading):
        await task
    assert "shop/web" in world.histories()


async def test_a_shard_that_would_outgrow_its_config_map_is_split() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=0.0)
    runs = tuple((n, 1_795_000_000.123 + n) for n in range(120))
    keys = [("namespace-with-a-long-name", f"workload-{n}") for n in range(2000)]
    for key in keys:
        shards.put(key, HistoryRecord(runs, at=1.0))
    await written(shards, 5.0)
    assert len(world.config_maps) > FEWEST
    assert all(len(history_of(each)) <= LARGEST_BYTES for each in world.config_maps.values())
    assert set(await HistoryConfigMaps(world, "podscale", "hpa").load()) == set(keys)


def keys_in(config_maps: dict[str, Any]) -> set[str]:
    return {key for each in config_maps.values() for key in json.loads(history_of(each))}


@pytest.mark.parametrize("gap_s", [0.0, 5.0])
@pytest.mark.parametrize("is_refused", [False, True], ids=["stored", "new ones are refused"])
async def test_every_history_stands_somewhere_while_shards_are_split(
    gap_s: float, is_refused: bool
) -> None:
    class Watched(World):
        least = 10**6

        async def request(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return await super().request(*args, **kwargs)
            finally:
                if len(self.config_maps) >= FEWEST:
                    self.least = min(self.least, len(keys_in(self.config_maps)))

    world = Watched()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=gap_s)
    keys = [("shop", f"web-{n}") for n in range(170)]
    for key in keys:
        shards.put(key, RECORD)
    await written(shards, 1.0)
    assert len(world.config_maps) == FEWEST
    world.least = len(keys)
    # Only one of them outgrows its ConfigMap; the others have changed a little.
    long = HistoryRecord(tuple((n, 1_795_000_000.123 + n) for n in range(220)), at=2.0)
    first = keys_in({"": world.config_maps["podscale-hpa-history-0"]})
    for key in keys:
        shards.put(key, long if "/".join(key) in first else RECORD)
    refusal = Forbidden(403, "Forbidden", "exceeded quota")
    world.fail = lambda method, _path: refusal if method == "POST" and is_refused else None
    await written(shards, 12.0)
    assert world.least == len(keys)
    if is_refused:
        assert len(world.config_maps) == FEWEST
        world.fail = lambda _method, _path: None
        for key in (("shop", "one-more"), *keys):
            shards.put(key, HistoryRecord(long.runs, at=3.0) if "/".join(key) in first else RECORD)
        await written(shards, 30.0)
    assert len(world.config_maps) > FEWEST
    told = [json.loads(history_of(each)) for each in world.config_maps.values()]
    assert sum(map(len, told)) == len(keys) + is_refused, "each in one place, at last"
    assert world.least == len(keys)
    assert set(await HistoryConfigMaps(world, "podscale", "hpa").load()) >= set(keys)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(gzip.compress(b"{not json"), id="not JSON"),
        pytest.param(gzip.compress(b'{"\xff/web": {}}'), id="not UTF-8"),
        pytest.param(b"not gzip", id="not gzip"),
        pytest.param(gzip.compress(b"{}" * 99)[:-9], id="cut off"),
        pytest.param(gzip.compress(b"{}")[:12] + b"\xff" * 9, id="broken inside"),
    ],
)
async def test_a_damaged_config_map_costs_only_its_own_histories(damaged: bytes) -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    for n in range(50):
        shards.put(("shop", f"web-{n}"), RECORD)
    await written(shards, 1.0)
    broken = next(iter(world.config_maps.values()))
    rewrite(broken, damaged)
    found = await HistoryConfigMaps(world, "podscale", "hpa").load()
    assert len(found) == 25


async def test_a_damaged_history_costs_no_other_one() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    for n in range(50):
        shards.put(("shop", f"web-{n}"), RECORD)
    await written(shards, 1.0)
    stored = next(each for each in world.config_maps.values() if "shop/" in history_of(each))
    histories = json.loads(history_of(stored))
    broken = next(iter(histories))
    histories[broken] = {"size": "three"}
    rewrite(stored, gzip.compress(json.dumps(histories).encode()))
    found = await HistoryConfigMaps(world, "podscale", "hpa").load()
    assert len(found) == 49
    assert tuple(broken.split("/")) not in found


async def test_the_last_flush_splits_what_has_grown_since() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    runs = tuple((n, 1_795_000_000.123 + n) for n in range(280))
    keys = [("shop", f"web-{n}") for n in range(170)]
    for key in keys:
        shards.put(key, HistoryRecord(runs, at=1.0))
    await shards.flush()
    assert set(await HistoryConfigMaps(world, "podscale", "hpa").load()) == set(keys)


@pytest.mark.parametrize("accepted", [0, 1, 3, 99])
async def test_histories_stay_whole_and_new_while_some_new_shards_are_refused(
    accepted: int,
) -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=5.0)
    keys = [("shop", f"web-{n}") for n in range(170)]
    runs = tuple((n, 1_795_000_000.123 + n) for n in range(280))  # 170 of these take eight shards
    refusal = Forbidden(403, "Forbidden", "exceeded quota")
    for key in keys:
        shards.put(key, RECORD)
    await written(shards, 1.0)

    def fail(method: str, _path: str) -> Exception | None:
        is_full = len(world.config_maps) == FEWEST + accepted
        return refusal if method == "POST" and is_full else None

    world.fail = fail
    there = keys[:-1]
    shards.put(keys[-1], None)
    for at, changed in ((2.0, there), (3.0, there[::2])):
        for key in changed:
            shards.put(key, HistoryRecord(runs, at=at))
        await written(shards, 30.0)
        found = await HistoryConfigMaps(world, "podscale", "hpa").load()
        assert set(keys) >= set(found) >= set(there)
        assert {found[key].at for key in changed} <= {at}
    assert len(world.config_maps) == min(FEWEST + accepted, 8)
    world.fail = lambda _method, _path: None
    for key in there:
        shards.put(key, HistoryRecord(runs, at=4.0))
    await written(shards, 30.0)
    told = [json.loads(history_of(each)) for each in world.config_maps.values()]
    assert sum(map(len, told)) == len(keys) - 1, "each in one place, at last"


def of_bytes(size: int) -> HistoryRecord:
    """Return a history whose line takes about so many bytes."""
    return HistoryRecord(tuple((n, 1_795_000_000.123 + n) for n in range(size // 22)), at=1.0)


@pytest.mark.parametrize("long", [100_000, 180_000, 300_000])
async def test_one_long_history_makes_no_shards_and_costs_no_other_one(long: int) -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=0.5)
    keys = [("shop", f"web-{n}") for n in range(100)]
    for key in keys:
        shards.put(key, of_bytes(3000))
    with capture_logs() as logs:
        task = asyncio.ensure_future(shards.run())
        for _ in range(20):
            shards.put(("shop", "long"), of_bytes(long))
            await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.wait({task})
    assert len(world.config_maps) <= 2 * FEWEST
    is_stored = long < LARGEST_BYTES
    expected = {*keys, ("shop", "long")} if is_stored else set(keys)
    assert set(await HistoryConfigMaps(world, "podscale", "hpa").load()) == expected
    told = [(each["log_level"], each["autoscaler"]) for each in logs]
    assert told == ([] if is_stored else [("warning", "shop/long")])


async def test_a_history_that_became_too_long_is_forgotten_and_stored_when_it_fits_again() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    for size, stored in ((3000, 1), (300_000, 0), (3000, 1), (300_000, 0)):
        with capture_logs() as logs:
            shards.put(("shop", "web"), of_bytes(size))
            await written(shards, 5.0)
        assert len(await HistoryConfigMaps(world, "podscale", "hpa").load()) == stored
        assert len(logs) == 1 - stored


async def test_many_long_histories_are_spread_over_no_more_shards_than_they_fill() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=0.0)
    keys = [("shop", f"web-{n}") for n in range(40)]
    for key in keys:
        shards.put(key, of_bytes(80_000))
    await written(shards, 30.0)
    assert 8 <= len(world.config_maps) <= 32
    assert set(await HistoryConfigMaps(world, "podscale", "hpa").load()) == set(keys)


async def test_a_line_that_stands_twice_counts_as_the_newest_and_then_stands_once() -> None:
    """A leader that ended between storing a new ConfigMap and the one it was split off from."""
    world = World()
    for part, at in ((0, 2.0), (1, 1.0)):
        before = HistoryConfigMaps(world, "podscale", "hpa")
        before._shards = {part: before._shards[part]}
        before.put(("shop", "web"), HistoryRecord(size=part, at=at))
        await before.flush()
    after = HistoryConfigMaps(world, "podscale", "hpa")
    assert (await after.load())[("shop", "web")].size == 0
    await after.flush()
    told = [json.loads(history_of(each)) for each in world.config_maps.values()]
    assert sum(map(len, told)) == 1
    assert (await HistoryConfigMaps(world, "podscale", "hpa").load())[("shop", "web")].size == 0


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (Forbidden(403, "Forbidden", "no"), [1, 2, 4, 8, 16, 30, 30]),
        (TooManyRequests(429, "", "slow", retry_after_s=5.0), [5, 5, 5, 8, 16, 30]),
        (TooManyRequests(429, "", "slow", retry_after_s=3600.0), [30, 30, 30]),
        (KubeError("keeps changing"), [1, 2, 4, 8, 16, 30, 30]),
    ],
)
async def test_a_refused_shard_is_tried_less_and_less_often_and_told_of_once(
    error: Exception, pauses: list[int]
) -> None:
    world = World()
    tried: list[float] = []

    def fail(_method: str, _path: str) -> Exception:
        tried.append(asyncio.get_running_loop().time())
        return error

    world.fail = fail
    shards = HistoryConfigMaps(world, "podscale", "hpa")
    shards.put(("shop", "web"), RECORD)
    with capture_logs() as logs:
        task = asyncio.ensure_future(shards.run())
        for n in range(1200):
            shards.put(("shop", "web"), HistoryRecord(size=n, at=float(n)))
            await asyncio.sleep(0.1)
        found = [b - a for a, b in pairwise(tried)]
        for gap, pause in zip(found, pauses, strict=False):
            assert pause - 0.01 <= gap <= pause + 0.41
        assert len(found) >= len(pauses) - 2
        assert len(logs) == 1
        world.fail = lambda _method, _path: ServerFailed(500, "", "etcd is full")
        await asyncio.sleep(90.0)
        assert len(logs) == 2
        world.fail = lambda _method, _path: None
        await asyncio.sleep(31.0)
        assert "shop/web" in world.histories()
    task.cancel()
    await asyncio.wait({task})


async def test_the_oldest_change_that_is_not_stored_has_an_age() -> None:
    now = asyncio.get_running_loop().time
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=1.0)
    task = asyncio.ensure_future(shards.run())
    shards.put(("shop", "web"), RECORD)
    assert shards.unsaved_s(now() + 1.0) == 1.0
    await asyncio.sleep(1.0)
    assert shards.unsaved_s(now()) == 0.0
    world.delay = lambda _method, _path: 9.0
    world.fail = lambda _method, _path: ServerFailed(500, "", "etcd is full")
    shards.put(("shop", "web"), HistoryRecord(size=1, at=1.0))
    for second in range(200):
        await asyncio.sleep(1.0)  # on its way, or waiting to be: it is as old
        assert shards.unsaved_s(now()) == second + 1
        shards.put(("shop", "web"), HistoryRecord(size=second, at=1.0))
    world.fail = lambda _method, _path: None
    await asyncio.sleep(50.0)
    assert shards.unsaved_s(now()) == 0.0
    # What changes while a write is on its way is not in it.
    shards.put(("shop", "web"), HistoryRecord(size=1, at=2.0))
    await asyncio.sleep(5.0)
    shards.put(("shop", "web"), HistoryRecord(size=2, at=3.0))
    await asyncio.sleep(5.0)
    assert shards.unsaved_s(now()) == pytest.approx(5.0)
    await asyncio.sleep(10.0)
    assert shards.unsaved_s(now()) == 0.0
    task.cancel()
    await asyncio.wait({task})


async def test_what_stands_with_the_shard_it_was_split_off_from_is_stored() -> None:
    now = asyncio.get_running_loop().time
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=1.0)
    for n in range(170):
        shards.put(("shop", f"web-{n}"), RECORD)
    await written(shards, 1.0)
    refusal = Forbidden(403, "Forbidden", "exceeded quota")
    world.fail = lambda method, _path: refusal if method == "POST" else None
    for n in range(170):
        shards.put(("shop", f"web-{n}"), of_bytes(4000))
    await written(shards, 10.0)
    assert len(world.config_maps) == FEWEST
    assert shards.unsaved_s(now()) == 0.0


async def test_two_histories_that_do_not_quite_fit_together_are_split_once() -> None:
    world = World()
    shards = HistoryConfigMaps(world, "podscale", "hpa", gap_s=0.0)
    long, longer = of_bytes(100_000), of_bytes(103_000)

    def bytes_of(name: str, record: HistoryRecord) -> int:
        return len(encode(f"shop/{name}")) + 1 + len(encode(record))

    # Of two lines with what stands between them, and around.
    left = LARGEST_BYTES - 3 - bytes_of("web", long) - bytes_of("", longer)
    shards.put(("shop", "web"), long)
    shards.put(("shop", "other"), of_bytes(150_000))
    for _ in range(5):
        shards.put(("shop", "w" * left), longer)
        await written(shards, 1.0)
    assert len(world.config_maps) == 3
