"""Rules as objects: what they come to, where they are served, and what their status says."""

import asyncio
import json

import msgspec
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from adapter.discovery.listing import MetricSource
from adapter.discovery.registry import unlisted, why_unknown
from adapter.discovery.relist import Relister, RelistOptions
from adapter.metric_rules.objects import METRIC_RULES, RuleRefusal, StoredMetricRule, compiled
from adapter.metric_rules.status import RuleStatusWriter, status_of, written_status
from adapter.metric_rules.watched import WatchedMetricRules
from adapter.queries.plans import Plans
from adapter.rules.config import Config
from adapter.rules.ruleset import Rule, RuleSet
from adapter.sources.sources_file import NamedSources, SourceAccess
from adapter.stages import Stage
from podscale.core.selectors.selector import EVERYTHING
from podscale.feed.http import refusals
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiError, Forbidden
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.discovery import Mapper
from tests.unit.adapter.test_relist import Prometheus, pods
from tests.unit.adapter.world import MAPPER, rules

OPEN = NamedSources(access={"default": SourceAccess(("shop", "bar")), "infra": SourceAccess()})
SPEC = {
    "seriesQuery": "depth",
    "resources": {"overrides": {"pod": {"resource": "pod"}}},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}


def stored(namespace="shop", rule="web", version="1", status=None, **spec):
    meta = ObjectMeta(name=rule, namespace=namespace, resource_version=version, generation=1)
    wire = {**SPEC, **spec}
    raw = [msgspec.Raw(json.dumps(each).encode()) for each in (wire, status or {})]
    return StoredMetricRule(meta, *raw)


def made(*given, **spec):
    found = compiled(stored(*given, **spec), MAPPER, OPEN)
    assert isinstance(found, Rule), found
    return found


def together(*found):
    return RuleSet(
        Config(),
        tuple(rule for rule in found if rule.section == "rules"),
        tuple(rule for rule in found if rule.section == "externalRules"),
    )


def test_a_namespaces_own_rule_reads_nothing_else():
    rule = made(metricsQuery='sum(<<.Series>>{<<.LabelMatchers>>}) or sum({__name__=~".+"})')
    assert rule.series_query == 'depth{namespace="shop"}'
    assert rule.id == "MetricRule shop/web"
    plan = Plans().metric(MetricSource(rule, "depth"), "pods", True, EVERYTHING, "")
    text = plan.text("shop", ["a"])
    assert text.count('namespace="shop"') == 3  # the request's, and one in each selector


def test_a_cluster_rule_is_taken_as_in_the_file():
    rule = made("", source="infra")
    assert (rule.id, rule.series_query, rule.source) == ("ClusterMetricRule web", "depth", "infra")
    assert rule.confinement is None


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"source": "infra"}, "SourceNotAllowed", "'infra' is not open to rules of namespace shop"),
        ({"source": "nowhere"}, "SourceNotAllowed", "'nowhere' is not open"),
        ({"metricsQuery": "info(<<.Series>>)"}, "QueryNotConfined", "spec.metricsQuery: info"),
        ({"seriesQuery": "rate(a[5m])"}, "QueryNotConfined", "spec.seriesQuery: it is not one"),
        ({"metricsQuery": "<<.Nothing"}, "Invalid", "spec.metricsQuery: "),
        ({"metricsQuery": "<<index .GroupBySlice 5>>"}, "Invalid", "spec.metricsQuery: "),
        ({"name": {"matches": "(?=x)"}}, "Invalid", "spec.name.matches: "),
        ({"resources": {"overrides": {"a": {"resource": "nothing"}}}}, "Invalid", "overrides.a"),
        ({"seriesFilters": [{}]}, "Invalid", "spec.seriesFilters[0]: "),
        ({"seriesQuery": 5}, "Invalid", "spec: "),
    ],
)
def test_a_refusal_says_what_and_where(spec, reason, words):
    found = compiled(stored(**spec), MAPPER, OPEN)
    assert isinstance(found, RuleRefusal)
    assert found.reason == reason
    assert words in found.message


