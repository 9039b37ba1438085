"""What a MetricRule may cost: each attack runs in a child that may fill 1 GiB and 20 s of CPU."""

import asyncio
import gc
import json
import resource
import subprocess
import sys
import time
import tracemalloc

import pytest
import re2
from msgspec import structs

from adapter.discovery.listing import ListingBuilder, MetricSource
from adapter.discovery.relist import Relister, RelistOptions
from adapter.discovery.rule_scope import MOST_METRICS
from adapter.metric_rules.objects import METRIC_RULES, RuleRefusal, beyond_bounds, compiled
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.rules import patterns
from adapter.rules.config import Config
from adapter.rules.ruleset import Rule, RuleSet
from podscale.core.metrics import Unavailable
from podscale.feed.http import refusals
from podscale.feed.prover.lexer import MAX_NESTING, MAX_OPERATORS, PromqlTooLarge, check
from podscale.feed.prover.tree import NotPromql, parse
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.informer.list_watch import Changes, ListBegan, ListEnded
from tests.kit.templates import doubled
from tests.unit.adapter.test_metric_rules import (
    MAPPER,
    OPEN,
    SPEC,
    Discovered,
    made,
    stored,
    together,
)
from tests.unit.adapter.test_relist import Prometheus, pods
from tests.unit.adapter.world import rules

