"""Relists: each rule on its own, the last good list kept, a deterministic winner."""

import json

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from adapter.discovery.registry import MetricRegistry, is_namespaced, unlisted, why_unknown
from adapter.discovery.relist import Relister, RelistOptions
from adapter.stages import Stage
from podscale.feed.http import refusals
from podscale.feed.http.client import SeriesAnswer
from tests.unit.adapter.world import rules

TWO = """
rules:
- seriesQuery: first
  resources: {template: <<.Resource>>}
  name: {as: same}
  metricsQuery: first
- seriesQuery: second
  resources: {template: <<.Resource>>}
  name: {as: same}
  metricsQuery: second
"""


class Prometheus:
    """A ``Lister`` whose answers can be changed; an error is raised."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []
        self.is_partial = False

    async def series(self, match, start_s, _source="", _wanted=None):
        self.asked.append((match, start_s))
        found = self.answers.get(match, {})
        if isinstance(found, Exception):
            raise found
        names = {
            name: frozenset(frozenset(labels) for labels in shapes)
            for name, shapes in found.items()
        }
        return SeriesAnswer(names, len(names), self.is_partial)

    async def series_by(self, match, start_s, _source, label, values):
        written = "|".join(values)
        own = (match.replace(f'{label}=~"{written}"', f'{label}="{value}"') for value in values)
        found = [await self.series(text, start_s) for text in own]
        return dict(zip(values, found, strict=True))


def pods(*names):
    return {name: [("__name__", "pod", "namespace")] for name in names}


def relister(prometheus, text=TWO, now=lambda: 1000.0, **options):
    return Relister(prometheus, rules(text), RelistOptions(**options), clock=now)


async def test_the_later_rule_wins():
    made = relister(Prometheus(first=pods("a"), second=pods("b")))
    await made.relist()
    assert made.custom.find("pods", "same").series == "b"


async def test_within_a_rule_the_lexicographically_last_series_wins():
    made = relister(Prometheus(second=pods("b", "z", "a")))
    await made.relist()
    assert made.custom.find("pods", "same").series == "z"


async def test_what_a_partial_list_lacks_has_not_gone():
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    prometheus.answers, prometheus.is_partial = {"first": pods("a")}, True
    await made.relist()
    assert made.custom.find("pods", "same").series == "b"
    prometheus.is_partial = False
    await made.relist()
    assert made.custom.find("pods", "same").series == "a"


async def test_a_failing_rule_keeps_its_list_and_holds_nobody_up():
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    prometheus.answers |= {"first": pods("c"), "second": refusals.error("unreachable")}
    await made.relist()
    assert made.custom.find("pods", "same").series == "b"
    states = {state.rule.id: state for state in made.custom.states}
    assert states["rules[1]"].failure.stage is Stage.PROMETHEUS_UNREACHABLE
    assert states["rules[0]"].failure is None
    prometheus.answers["second"] = {}
    await made.relist()
    assert made.custom.find("pods", "same").series == "c"


async def test_whatever_a_list_raises_is_that_rules_failure():
    prometheus = Prometheus(first=pods("a"), second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    prometheus.answers |= {"first": pods("c"), "second": ValueError("token: s3cret")}
    with capture_logs() as logged:
        await made.relist()
    assert made.custom.find("pods", "same").series == "b"
    assert made.states["rules[0]"].listing.exposed["pods", "same"].series == "c"
    failure = made.states["rules[1]"].failure
    assert failure.stage is Stage.PROMETHEUS_UNREACHABLE
    assert "ValueError" in failure.message
    assert "s3cret" not in failure.message
    told = [(line["log_level"], line.get("rules"), line.get("rule")) for line in logged]
    assert told == [("error", ["rules[1]"], None), ("warning", None, "rules[1]")]
    with capture_logs() as logged:
        await made.relist()
    assert {line["log_level"] for line in logged} == {"debug"}  # told once
    prometheus.answers["second"] = pods("b")
    with capture_logs() as logged:
        await made.relist()
    assert [line["event"] for line in logged] == ["relist works again"]


async def test_whatever_working_off_a_list_raises_is_that_rules_failure():
    text = TWO.replace("seriesQuery: second", "seriesQuery: first")
    prometheus = Prometheus(first=pods("a"))
    made = relister(prometheus, text)
    await made.relist()

    class Broken:
        def name(self, series):
            raise ZeroDivisionError

    states = made.states
    broken = structs.replace(states["rules[0]"].rule, namer=Broken())
    states["rules[0]"] = structs.replace(states["rules[0]"], rule=broken)
    prometheus.answers["first"] = pods("b")
    await made.relist()
    assert "ZeroDivisionError" in states["rules[0]"].failure.message
    assert states["rules[0]"].listing.exposed["pods", "same"].series == "a"
    assert states["rules[1]"].listing.exposed["pods", "same"].series == "b"


async def test_a_refused_series_query_is_the_rules_fault():
    made = relister(Prometheus(second=refusals.error("bad-data")))
    await made.relist()
    assert made.is_tried
    state = next(s for s in made.custom.states if s.rule.id == "rules[1]")
    assert state.failure.stage is Stage.SERIES_QUERY_INVALID
    assert "correct seriesQuery" in state.failure.message
    assert "metricsQuery" not in state.failure.message


async def test_equal_series_queries_are_asked_once():
    text = TWO.replace("seriesQuery: second", "seriesQuery: first")
    prometheus = Prometheus(first=pods("a"))
    await relister(prometheus, text).relist()
    assert [match for match, _ in prometheus.asked] == ["first"]


@pytest.mark.parametrize(("options", "reach_s"), [
    ({"interval_s": 60.0}, 60.0), ({"interval_s": 60.0, "max_age_s": 300.0}, 300.0),
])  # fmt: skip
async def test_series_count_as_far_back_as_the_maximum_age(options, reach_s):
    prometheus = Prometheus()
    await relister(prometheus, **options).relist()
    assert {start_s for _, start_s in prometheus.asked} == {1000.0 - reach_s}


async def test_a_name_stays_listed_for_the_grace_period_and_no_longer():
    now = [1000.0]
    prometheus = Prometheus(second=pods("b"))
    made = relister(prometheus, now=lambda: now[0], grace_s=100.0)
    await made.relist()
    prometheus.answers["second"] = {}
    for now[0], is_listed in ((1060.0, True), (1150.0, True), (1161.0, False)):
        await made.relist()
        assert (made.custom.find("pods", "same") is not None) is is_listed


async def test_revision_changes_only_with_the_list():
    prometheus = Prometheus(second=pods("b"))
    made = relister(prometheus)
    await made.relist()
    first = made.custom.revision
    await made.relist()
    assert made.custom.revision == first
    prometheus.answers["second"] = {}
    await made.relist()
    assert made.custom.revision != first


async def test_external_metrics_need_no_resource():
    text = "externalRules: [{seriesQuery: q, metricsQuery: x}]"
    made = relister(Prometheus(q={"depth": [("queue",)]}), text)
    await made.relist()
    assert made.external.find("", "depth").series == "depth"
    assert not made.custom.sources


LOST = """
rules:
- seriesQuery: q
  seriesFilters: [{isNot: "^dropped"}]
  resources: {template: kube_<<.Resource>>}
  name: {matches: "^(.*)_total$"}
  metricsQuery: x
