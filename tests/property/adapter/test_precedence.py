"""Whatever lists fail, and however often: an answer is that of healthy lists, or a failure.
A list of a namespace's own rules may also be empty: then another of its own may answer.

In process, through both APIs, and in what discovery lists.
"""

import asyncio
import json
import operator
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, structs

from adapter.discovery.registry import MetricRegistry
from adapter.discovery.relist import Relister, RelistOptions
from adapter.metric_rules.objects import compiled
from adapter.provider import FeedProvider
from adapter.queries.plans import Plans
from adapter.queries.usage import UsageByRules
from adapter.rules import config
from adapter.rules.ruleset import Rule, RuleSet, compile_rules
from adapter.sources.sources_file import NamedSources, SourceAccess
from podscale.core.metrics import ExternalMetric, ExternalSamples, PodMetric, PodSamples
from podscale.feed.http import refusals
from podscale.feed.http.client import SeriesAnswer
from podscale.kube.discovery import Mapper
from tests.property.adapter.scope_world import KINDS, ScopeWorld
from tests.unit.adapter.test_metric_rules import stored, together
from tests.unit.adapter.world import reading

MAPPER = Mapper(KINDS)
OPEN = NamedSources(access={"default": SourceAccess(("a",))})
# seriesQuery -> the series that it selects.
QUERIES: Mapping[str, Sequence[str]] = {
    "depth": ("depth",),
    "depth_a": ("depth_a",),
    '{__name__="other",pod!=""}': ("other",),
    '{__name__=~"^depth.*"}': ("depth", "depth_a", "depth_total"),
    '{pod!="",__name__!~"^depth.*"}': ("jobs_total", "other"),
    '{pod!=""}': ("depth", "depth_a", "depth_total", "jobs_total", "other"),
}
# A name made of another series's by a group is not here: only the same series is held back then.
NAMES: Sequence[Mapping[str, str]] = (
    {}, {"as": "depth"}, {"as": "jobs"}, {"matches": "_total$", "as": "jobs"},
)  # fmt: skip
METRICS = ("depth", "depth_a", "depth_total", "jobs", "jobs_total", "other")
LABELS = frozenset({"__name__", "pod", "namespace"})


class Step(Struct, frozen=True):
    """One relist, of a process that has just begun or of the one before."""

    is_restart: bool
    failing: Mapping[str, str]  # seriesQuery -> "503", "partial" or "empty"


class World(Struct, frozen=True):
    """The rules of the file, of ClusterMetricRules, and of namespace ``a``."""

    everywhere: RuleSet
    of_a: RuleSet

    @property
    def rules(self) -> Sequence[Rule]:
        sets = (self.everywhere, self.of_a)
        return [rule for each in sets for rule in (*each.custom, *each.external)]

    def other_own(self, value: int | None) -> range:
        """Return the numbers of all rules of ``a``, where ``value`` is of one of them."""
        own = [n for n, rule in enumerate(self.rules, 1) if rule.namespace]
        return range(own[0], own[-1] + 1) if value in own else range(0)

    @property
    def saying(self) -> Sequence[str]:
        """The seriesQueries of ``a`` that only rules have that say which names they give."""
        several = [rule for rule in self.rules if rule.namespace]
        silent = {
            rule.series_query
            for rule in several
            if not rule.selected.only and rule.namer.only is None
        }
        return [rule.series_query for rule in several if rule.series_query not in silent]


Written = tuple[str, Mapping[str, str], bool]  # seriesQuery, name, whether it is external
rules = st.lists(
    st.tuples(st.sampled_from(sorted(QUERIES)), st.sampled_from(NAMES), st.booleans()), max_size=3
)


def spec(written: Written) -> dict[str, object]:
    query, name, is_external = written
    return {
        "seriesQuery": query, "name": name, "type": "External" if is_external else "Custom",
        "resources": {"template": "<<.Resource>>"},
        "metricsQuery": "<<.Series>>{<<.LabelMatchers>>}",
    }  # fmt: skip


def objects(namespace: str, several: Sequence[Written]) -> RuleSet:
    made = [
        compiled(stored(namespace, f"r{n}", **spec(each)), MAPPER, OPEN)
        for n, each in enumerate(several)
    ]
    assert all(isinstance(each, Rule) for each in made), made
    return together(*made)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sections: dict[str, list[object]] = {"rules": [], "externalRules": []}
    for each in draw(rules):
        entry = spec(each)
        sections["externalRules" if entry.pop("type") == "External" else "rules"].append(entry)
    file = compile_rules(config.parse(json.dumps(sections), "rules.yaml"), MAPPER)
    cluster = objects("", draw(rules))
    everywhere = structs.replace(
        file, custom=(*file.custom, *cluster.custom), external=(*file.external, *cluster.external)
    )
    return World(everywhere, objects("a", draw(rules)))


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, Sequence[Step]]:
    world = draw(worlds())
    lists = sorted({rule.series_query for rule in world.rules}) or [""]
    failing = st.dictionaries(st.sampled_from(lists), st.sampled_from(["503", "partial"]))
    if saying := world.saying:
        empty = st.dictionaries(st.sampled_from(saying), st.just("empty"))
        failing = st.builds(operator.or_, failing, empty)
    return world, draw(st.lists(st.builds(Step, st.booleans(), failing), min_size=1, max_size=4))