MIB = 1024 * 1024
QUERY = SPEC["metricsQuery"]
CHILD = """
import json, sys
from adapter.metric_rules.objects import Rule, compiled
from tests.unit.adapter.test_metric_rules import MAPPER, OPEN, stored

def filled():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

rules = []
compiled(stored(), MAPPER, OPEN)
before = filled()
for spec in json.load(sys.stdin):
    rules.append(compiled(stored(**spec), MAPPER, OPEN))
reasons = ["Accepted" if isinstance(rule, Rule) else rule.reason for rule in rules]
print(json.dumps([filled() - before, reasons]))
"""


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (1024 * MIB, 1024 * MIB))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def attacked(*specs):
    """Return the memory that the objects fill, in bytes, and what became of each."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(specs), capture_output=True, text=True,
        preexec_fn=limited, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(("query", "reason"), [
    pytest.param(f"{QUERY} # '\n{doubled(13, '+a')}# '", "TemplateConstructRefused", id="a-define"),
    pytest.param(f"{QUERY} # '\n{'+a' * 3900}# '", "QueryTooLarge", id="b-quotes-in-comments"),
    pytest.param(f"{QUERY} # \"\n{'+a' * 3900}# \"", "QueryTooLarge", id="b-double-quotes"),
    pytest.param(f"{QUERY}+a{{x=`\\`}}{'+a' * 3900}+a{{x=`\\`}}", "QueryNotConfined", id="b-raw"),
    pytest.param(doubled(12, '\\"' * 16), "TemplateConstructRefused", id="c-no-closing-quote"),
    pytest.param("<<with .Series>>" + "<<with print . .>>" * 28 + "<<end>>" * 29 + QUERY,
                 "TemplateConstructRefused", id="d-with-print"),
    pytest.param("(" * 101 + QUERY + ")" * 101, "QueryTooLarge", id="nesting"),
    pytest.param(f"{QUERY}+scalar(vector(1))" + " " * 8192, "QueryTooLarge", id="rendered"),
])  # fmt: skip
def test_a_query_is_refused_before_it_costs_anything(query, reason):
    grown, reasons = attacked({"metricsQuery": query})
    assert reasons == [reason]
    assert grown < 64 * MIB


def test_patterns_fill_little_memory_and_nothing_is_printed():
    filters = [[{"isNot": f"[^x]{{1000}}{i}-{j}"} for j in range(32)] for i in range(60)]
    grown, reasons = attacked(*({"seriesFilters": each} for each in filters))
    assert set(reasons) == {"PatternTooLarge"}
    assert grown < 64 * MIB


def test_quotes_that_do_not_close_are_read_in_linear_time():
    def seconds(size):
        started = time.process_time()
        with pytest.raises(NotPromql):
            parse('\\"' * size)
        return max(time.process_time() - started, 1e-3)

    assert seconds(32 * 1024) < 8 * seconds(8 * 1024)


@pytest.mark.parametrize("text", [
    pytest.param("a" + "+a" * MAX_OPERATORS, id="operators"),
    pytest.param("(" * MAX_NESTING + "a" + ")" * MAX_NESTING, id="nesting"),
    pytest.param("a # '\"`((\r{" + "+" * 600 + "}", id="comment-to-the-carriage-return"),
    pytest.param("a{x='" + "+(" * 600 + "',y=\"" + "\\\"+(" * 600 + "\",z=`+\n(+`}", id="strings"),
])  # fmt: skip
def test_one_more_operator_or_level_is_too_large(text):
    if "#" in text:
        with pytest.raises(PromqlTooLarge):
            check(text)
        return
    check(text)
    if "'" not in text:
        with pytest.raises(PromqlTooLarge):
            check(f"-({text})")


@pytest.mark.parametrize("text", ["a{x='b\n'}", 'a{x="b', "a{x=`b\\`}", "a @ # now\n -5", "'"])
def test_what_prometheus_and_the_library_read_apart_is_not_parsed(text):
    with pytest.raises(NotPromql):
        check(text)


def test_text_is_large_by_its_operators_and_its_length():
    long = 'a{x="' + "b" * MIB + '"}'
    check(long)
    with pytest.raises(PromqlTooLarge):
        check("+".join([long] * 8))


def in_shop(name, /, age=0.0, **spec):
    given = stored(**spec)
    meta = ObjectMeta(name=name, namespace="shop", generation=1, creation_timestamp=age)
    return type(given)(meta, given.spec)


def test_the_oldest_fifty_objects_of_a_namespace_are_within_its_bounds():
    objects = [in_shop(f"rule-{i}", age=100.0 - i) for i in range(52)]
    everywhere = [stored("", rule=f"rule-{i}") for i in range(60)]
    elsewhere = stored("bar")
    beyond = beyond_bounds([*objects, *everywhere, elsewhere])
    assert set(beyond) == {"MetricRule shop/rule-0", "MetricRule shop/rule-1"}
    assert {each.reason for each in beyond.values()} == {"TooManyRules"}


def test_patterns_of_a_namespace_are_counted_together():
    filters = [{"isNot": "x" * 1024}] * 32
    objects = [in_shop(f"rule-{i}", age=i, seriesFilters=filters) for i in range(3)]
    assert set(beyond_bounds([*objects, in_shop("small", age=9.0)])) == {"MetricRule shop/rule-2"}


class Taken:
    def __init__(self):
        self.sets = []

    async def __call__(self, rules, namespace):
        self.sets.append(rules)


async def test_an_object_beyond_the_bounds_is_compiled_once_there_is_room():
    taken = Taken()
    watched = WatchedMetricRules(None, Discovered(*MAPPER.resources), lambda: OPEN, taken)
    objects = [in_shop(f"rule-{i:02}", age=i) for i in range(51)]
    for each in objects:
        watched.accept(each)
    await watched._change("shop", [each.metadata.name for each in objects])
    assert [bool(rule.refusal) for rule in taken.sets[-1].custom] == [False] * 50 + [True]
    gone = Changes([("DELETED", objects[0])], "99")
    watched._stores[METRIC_RULES].apply(gone, scope="", now=0.0)
    await watched._change("shop", ["rule-00"])
    assert [bool(rule.refusal) for rule in taken.sets[-1].custom] == [False] * 50


@pytest.mark.looptime
async def test_a_refused_object_is_read_again_with_new_resources_only():
    taken = Taken()
    discovered = Discovered(*MAPPER.resources)
    watched = WatchedMetricRules(None, discovered, lambda: OPEN, taken)
    refused = in_shop("web", metricsQuery="<<with .Series>>a<<end>>")
    watched.accept(refused)
    await watched._change("shop", ["web"])
    compilations = []
    watched._compile = lambda *each: compilations.append(each)
    task = asyncio.create_task(watched._try_again())
    await asyncio.sleep(1000.0)
    assert compilations == []
    discovered.mapper = type(MAPPER)(MAPPER.resources[1:])
    await asyncio.sleep(1000.0)
    assert len(compilations) == 1
    task.cancel()


async def test_a_refused_object_that_stays_so_with_new_resources_is_no_news():
    taken = Taken()
    discovered = Discovered(*MAPPER.resources)
    watched = WatchedMetricRules(None, discovered, lambda: OPEN, taken, look_s=0.01)
    watched.accept(in_shop("web", metricsQuery="<<with .Series>>a<<end>>"))
    await watched._change("shop", ["web"])
    trying = asyncio.create_task(watched._try_again())
    for number in range(5):
        added = structs.replace(METRIC_RULES, group=f"new-{number}.example.com")
        discovered.mapper = type(MAPPER)((*MAPPER.resources, added))
        await asyncio.sleep(0.03)
    trying.cancel()
    assert len(taken.sets) == 1


@pytest.mark.looptime
async def test_whoever_writes_rules_again_and_again_is_read_every_other_second():
    taken = Taken()
    watched = WatchedMetricRules(None, Discovered(*MAPPER.resources), lambda: OPEN, taken)
    store = watched._stores[METRIC_RULES]
    for step in (ListBegan(), ListEnded("1")):
        store.apply(step, scope="", now=0.0)
    following = asyncio.create_task(watched._follow(METRIC_RULES))
    for number in range(2, 1002):
        watched.accept(stored(version=str(number), name={"as": f"name_{number}"}))
        if number == 500:
            watched.accept(stored("bar", version="500"))
        await asyncio.sleep(0.01)
    await asyncio.sleep(2.0)
    following.cancel()
    assert len(taken.sets) <= 8  # 5 of shop within 10 s, one at the end, one of bar
    assert watched._found["bar"]
    [last] = watched.rules("shop").custom
    assert last.may_expose("name_1001")


async def test_a_refused_object_that_is_renamed_keeps_its_new_name():
    taken = Taken()
    watched = WatchedMetricRules(None, Discovered(*MAPPER.resources), lambda: OPEN, taken)
    one, other = (
        in_shop("web", metricsQuery="<<with .Series>>a<<end>>", name={"as": name})
        for name in ("depth", "height")
    )
    for new in (one, other):
        watched.accept(new)
        await watched._change("shop", ["web"])
        [held] = taken.sets[-1].custom
    assert not held.may_expose("depth")
    assert held.may_expose("height")


@pytest.mark.parametrize("filters", [[], [{"is": "^m"}]], ids=["exposed", "lost"])
def test_names_that_repeat_a_series_name_fill_little_memory(filters):
    spec = {"name": {"as": "$0" * 128}, "seriesFilters": filters}
    found = compiled(stored(**spec), MAPPER, OPEN)
    builder = ListingBuilder(found)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(200):
        builder.add(f"{'s' * 1000}{number:03}m", frozenset({"namespace", "pod"}))
    listing = builder.build()
    filled = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert filled < 2 * MIB
    assert not listing.exposed


async def test_metrics_of_a_namespaces_own_rules_are_counted_together():
    many = pods(*(f"m{number}" for number in range(MOST_METRICS // 2 + 1)))
    prometheus = Prometheus()
    relister = Relister(prometheus, RuleSet.empty(), RelistOptions())

    async def listed(namespace, **answers):
        made = [
            compiled(stored(namespace, name, seriesQuery=f'{{of="{name}"}}'), MAPPER, OPEN)
            for name in answers
        ]
        found = zip(made, answers.values(), strict=True)
        prometheus.answers |= {rule.series_query: names for rule, names in found}
        await relister.replace(RuleSet(Config(), tuple(made)), namespace)
        await relister.relist()
        return relister.custom.within[namespace]

    assert len((await listed("shop", a=many)).sources) == len(many)
    late = (await listed("shop", a=many, b=many)).find("pods", "m0")
    assert isinstance(late, Unavailable), "the later rule has precedence, and is not known"
    assert late.reason == "TooManyMetrics"
    assert len((await listed("bar", a=many)).sources) == len(many)
    few = (await listed("shop", a=many, b=pods("few"))).find("pods", "few")
    assert isinstance(few, MetricSource)
    assert few.rule.origin == "MetricRule shop/b"


class Hanging(Prometheus):
    """Gives up after half a minute over the series of one namespace."""

    async def series(self, match, start_s, _source="", _wanted=None):
        if 'namespace="shop"' in match:
            await asyncio.sleep(30.0)
            raise refusals.error("deadline")
        return await super().series(match, start_s)


@pytest.mark.looptime
async def test_a_namespace_whose_lists_hang_leaves_the_others_their_turn():
    relister = Relister(
        Hanging(**{'depth{namespace="bar"}': pods("depth")}), RuleSet.empty(), RelistOptions()
    )
    running = asyncio.create_task(relister.run())
    hanging = [made("shop", f"web-{number}", seriesQuery=f"of_{number}") for number in range(50)]
    await relister.replace(together(*hanging), "shop")
    await asyncio.sleep(1000.0)
    await relister.replace(together(made("bar")), "bar")
    await asyncio.sleep(35.0)
    assert isinstance(relister.custom.find("pods", "depth", "bar"), MetricSource)
    running.cancel()
    await asyncio.wait({running})


def test_patterns_of_an_object_that_is_gone_are_freed():
    found = compiled(stored(seriesFilters=[{"is": "depth.{17}"}]), MAPPER, OPEN)
    assert isinstance(found, Rule)
    assert "depth.{17}" in patterns._patterns
    del found
    gc.collect()
    assert "depth.{17}" not in patterns._patterns
    assert re2._Regexp._make.cache_info().currsize == 0


FILE = """
rules:
- seriesQuery: everywhere
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  name: {as: depth}
  metricsQuery: <<.Series>>