FILE = """
rules:
- seriesQuery: everywhere
  resources: {template: <<.Resource>>}
  name: {as: depth}
  metricsQuery: everywhere
"""
BOUND = {name: f'depth{{namespace="{name}"}}' for name in ("shop", "bar")}


async def relisted(**answers):
    prometheus = Prometheus(everywhere=pods("everywhere"), **answers)
    relister = Relister(prometheus, rules(FILE), RelistOptions(), clock=lambda: 1000.0)
    await relister.relist()
    return relister, prometheus


async def test_a_namespaces_own_rule_shadows_nothing_elsewhere():
    relister, _ = await relisted(**{BOUND["shop"]: pods("depth")})
    await relister.replace(together(made()), "shop")
    await relister.relist()
    listed = relister.custom
    assert listed.find("pods", "depth", "shop").rule.id == "MetricRule shop/web"
    assert listed.find("pods", "depth", "bar").rule.id == "rules[0]"
    assert listed.find("pods", "depth").rule.id == "rules[0]"
    assert listed.find("namespaces", "depth", "shop").rule.id == "rules[0]"
    revision = listed.revision
    await relister.replace(RuleSet.empty(), "shop")
    assert relister.custom.find("pods", "depth", "shop").rule.id == "rules[0]"
    assert relister.custom.revision == revision  # what is listed for everybody is the same
    assert not relister.custom.within


async def test_a_change_of_one_namespace_touches_no_other():
    relister, prometheus = await relisted(**{text: pods("depth") for text in BOUND.values()})
    for name in BOUND:
        await relister.replace(together(made(name)), name)
    await relister.relist()
    bar, everywhere = relister.custom.within["bar"], relister.custom.sources
    prometheus.asked.clear()
    await relister.replace(together(made(metricsQuery="sum(<<.Series>>)")), "shop")
    assert relister.custom.within["bar"] is bar
    assert relister.custom.sources is everywhere
    # The old rule serves until the new one is listed.
    assert relister.custom.find("pods", "depth", "shop").rule.query.text == SPEC["metricsQuery"]
    await relister.relist()
    assert relister.custom.find("pods", "depth", "shop").rule.query.text == "sum(<<.Series>>)"


async def test_a_rule_that_is_deleted_goes_whatever_another_one_waits_for():
    relister, prometheus = await relisted(**{BOUND["shop"]: pods("depth")})
    prometheus.answers['slow{namespace="shop"}'] = refusals.error("unreachable")
    await relister.replace(together(made()), "shop")
    await relister.relist()
    await relister.replace(together(made("shop", "slow", seriesQuery="slow")), "shop")
    assert relister.custom.find("pods", "depth", "shop").rule.id == "rules[0]"


async def test_why_a_metric_is_not_there_is_told_of_the_namespaces_own_rules_only():
    relister, _ = await relisted()
    drops = made(seriesFilters=[{"is": "^other$"}])
    await relister.replace(together(drops), "shop")
    waiting = unlisted(relister.custom, "pods", "x", "shop")
    assert waiting is None or "MetricRule" not in waiting.message
    relister, _ = await relisted(**{BOUND["shop"]: pods("lost_depth")})
    await relister.replace(together(drops), "shop")
    await relister.relist()
    finding = why_unknown(relister.custom, "pods", "lost_depth", "shop")
    assert (finding.stage, finding.rule) == (Stage.FILTERED_OUT, "MetricRule shop/web")
    assert why_unknown(relister.custom, "pods", "lost_depth", "bar").stage == Stage.NO_SERIES


async def states(*found, **answers):
    relister, prometheus = await relisted(**answers)
    await relister.replace(together(*found), "shop")
    await relister.relist()
    return relister, prometheus


def told(status):
    return {each.type: (each.status, each.reason) for each in status.conditions}