- seriesQuery: silent
  resources: {template: <<.Resource>>}
  metricsQuery: x
"""


@pytest.mark.parametrize(("resource", "metric", "stage"), [
    ("pods", "dropped", Stage.FILTERED_OUT),
    ("pods", "dropped_total", Stage.FILTERED_OUT),
    ("pods", "other", Stage.FILTERED_OUT),
    ("pods", "bare", Stage.NO_RESOURCE_LABEL),
    ("pods", "odd", Stage.LABEL_NOT_A_RESOURCE),
    ("services", "good", Stage.NO_RESOURCE_LABEL),
    ("pods", "good_total", Stage.NAME_MISMATCH),
    ("pods", "never_heard_of", Stage.NO_SERIES),
])  # fmt: skip
async def test_an_unknown_metric_names_the_stage_that_lost_it(resource, metric, stage):
    series = {
        "good_total": [("kube_pod",)],
        "dropped_total": [("kube_pod",)],
        "other": [("kube_pod",)],
        "bare_total": [("pod",)],
        "odd_total": [("kube_bogus",)],
    }
    made = relister(Prometheus(q=series), LOST)
    await made.relist()
    finding = why_unknown(made.custom, resource, metric)
    assert finding.stage is stage
    assert finding.message


@pytest.mark.parametrize(("metric", "near"), [
    ("god_total_rate", "good_total_rate"), ("good_total_rat", "good_total_rate"),
    ("good_totals_rate", "good_total_rate"), ("unheard_of", ""), ("x" * 100_000, ""),
])  # fmt: skip
def test_a_metric_that_no_rule_exposes_names_the_nearest_that_one_does(metric, near):
    sources = dict.fromkeys(("pods", f"m{n}_total") for n in range(20_000))
    listed = MetricRegistry({("pods", "good_total_rate"): None, **sources})  # type: ignore[dict-item]
    message = why_unknown(listed, "pods", metric).message
    assert message.endswith(f"; the nearest name is {near}" if near else metric)


async def test_what_a_rule_without_a_list_may_have_is_unavailable_and_not_unknown():
    prometheus = Prometheus(first=refusals.error("deadline"), second=pods("b"))
    made = relister(prometheus, TWO.replace("as: same", "matches: .*", 1))
    assert unlisted(made.custom, "pods", "first").reason == "NotListedYet"
    await made.relist()
    failed = unlisted(made.custom, "pods", "first")
    assert (failed.reason, failed.is_timeout) == ("PrometheusTimeout", True)
    assert unlisted(made.custom, "pods", "other") is None  # the seriesQuery names its metric
    assert why_unknown(made.custom, "pods", "other").stage is Stage.NO_SERIES
    assert unlisted(made.custom, "pods", "same") is None  # listed: the place was wrong
    prometheus.answers["first"] = {}
    await made.relist()
    assert unlisted(made.custom, "pods", "first") is None
    prometheus.answers["first"] = refusals.error("unreachable")
    await made.relist()
    assert unlisted(made.custom, "pods", "first") is None  # its last good list says no


@pytest.mark.parametrize(("kind", "reason"), [
    ("unreachable", "PrometheusUnreachable"), ("gateway", "PrometheusError"),
    ("unauthorized", "PrometheusUnauthorized"), ("execution", "QueryFailed"),
])  # fmt: skip
async def test_a_rule_without_a_list_fails_by_the_class_of_its_failure(kind, reason):
    made = relister(Prometheus(second=refusals.error(kind)))
    await made.relist()
    found = unlisted(made.custom, "pods", "second")
    assert found is None  # ``name.as`` gives it another name
    assert unlisted(made.custom, "pods", "same").reason == reason
    assert "rules[1]" in unlisted(made.custom, "pods", "same").message


async def test_a_refused_series_query_makes_nothing_else_unavailable():
    made = relister(Prometheus(second=refusals.error("bad-data")))
    await made.relist()
    assert unlisted(made.custom, "pods", "same") is None
    assert why_unknown(made.custom, "pods", "same").stage is Stage.SERIES_QUERY_INVALID


@pytest.mark.parametrize(("query", "metric", "may"), [
    ("http_total", "http", True), (" http_total {pod!=''} ", "http", True),
    ("http_total{pod!=''}", "other", False), ("http_total", "http_total", False),
    ("dropped_total", "dropped", False), ("http", "http", False),
    ('{__name__=~"^http_.*"}', "other", True), ("{job='a'}", "http", True),
])  # fmt: skip
def test_a_rule_may_expose_what_its_series_query_can_select(query, metric, may):
    text = """
    rules:
    - seriesQuery: QUERY
      seriesFilters: [{isNot: "^dropped"}]
      resources: {template: <<.Resource>>}
      name: {matches: "^(.*)_total$"}
      metricsQuery: x
    """
    (rule,) = rules(text.replace("QUERY", json.dumps(query))).custom
    assert rule.may_expose(metric) is may


async def test_a_series_is_not_lost_if_one_of_its_shapes_is_exposed():
    made = relister(Prometheus(q={"good_total": [("kube_pod",), ("pod",)]}), LOST)
    await made.relist()
    (state, _) = made.custom.states
    assert not state.listing.lost
    assert state.listing.losses == {Stage.NO_RESOURCE_LABEL: 0}


def test_only_three_resources_are_listed_without_namespace():
    roots = ("namespaces", "nodes", "persistentvolumes")
    assert not any(map(is_namespaced, roots))
    assert is_namespaced("storageclasses.storage.k8s.io")