"""
MANY = RuleRefusal("TooManyRules", "more than 50")


@pytest.mark.parametrize(("spec", "beyond", "reason", "others"), [
    pytest.param({"metricsQuery": "<<with .Series>>a<<end>>"}, None, "TemplateConstructRefused",
                 False, id="construct"),
    pytest.param({"metricsQuery": "-" * 501 + "a"}, None, "QueryTooLarge", False, id="operators"),
    pytest.param({"seriesFilters": [{"is": "[^x]{1000}"}]}, None, "PatternTooLarge", False,
                 id="filter"),
    pytest.param({"name": {"matches": "[^x]{1000}"}}, None, "PatternTooLarge", True, id="names"),
    pytest.param({"resources": {"overrides": {"a": {"resource": "gone"}}}}, None, "Invalid", False,
                 id="resource"),
    pytest.param({"resources": {"overrides": {"a": {"resource": "gone"}}}, "seriesQuery": "other",
                  "name": {"matches": "o", "as": "depth"}}, None, "Invalid", False, id="renamed"),
    pytest.param({"name": {"matches": "^(.*)_(.*)$"}}, None, "Invalid", True, id="groups"),
    pytest.param({"source": "infra"}, None, "SourceNotAllowed", False, id="source"),
    pytest.param({"metricsQuery": "info(<<.Series>>)"}, None, "QueryNotConfined", False,
                 id="unconfined"),
    pytest.param({}, MANY, "TooManyRules", False, id="count"),
    pytest.param({"name": {"as": "depth"}}, MANY, "TooManyRules", True, id="count-and-names"),
])  # fmt: skip
async def test_an_object_that_is_refused_keeps_its_names_from_others(spec, beyond, reason, others):
    refusal = compiled(stored(**spec), MAPPER, OPEN, beyond)
    assert (refusal.reason, refusal.holds.id) == (reason, "MetricRule shop/web")
    relister = Relister(Prometheus(everywhere=pods("everywhere")), rules(FILE), RelistOptions())
    await relister.relist()
    await relister.replace(RuleSet(Config(), (refusal.holds,)), "shop")
    held = relister.custom.find("pods", "depth", "shop")
    assert isinstance(held, Unavailable)
    assert held.reason == reason
    assert isinstance(relister.custom.find("pods", "depth", "bar"), MetricSource)
    other = relister.custom.find("pods", "another", "shop")
    assert isinstance(other, Unavailable) is others  # its names are not known: all are kept
    await relister.relist()  # nothing of it is asked
    await relister.replace(RuleSet.empty(), "shop")
    assert isinstance(relister.custom.find("pods", "depth", "shop"), MetricSource)


def test_a_cluster_rule_whose_names_are_not_known_keeps_none():
    refusal = compiled(stored("", name={"matches": "[^x]{1000}"}), MAPPER, OPEN)
    assert (refusal.reason, refusal.holds) == ("PatternTooLarge", None)
