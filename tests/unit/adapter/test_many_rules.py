"""Thousands of rules are replaced in time linear in their number, in short turns of the loop."""

import asyncio
import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from adapter.discovery.relist import Relister, RelistOptions
from adapter.rules.ruleset import RuleSet
from adapter.selfmetrics import AdapterMetrics
from podscale.feed.http.client import SeriesAnswer
from tests.unit.adapter.world import rules

RULE = """\
- seriesQuery: '{tag}_{number}{{namespace!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{matches: "^(.*)$", as: "${{1}}_per_second"}}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""
LONGEST_TURN_S = 0.1  # of CPU; a Lease is renewed within ten seconds
LABELS = frozenset([frozenset(("__name__", "namespace", "pod"))])


def many(tag: str, count: int) -> RuleSet:
    return rules("rules:\n" + "".join(RULE.format(tag=tag, number=n) for n in range(count)))


class Prometheus:
    """Has one series for each seriesQuery."""

    async def series(self, match, start_s, _source="", _wanted=None):
        await asyncio.sleep(0)
        return SeriesAnswer({match.partition("{")[0]: LABELS}, 1, False)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector, whose turns depend on what other tests have left."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def replacing(count: int) -> tuple[float, float]:
    """Return the CPU of all of it, and of the longest turn of the loop, in seconds."""
    first, second, few = many("a", count), many("b", count), many("c", 1)
    metrics = AdapterMetrics(CollectorRegistry())
    relister = Relister(Prometheus(), first, RelistOptions(), listed=metrics.relisted)
    longest_s = 0.0

    async def watch() -> None:
        nonlocal longest_s
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.thread_time() - before_s)

    async def until_listed() -> None:
        while relister.custom.waiting or relister.custom.leaving:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)

    with uncollected():
        running = [asyncio.create_task(each) for each in (relister.run(), watch())]
        began_s = time.thread_time()
        await until_listed()
        await relister.replace(second)
        metrics.keep_only(relister.states)
        await until_listed()
        assert relister.custom.find("pods", "b_0_per_second") is not None
        assert relister.custom.find("pods", "a_0_per_second") is None
        await relister.replace(few)
        metrics.keep_only(relister.states)
        took_s = time.thread_time() - began_s
    for task in running:
        task.cancel()
    return took_s, longest_s


async def test_replacing_thousands_of_rules_takes_time_in_proportion_to_them():
    few_s, _ = await replacing(250)
    many_s, longest_s = await replacing(1500)
    assert many_s < 6 * 2.5 * few_s
    assert longest_s < LONGEST_TURN_S
