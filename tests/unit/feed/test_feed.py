"""The feed against a fake Prometheus: what is merged, joined, kept and remembered."""

import asyncio
import gc
import math
from functools import partial

import pytest
from msgspec import structs

from podscale.feed.prover.confinement import Confinement, confined
from tests.unit.feed.opened import NOW_S, held, queries, served
from tests.unit.feed.prometheus import pods_plan, want


async def test_demands_of_many_namespaces_share_one_query(fake, opened):
    feed, plan = await opened(), pods_plan()
    demands = [want(plan, f"n{n}", "p0", "p1", known=3) for n in range(8)]
    outcomes = await feed.read(demands)
    assert [served(outcome)["p1"] for outcome in outcomes] == [10.0 * n + 1 for n in range(8)]
    assert queries(feed) == {"batch": 1}
    (query,) = [asked for asked in fake.queries if len(asked.values("namespace")) == 8]
    assert query.verb == "POST"
    assert query.headers["Accept-Encoding"] == "identity"
    assert query.values("pod") == []  # wide: three known, two wanted


async def test_concurrent_readers_share_one_query(fake, opened):
    feed, plan = await opened(), pods_plan()
    reads = [feed.read([want(plan, f"n{n}", "p0", known=3)]) for n in range(8)]
    await asyncio.gather(*reads)
    assert queries(feed) == {"batch": 1}
    assert (feed.stats.misses, feed.stats.merged) == (1, 7)


async def test_all_batches_are_for_one_whole_second(fake, opened):
    feed, plan = await opened(), pods_plan()
    outcomes = await feed.read([want(plan, "n1", "p0"), want(plan, "n2", "p0", known=1)])
    assert {outcome.asked_s for outcome in outcomes} == {math.floor(NOW_S)}
    assert {asked.time_s for asked in fake.asked} == {math.floor(NOW_S)}
    assert queries(feed) == {"batch": 2}  # one named, one wide