async def test_the_status_says_what_became_of_a_rule():
    rule, last = made(), made("shop", "zzz")
    relister, prometheus = await states(rule, last, **{BOUND["shop"]: pods("depth")})

    def status(written=None):
        found = relister.state(rule)
        return status_of(stored(status=written), found, relister.custom, "2026-11-25T00:00:00Z")

    good = status()
    assert told(good) == {"Accepted": ("True", "Accepted"), "Serving": ("True", "Serving")}
    assert (good.series_found, good.metrics_exposed, good.metrics) == (1, 1, ("depth",))
    assert good.source == "default"
    assert "depth is answered by MetricRule shop/zzz" in good.conditions[1].message
    prometheus.answers[BOUND["shop"]] = refusals.error("unreachable")
    await relister.relist()
    down = status()
    assert told(down)["Serving"] == ("True", "PrometheusUnreachable")  # by its last list
    assert down.last_error.startswith("PrometheusUnreachable: Prometheus cannot be reached")
    prometheus.answers[BOUND["shop"]] = {}
    await relister.relist()
    gone = status()
    assert told(gone)["Serving"] == ("False", "NoSeries")
    # What is written is read back as the same, so nothing is written twice.
    again = msgspec.to_builtins(gone)
    assert status(again) == written_status(stored(status=again)) == gone


def test_a_refused_rule_serves_nothing():
    refusal = RuleRefusal("SourceNotAllowed", "not yours")
    status = status_of(stored(), refusal, None, "2026-11-25T00:00:00Z")
    assert told(status) == {
        "Accepted": ("False", "SourceNotAllowed"), "Serving": ("False", "NotAccepted"),
    }  # fmt: skip
    assert status.last_error == "SourceNotAllowed: not yours"


async def test_a_metric_whose_name_is_too_long_is_left_out_and_named():
    rule = made()
    names = ("depth", "l" * 253, "n" * 254, "o" * 1000)
    relister, prometheus = await states(rule, **{BOUND["shop"]: pods(*names)})

    def status():
        return status_of(stored(), relister.state(rule), relister.custom, "2026-11-25T00:00:00Z")

    assert status().metrics == ("depth", "l" * 253)
    assert told(status())["Serving"] == ("True", "Serving")
    assert "n" * 100 in status().last_error
    assert "o" * 100 in status().last_error
    assert "l" * 100 not in status().last_error
    finding = why_unknown(relister.custom, "pods", "n" * 254, "shop")
    assert (finding.stage, "253" in finding.message) == (Stage.FILTERED_OUT, True)
    prometheus.answers[BOUND["shop"]] = pods("n" * 254)
    await relister.relist()
    assert told(status())["Serving"] == ("False", "FilteredOut")
    assert "n" * 100 in status().conditions[1].message


@pytest.mark.parametrize("spec", [
    {"source": "s" * 1_000_000},
    {"resources": {"overrides": {"o" * 1_000_000: {"resource": "nothing"}}}},
    {"type": "t" * 1_000_000},
], ids=["source", "label", "type"])  # fmt: skip
def test_a_refusal_is_short_whatever_it_is_about(spec):
    refusal = compiled(stored(**spec), MAPPER, OPEN)
    assert isinstance(refusal, RuleRefusal)
    assert len(refusal.fingerprint) < 4096
    status = status_of(stored(), refusal, None, "2026-11-25T00:00:00Z")
    assert len(msgspec.json.encode(status)) < 4096


class Api:
    """Answers as told, and notes what was patched."""

    user_agent = "test"

    def __init__(self, *objects):
        self.objects = {f"{o.metadata.namespace}/{o.metadata.name}": o for o in objects}
        self.patched = []
        self.refuses = None

    async def request(self, method, path, *, body=None, **_):
        if self.refuses is not None:
            raise self.refuses
        if method == "GET":
            return Response(200, {}, b"{}")
        self.patched.append((path, json.loads(body)["status"]))
        namespace, _, name = path.split("/namespaces/")[1].split("/")[:3]
        was = self.objects[f"{namespace}/{name}"]
        meta = msgspec.structs.replace(was.metadata, resource_version="9")
        now = StoredMetricRule(
            meta, was.spec, msgspec.Raw(msgspec.json.encode(self.patched[-1][1]))
        )
        return Response(200, {}, msgspec.json.encode(now))


class Objects:
    """A stand-in for the watch: what is there, and what it came to."""

    namespaces = ("shop",)

    def __init__(self, *found):
        self.found = list(found)

    def objects(self, _namespace):
        return self.found

    def accept(self, stored):
        self.found = [(stored, found) for _, found in self.found]