class Lister:
    """Prometheus, of which some lists fail."""

    def __init__(self, world: World) -> None:
        self._series = {
            r.series_query: QUERIES[r.open_query or r.series_query] for r in world.rules
        }
        self.failing: Mapping[str, str] = {}

    async def series(self, match: str, *_: object) -> SeriesAnswer:
        how = self.failing.get(match)
        if how == "503":
            raise refusals.error("gateway")
        names = {} if how else dict.fromkeys(self._series[match], frozenset({LABELS}))
        return SeriesAnswer(names, len(names), is_partial=how == "partial")

    async def series_by(self, *_: object) -> Mapping[str, SeriesAnswer]:
        raise AssertionError("only one namespace has rules")


class Process(ScopeWorld):
    """An adapter that has just begun: each rule's samples are a number of its own."""

    def __init__(self, world: World) -> None:
        self.lister = Lister(world)
        self.relister = Relister(
            self.lister, world.everywhere, RelistOptions(), renewed=self._renewed
        )
        super().__init__(lambda *_: True)
        for value, rule in enumerate(world.rules, 1):
            pods = reading({"web-0": value, "db-0": value})
            queue = reading(series=[({"queue": "q"}, value)])
            self.feed.answers[f"{rule.id}:"] = pods if rule.section == "rules" else queue

    def _renewed(self) -> None:
        self.reuse.clear()

    def _provider(self) -> FeedProvider:
        objects, plans = self.objects(), Plans()
        usage = UsageByRules(lambda: None, objects, plans)
        self.provider = FeedProvider(
            self.feed, objects, MAPPER, plans, usage,  # type: ignore[arg-type]
            custom=lambda: self._custom, external=lambda: self._external,
        )  # fmt: skip
        return self.provider

    @property
    def _custom(self) -> MetricRegistry:  # type: ignore[override]
        return self.relister.custom

    @property
    def _external(self) -> MetricRegistry:  # type: ignore[override]
        return self.relister.external

    async def answers(self) -> Mapping[tuple[str, ...], int | None]:
        """Return every metric's value, in process and through the API; ``None``: a failure."""
        asked = list(product("ab", METRICS))
        questions = [PodMetric(namespace, metric, "") for namespace, metric in asked]
        external = [ExternalMetric(namespace, metric) for namespace, metric in asked]
        found: dict[tuple[str, ...], int | None] = {}
        for question, answer in zip(
            (*questions, *external),
            await self.provider.answer([*questions, *external]),
            strict=True,
        ):
            key = (type(question).__name__, question.namespace, question.metric)
            match answer:
                case PodSamples():
                    found[key] = next(iter(answer.pods.values())).value_milli // 1000
                case ExternalSamples():
                    found[key] = answer.series[0].sample.value_milli // 1000
                case _:
                    found[key] = None
        for namespace, metric in asked:
            for group, path in (("custom", f"pods/*/{metric}"), ("external", metric)):
                target = f"/apis/{group}.metrics.k8s.io/v1beta1/namespaces/{namespace}/{path}"
                reply = await self.ask("user", target)
                is_good = reply.status == 200 and reply.body["items"]
                found[target,] = int(reply.body["items"][0]["value"]) if is_good else None
        return found

    def names(self) -> list[str]:
        """Return what discovery lists."""
        return [each.name for group in self.groups for each in group.resources("v1beta1")]


async def stages(world: World, steps: Sequence[Step]) -> AsyncIterator[Process]:
    process = Process(world)
    for step in steps:
        if step.is_restart:
            process = Process(world)
        await process.relister.replace(world.of_a, "a")
        yield process
        process.lister.failing = step.failing
        await process.relister.relist()
        yield process


@settings(deadline=None, max_examples=60)
@given(histories())
def test_an_answer_is_that_of_healthy_lists_or_a_failure(
    drawn: tuple[World, Sequence[Step]],
) -> None:
    world, steps = drawn
    has_empty = any("empty" in step.failing.values() for step in steps)

    async def play() -> None:
        healthy = Process(world)
        await healthy.relister.replace(world.of_a, "a")
        await healthy.relister.relist()
        good, listed = await healthy.answers(), healthy.names()
        assert len(set(listed)) == len(listed)
        async for process in stages(world, steps):
            for key, value in (await process.answers()).items():
                others = world.other_own(good[key]) if has_empty else ()
                assert value in (None, good[key], *others), key
            names = process.names()
            assert len(set(names)) == len(names)
            assert set(names) <= set(listed)
        process.lister.failing = {}
        await process.relister.relist()
        assert await process.answers() == good  # nothing holds back what is listed

    asyncio.run(play())