async def test_a_snapshot_serves_until_max_age_and_no_longer(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    first = await feed.read([want(plan, "n1", "p0")])
    clock.now_s = NOW_S + 4.7
    again = await feed.read([want(plan, "n1", "p0")])
    assert again[0] is first[0]  # the same object: consumers keep what they made of it
    clock.now_s = NOW_S + 5.0  # 5.25 s after the second asked for
    assert (await feed.read([want(plan, "n1", "p0")]))[0] is not first[0]
    assert queries(feed) == {"batch": 2}
    assert feed.stats.hits == 1


async def test_a_namespace_without_duplicates_keeps_no_set_for_them(fake, opened, clock):
    def sets() -> int:
        return sum(type(each) is frozenset and not each for each in gc.get_objects())

    feed, plan = await opened(), pods_plan()
    demands = [want(plan, f"n{n}", "p0", "p1", known=3) for n in range(8)]
    before = sets()
    await feed.read(demands)
    clock.now_s += 15
    await feed.read(demands)  # in the places known from the first
    assert sets() - before < len(demands)  # of thousands the collector would walk each


async def test_max_age_zero_merges_and_keeps_nothing(fake, opened):
    feed, plan = await opened(max_age_s=0.0), pods_plan()
    demands = [want(plan, "n1", "p0"), want(plan, "n2", "p0")]
    await feed.read(demands)
    await feed.read(demands)
    assert queries(feed) == {"batch": 2}


async def test_a_refresh_reads_again_what_was_wanted_lately(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    await feed.read([want(plan, "n1", "p0"), want(plan, "n2", "p0")])
    clock.now_s += 15
    await feed.read([want(plan, "n1", "p0")])
    assert (await feed.read([want(plan, "n2", "p0")]))[0].asked_s == math.floor(NOW_S + 15)
    assert queries(feed) == {"batch": 2}
    clock.now_s += 46
    await feed.read([want(plan, "n1", "p0")])
    assert fake.queries[-1].values("namespace") == ["n1"]  # n2 was forgotten


async def test_queried_and_empty_answers_but_not_queried_never_does(fake, opened):
    feed, plan = await opened(), pods_plan()
    (empty,) = await feed.read([want(plan, "n1", "p9")])
    assert served(empty) == {}
    await feed.read([want(plan, "n1", "p9")])
    assert queries(feed) == {"batch": 1}
    (found,) = await feed.read([want(plan, "n1", "p0")])  # same namespace, not asked for before
    assert served(found)["p0"] == 10.0
    assert queries(feed) == {"batch": 2}


async def test_a_cancelled_waiter_leaves_the_query_to_the_others(fake, opened):
    feed, plan = await opened(), pods_plan()
    release = asyncio.Event()
    fake.react = lambda _: held(release)
    first = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    second = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await fake.arrived.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    release.set()
    assert served((await second)[0])["p0"] == 10.0
    assert queries(feed) == {"batch": 1}


async def test_who_comes_while_a_query_runs_joins_it(fake, opened):
    feed, plan = await opened(), pods_plan()
    release = asyncio.Event()
    fake.react = lambda _: held(release)
    first = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await fake.arrived.wait()
    second = asyncio.create_task(feed.read([want(plan, "n1", "p0")]))
    await asyncio.sleep(0.02)
    release.set()
    await asyncio.gather(first, second)
    assert queries(feed) == {"batch": 1}


async def test_a_demand_that_comes_again_is_remembered_from_its_last_time(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    again = want(plan, "n1", "p0", "p1")
    for _ in range(5):
        await feed.read([again])
        clock.now_s += 15
    await feed.read([want(plan, "n1", "p2")])
    named = fake.queries[-1].values("pod")
    assert sorted(named) == ["p0", "p1", "p2"]  # both were wanted 15 s ago
    clock.now_s += 40
    await feed.read([want(plan, "n1", "p2")])
    assert fake.queries[-1].values("pod") == ["p2"]  # 55 s ago
    clock.now_s += 15
    await feed.read([again])
    assert sorted(fake.queries[-1].values("pod")) == ["p0", "p1", "p2"]


async def test_a_reader_of_many_that_gives_up_stops_nobody_else(fake, opened):
    feed, plan = await opened(), pods_plan()
    wanted = [want(plan, f"n{n}", "p0", known=3) for n in range(8)]
    leaving, staying = (asyncio.create_task(feed.read(wanted)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert [served(outcome)["p0"] for outcome in await staying] == [10.0 * n for n in range(8)]


async def test_an_answer_that_comes_while_its_reader_gives_up_finds_nobody(fake, opened):
    feed, plan = await opened(), pods_plan()
    feed.group(want(plan, "n0"))  # is proved
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, about: said.append(about))
    reader = asyncio.create_task(feed.read([want(plan, f"n{n}", "p0") for n in range(2)]))
    await asyncio.sleep(0)
    ((refresh,),) = feed._refreshes.values()
    reader.cancel()
    for future in refresh._waiting.values():
        future.set_result(None)  # a batch that failed: each is to take its own query
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not said


async def test_plans_that_are_new_leave_turns_to_others(fake, opened):
    feed, terms = await opened(), "+".join(["m"] * 80)
    kept = partial(confined, to=Confinement("namespace", "n1"))
    plans = [
        structs.replace(
            pods_plan(template=f"topk(1, {terms} + m{{<M>}})", matchers=(f'x="{n}"',)), confine=kept
        )
        for n in range(40)
    ]
    turns = 0

    async def others():
        nonlocal turns
        while not fake.asked:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(others())
    outcomes = await feed.read([want(plan, "n1", "p0") for plan in plans])
    assert len(outcomes) == len(plans)
    await counting
    assert turns > len(plans), "one for each proof"


async def test_names_that_were_asked_for_are_kept_once(fake, opened, clock):
    feed, plan = await opened(), pods_plan()
    names = ["".join(("p", str(n))) for n in range(2)]
    (found,) = await feed.read([want(plan, "n1", *names, known=3)])
    kept = {name: name for name in found.objects}
    assert all(kept[name] is name for name in names)
    assert served(found) == {"p0": 10.0, "p1": 11.0, "p2": 12.0}  # and those that were not


async def test_metrics_of_the_same_pods_share_one_index_and_others_do_not(fake, opened, clock):
    feed = await opened()
    one, other = pods_plan(rule="r1"), pods_plan(rule="r2")
    narrow = pods_plan(rule="r3", matchers=('pod!="p0"',))
    found = await feed.read([want(each, "n1", "p0", known=3) for each in (one, other)])
    assert found[0].objects is found[1].objects
    assert [served(each) for each in found] == [{"p0": 10.0, "p1": 11.0, "p2": 12.0}] * 2
    (few,) = await feed.read([want(narrow, "n2", "p1", known=3)])
    (all_,) = await feed.read([want(one, "n2", "p1", known=3)])
    assert served(all_) == {"p0": 20.0, "p1": 21.0, "p2": 22.0}
    assert served(few)["p1"] == 21.0


async def test_plans_that_nobody_wants_are_forgotten_without_a_relist(fake, opened, clock):
    feed = await opened()
    for n in range(50):
        await feed.read([want(pods_plan(matchers=(f'x="{n}"',)), "n1", "p0")])
    assert len(feed._groups) == 50
    await asyncio.sleep(0.01)  # the last refresh ends after its answer
    clock.now_s += 2000
    await feed.read([want(pods_plan(), "n1", "p0")])
    assert len(feed._groups) == 1