async def run_briefly(writer, may_write=lambda: True, seconds=3.5):
    task = asyncio.create_task(writer.run(may_write))
    await asyncio.sleep(seconds)
    task.cancel()


@pytest.mark.looptime
async def test_status_is_written_once_and_only_by_who_leads():
    rule = made()
    relister, _ = await states(rule, **{BOUND["shop"]: pods("depth")})
    given = stored()
    api, objects = Api(given), Objects((given, rule))
    writer = RuleStatusWriter(api, objects, relister.state, lambda _: relister.custom)
    writer.note("shop")
    await run_briefly(writer, lambda: False)
    assert api.patched == []
    await run_briefly(writer)
    [(path, status)] = api.patched
    assert path.endswith("/namespaces/shop/metricrules/web/status")
    assert status["metrics"] == ["depth"]
    writer.note("shop")
    await run_briefly(writer)
    assert len(api.patched) == 1


@pytest.mark.looptime
async def test_a_missing_right_to_write_status_is_told_once():
    rule = made()
    relister, _ = await states(rule, **{BOUND["shop"]: pods("depth")})
    given = stored()
    api = Api(given)
    api.refuses = Forbidden(403, "Forbidden", "no")
    writer = RuleStatusWriter(
        api, Objects((given, rule)), relister.state, lambda _: relister.custom
    )
    writer.note("shop")
    with capture_logs() as logged:
        await run_briefly(writer, seconds=120.0)
        assert len([line for line in logged if line["log_level"] == "warning"]) == 1
        api.refuses = None
        await run_briefly(writer, seconds=40.0)
    assert len(api.patched) == 1


class Choosy(Api):
    """Takes no status of objects whose names begin with ``bad``."""

    code = 422

    async def request(self, method, path, *, body=None, **given):
        if "/metricrules/bad" in path:
            raise ApiError.of(self.code, "", "status.lastError: Too long")
        return await super().request(method, path, body=body, **given)


class Namespaces(Objects):
    """Objects of several namespaces."""

    @property
    def namespaces(self):
        return {stored.metadata.namespace for stored, _ in self.found}

    def objects(self, namespace):
        return [each for each in self.found if each[0].metadata.namespace == namespace]

    def accept(self, new):
        name = new.metadata.namespace, new.metadata.name
        self.found = [
            (new if (s.metadata.namespace, s.metadata.name) == name else s, found)
            for s, found in self.found
        ]


@pytest.mark.parametrize("code", [400, 413, 422, 500])
@pytest.mark.looptime
async def test_a_status_that_is_refused_keeps_no_other_from_being_written(code):
    refusal = RuleRefusal("Invalid", "it is wrong")
    names = [("bar", "bad"), ("bar", "good"), ("shop", "bad"), ("shop", "good")]
    objects = Namespaces(*((stored(*name), refusal) for name in names))
    api = Choosy(*(stored for stored, _ in objects.found))
    api.code = code
    writer = RuleStatusWriter(api, objects, lambda _: None, lambda _: None)
    for namespace in ("bar", "shop"):
        writer.note(namespace)
    await run_briefly(writer)
    assert [path.split("/")[-5:] for path, _ in api.patched] == [
        ["namespaces", namespace, "metricrules", "good", "status"] for namespace in ("bar", "shop")
    ]


class Discovered:
    def __init__(self, *served):
        self.mapper = Mapper(served)

    async def resource_for(self, *named):
        return self.mapper.resource_for(*named)


@pytest.mark.parametrize("served", [(), (structs.replace(METRIC_RULES, version="v1"),)])
@pytest.mark.looptime
async def test_without_crds_of_ours_there_is_one_line_and_nothing_waits(served):
    watched = WatchedMetricRules(Api(), Discovered(*served), NamedSources, None)
    with capture_logs() as logged:
        task = asyncio.create_task(watched.run())
        await asyncio.sleep(200.0)
        assert watched.absence is None
        task.cancel()
    assert [line["event"] for line in logged] == [
        "no MetricRules are watched: their CRDs are not installed"
    ]
