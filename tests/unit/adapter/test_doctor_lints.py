"""Each lint speaks of what it is for, at its place, and keeps quiet otherwise."""

import json

import pytest

from adapter.discovery.mapping import PresumingMapper
from adapter.discovery.naming import Namer
from adapter.doctor.evidence import LintFinding
from adapter.doctor.lints import RULE_LINTS, KnownMetrics, lint, query_findings
from adapter.errors import ConfigInvalid
from adapter.rules import config, config_gen
from adapter.rules.ruleset import compile_rules, read_rules

SOUND = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
"""

UNASKED = KnownMetrics()


def found(text: str, known: KnownMetrics = UNASKED) -> list[LintFinding]:
    parsed = config.parse(text, "rules.yaml")
    return lint(parsed, compile_rules(parsed, PresumingMapper()), known)


def query(text: str) -> str:
    start, _, _ = SOUND.partition("  metricsQuery:")
    return f"{start}  metricsQuery: '{text}'\n"


def test_a_sound_rule_has_no_finding():
    assert found(SOUND, KnownMetrics(scrape_interval_s=30)) == []


def test_a_refused_file_is_not_said_to_be_without_rules():
    text = "rule: [{seriesQuery: a}]"
    with pytest.raises(ConfigInvalid) as refused:
        config.parse(text)
    assert query_findings(text, "r.yaml", refused.value.problems, PresumingMapper()) == []


def test_a_comment_about_values_writes_none():
    text = "<</* no .LabelValuesByName */>>sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    assert found(query(text)) == []


@pytest.mark.parametrize(("text", "known", "kind", "line", "words"), [
    pytest.param(SOUND, KnownMetrics(scrape_interval_s=31), "RateWindow", 6, "rate[2m]",
                 id="window"),
    pytest.param(query("sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (code)"),
                 KnownMetrics(), "GroupByLost", 6, "sum by (code) drops the label pod",
                 id="group-by"),
    pytest.param(query("max(sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>))"),
                 KnownMetrics(), "GroupByLost", 6, "max by ()", id="lost-further-out"),
    pytest.param(query("rate(<<.Series>>{<<.LabelMatchers>>}[2m])"), KnownMetrics(),
                 "SeveralSeries", 6, "by (<<.GroupBy>>)", id="several"),
    pytest.param(query("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>, code)"),
                 KnownMetrics(), "SeveralSeries", 6, "last of them", id="several-by-another-label"),
    pytest.param(query('sum(a{pod=~"<<index .LabelValuesByName "pod">>"}) by (<<.GroupBy>>)'),
                 KnownMetrics(), "RawValue", 6, "<<.LabelMatchers>>", id="raw-value"),
    pytest.param(query("sum(a_<<.LabelValuesByName.pod>>{}) by (<<.GroupBy>>)"), KnownMetrics(),
                 "RawValue", 6, "subtracts", id="raw-value-in-a-name"),
    pytest.param(query("sum(a{<<range $k, $v := .LabelValuesByName>><<$k>>=\"<<$v>>\",<<end>>}) "
                       "by (<<.GroupBy>>)"), KnownMetrics(), "RawValue", 6, "selectors",
                 id="raw-range"),
    pytest.param(SOUND.replace("http_requests_total{", "{"), KnownMetrics(),
                 "UnboundedSeries", 3, "names no metric", id="unbounded"),
    pytest.param(SOUND.replace("http_requests_total{", '{__name__=~".+_total",'), KnownMetrics(),
                 "UnboundedSeries", 3, "names no metric", id="unbounded-regex"),
    pytest.param(SOUND.replace('pod!=""}', 'pod!=""'), KnownMetrics(),
                 "SeriesQueryInvalid", 3, "unexpected end", id="selector-without-its-end"),
    pytest.param(SOUND.replace('pod!=""}', 'pod!=""}[5m]'), KnownMetrics(),
                 "SeriesQueryInvalid", 3, "of samples", id="selector-with-a-window"),
    pytest.param(SOUND.replace('pod!=""}', 'pod!=""} > 0'), KnownMetrics(),
                 "SeriesQueryInvalid", 3, "an expression", id="no-selector"),
    pytest.param(SOUND.replace("http_requests_total{", "(http_requests_total{").replace(
                 'pod!=""}', 'pod!=""})'), KnownMetrics(),
                 "SeriesQueryInvalid", 3, "in brackets", id="selector-in-brackets"),
    pytest.param(SOUND.replace("${1}", "$1"), KnownMetrics(),
                 "UnbracedGroup", 5, "write ${1}_per_second", id="unbraced"),
    pytest.param(query("topk(1, <<.Series>>{<<.LabelMatchers>>})"), KnownMetrics(),
                 "NotCoalesced", 6, "because of: aggregation topk", id="not-coalesced"),
    pytest.param(query("sum(<<.Series>>{<<.LabelMatchers>>}) by ("), KnownMetrics(),
                 "QueryInvalid", 6, "cannot be read", id="not-promql"),
    pytest.param(query(f"{'(' * 200}<<.Series>>{{<<.LabelMatchers>>}}{')' * 200}"), KnownMetrics(),
                 "NotCoalesced", 6, "nest deeper than 100", id="larger-than-is-read"),
    pytest.param("\n".join(line for line in SOUND.splitlines() if "resources:" not in line),
                 KnownMetrics(), "NoResourceLabel", 3, "write resources.overrides",
                 id="no-resources"),
    pytest.param(query("sum(<<.Serie>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"), KnownMetrics(),
                 "QueryInvalid", 6, "cannot be read", id="unknown-field"),
])  # fmt: skip
def test_a_lint_names_reason_and_place(text, known, kind, line, words):
    told = [each for each in found(text, known) if each.lint == kind]
    assert len(told) == 1
    assert words in told[0].reason
    assert told[0].place.startswith(f"rules.yaml:{line}:")
    assert told[0].subject == "rules[0]"


def test_what_only_victoria_metrics_takes_is_told_to_be_sent():
    (told,) = found(query("sum(<<.Series>>{<<.LabelMatchers>>} default 0) by (<<.GroupBy>>)"))
    assert told.lint == "QueryInvalid"
    assert "VictoriaMetrics" in told.reason


@pytest.mark.parametrize("matchers", ['<<.LabelMatchers>>,job="a"', "<<.LabelMatchers>>"])
def test_an_external_rule_is_read_as_an_hpa_with_a_selector_asks(matchers):
    text = f"""
externalRules:
- seriesQuery: jobs_waiting
  resources: {{namespaced: false}}
  metricsQuery: 'sum({{__name__=~"jobs_.*",{matchers}}})'
"""
    assert found(text) == []
    bare = text.replace('__name__=~"jobs_.*",', "")
    assert found(bare) == []
    (told,) = found(bare.replace("sum(", "summ("))
    assert told.lint == "QueryInvalid"


def test_two_rules_for_one_name_blame_the_later():
    twice = SOUND + SOUND.replace("rules:\n", "").lstrip("\n")
    (told,) = [each for each in found(twice) if each.lint == "NameTwice"]
    assert "'http_requests_per_second' is exposed by rules[0] too" in told.reason
    assert told.place == "rules.yaml:9:9"


def test_names_that_only_prometheus_knows_are_compared_too():
    a = SOUND.replace("http_requests_total{", '{__name__=~"^http_.*",')
    twice = a + SOUND.replace("rules:\n", "").lstrip("\n")
    assert "NameTwice" not in {each.lint for each in found(twice)}
    known = KnownMetrics(names={"rules[0]": ["http_requests_total", "http_errors_total"]})
    assert "NameTwice" in {each.lint for each in found(twice, known)}


@pytest.mark.parametrize("text", [
    SOUND.replace('namespace!="",pod!=""', 'job="a" or job="b"'),
    query("sum(<<.Series>>{<<.LabelMatchers>>} default 0) by (<<.GroupBy>>)"),
])  # fmt: skip
def test_whom_nobody_asks_the_doctor_is_not_said_to_ask(text):
    (told,) = found(text)
    (of_source,) = found(text.replace("rules:\n- ", "rules:\n- source: victoria\n  "))
    assert told.reason.replace(" (podscale doctor --prometheus-url asks it)", "") == (
        of_source.reason
    )
    assert told.reason != of_source.reason


def test_a_join_keeps_the_label_of_its_many_side():
    text = query(
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
        " * on (pod) group_left (node) kube_pod_info{<<.LabelMatchers>>}"
    )
    assert not {"GroupByLost", "SeveralSeries"} & {each.lint for each in found(text)}


def test_every_rule_lint_is_described():
    assert all(RULE_LINTS.values())
    assert len(RULE_LINTS) == 19


@pytest.mark.parametrize(("matches", "written", "meant"), [
    ("^(.*)_total$", "$1_per_second", "${1}_per_second"),
    ("^(.*)_total$", "{1}_total", "${1}_total"),
    ("^(.*)_total$", r"\1_rate", "${1}_rate"),
    ("^(.*)_total$", "$(1)_rate", "${1}_rate"),
    ("^(.*)_total$", "app_{1}_x$1y", "app_${1}_x${1}y"),
    ("^(?P<name>.*)_total$", "$name_rate", "${name}_rate"),
    ("^(?P<name>.*)_total$", "{name}_rate", "${name}_rate"),
    ("^(.*)_(.*)$", "$2_$1", "${2}_$1"),
    # What is meant as it stands: Go's forms, an escaped dollar, braces of no group.
    ("^(.*)_total$", "${1}_rate", None),
    ("^(.*)_total$", "$1-rate", None),
    ("^(.*)_total$", "$$1_x", None),
    ("^(.*)_total$", "{2}_x", None),
    ("^(.*)_total$", "$x", None),
    ("", "fixed", None),
])  # fmt: skip
def test_what_a_name_was_meant_to_be_is_made_of_the_users_own_words(matches, written, meant):
    assert Namer(matches, written).meant() == meant
    text = json.dumps({"rules": [{
        "seriesQuery": "a_total", "name": {"matches": matches, "as": written},
        "resources": {"overrides": {"pod": {"resource": "pod"}}}, "metricsQuery": "x",
    }]})  # fmt: skip
    told = [each.reason for each in found(text) if each.lint == "UnbracedGroup"]
    assert [f"write {meant}" in reason for reason in told] == ([True] if meant else [])


@pytest.mark.parametrize("prefix", ["", "kube_"])
def test_the_default_rules_have_hints_only(prefix):
    told = found(config_gen.default_yaml("5m", prefix))
    assert {each.lint for each in told if not each.is_hint} == set()
    assert [each.lint for each in told] == ["UnboundedSeries"] * 3 + ["CountedTwice"] * 2


BLOCK = """  {name}:
    containerQuery: 'sum(a{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
    nodeQuery: 'sum(a{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
    resources: {{template: <<.Resource>>}}
    containerLabel: container
"""


@pytest.mark.parametrize("missing", ["cpu", "memory"])
@pytest.mark.parametrize("written", ["", "null", "{}"])
def test_a_missing_block_of_resource_rules_is_what_is_named(missing, written):
    (other,) = {"cpu", "memory"} - {missing}
    text = "resourceRules:\n" + BLOCK.format(name=other)
    (each,) = found(f"{text}  {missing}: {written}\n" if written else text)
    assert (each.lint, each.subject) == ("QueryInvalid", "resourceRules")
    assert each.reason.startswith(f"resourceRules.{missing} is missing")
    assert found(text + BLOCK.format(name=missing)) == []


BROKEN = """
rules:
- seriesQuery: 'a{'
  name: {matches: "("}
  resources: {template: "<<.Resource>>"}
  metricsQuery: 'sum(<<.Serie>>) by (<<.GroupBy>>)'
- seriesQuery: b
  resourses: {overrides: {pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>'
- seriesQuery: c
  metricQuery: 'sum(<<.Series>>) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: d
  resources: {template: "<<.Nothing>>"}
  metricsQuery: 'sum(<<'
resourceRules:
  cpu:
    containerQuery: 'sum(<<.LabelMatcher>>)'
    nodeQuery: 'sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
    containerLable: container
"""


def test_queries_of_a_refused_file_are_read_too_and_nothing_is_said_twice():
    with pytest.raises(ConfigInvalid) as refused:
        read_rules(BROKEN, "rules.yaml", PresumingMapper())
    lines = sorted(problem.line for problem in refused.value.problems)
    assert lines == [4, 8, 11, 14, 15, 20]
    told = query_findings(BROKEN, "rules.yaml", refused.value.problems, PresumingMapper())
    assert [(each.lint, int(each.place.split(":")[1])) for each in told] == [
        ("SeriesQueryInvalid", 3),
        ("QueryInvalid", 6),
        ("QueryInvalid", 9),
        ("QueryInvalid", 17),  # memory is missing
        ("QueryInvalid", 18),
    ]
    assert "metricsQuery fails: there is no field .Serie; there are .Series, .L" in told[1].reason


BY_POD = "by (<<.GroupBy>>)"
BY_LE = "by (le, <<.GroupBy>>)"
RATE = "rate(a_seconds_bucket{<<.LabelMatchers>>}[5m])"


@pytest.mark.parametrize("text", [
    f"histogram_quantile(0.99, sum({RATE}) {BY_LE})",
    f"histogram_quantile(0.99, sum({RATE}) by (<<.GroupBy>>, le)) * 1000",
    f"histogram_quantile(0.5, max by (pod) (x) * on (pod) group_right sum({RATE}) {BY_LE})",
    f"histogram_quantile(0.99, sum(rate(native_seconds{{<<.LabelMatchers>>}}[5m])) {BY_POD})",
    f"histogram_fraction(0, 0.3, sum({RATE}) {BY_LE})",
    'sum(a{<<.LabelMatchers>>,code="200"}) by (<<.GroupBy>>, code)',
    'sum(a{<<.LabelMatchers>>,code=~"200",job="x"}) by (<<.GroupBy>>, code, job)',
    "sum without (code) (sum(a{<<.LabelMatchers>>}) by (<<.GroupBy>>, code))",
    f"topk(1, a{{<<.LabelMatchers>>}}) {BY_POD}",
    f"bottomk(2, sum(a{{<<.LabelMatchers>>}}) {BY_POD})",
    f"sum(a{{<<.LabelMatchers>>}}) {BY_POD} or vector(0)",
    'label_replace(sum(a{<<.LabelMatchers>>}) by (p), "pod", "$1", "p", "(.*)")',
])  # fmt: skip
def test_one_series_of_each_object_is_not_called_several(text):
    assert {each.lint for each in found(query(text))} <= {"NotCoalesced"}


@pytest.mark.parametrize(("text", "lint", "advice"), [
    (f"histogram_quantile(0.99, {RATE})", "SeveralSeries", BY_LE),
    (f"histogram_quantile(0.99, sum({RATE}) by (le))", "GroupByLost", BY_LE),
    (f"histogram_quantile(0.99, sum({RATE}))", "GroupByLost", BY_LE),
    (f"histogram_quantile(0.99, sum({RATE}) {BY_POD})", "GroupByLost", BY_LE),
    (f"histogram_quantile(0.99, sum without (le) ({RATE}))", "GroupByLost", BY_LE),
    (f"max(histogram_quantile(0.99, sum({RATE}) {BY_LE}))", "GroupByLost", BY_POD),
    (f"histogram_quantile(0.99, sum({RATE}) by (le, code, <<.GroupBy>>))", "SeveralSeries", BY_LE),
    (f"histogram_quantile(0.99, sum({RATE}) {BY_POD})".replace(
        "a_seconds_bucket{", '{__name__=~"a_(x|y)_bucket",'), "GroupByLost", BY_LE),
    ('sum(a{<<.LabelMatchers>>,code=~"2.."}) by (<<.GroupBy>>, code)', "SeveralSeries", BY_POD),
    ('sum(a{<<.LabelMatchers>>,code!="1"}) by (<<.GroupBy>>, code)', "SeveralSeries", BY_POD),
    ('sum(a{<<.LabelMatchers>>,code="1"} / on (pod, code) b) by (pod, code)',
     "SeveralSeries", BY_POD),
    (f"topk(2, a{{<<.LabelMatchers>>}}) {BY_POD}", "SeveralSeries", BY_POD),
])  # fmt: skip
def test_advice_on_buckets_keeps_le_and_elsewhere_adds_none(text, lint, advice):
    told = [each for each in found(query(text)) if each.lint != "NotCoalesced"]
    assert [each.lint for each in told] == [lint]
    assert told[0].reason.endswith(advice)


def test_buckets_are_known_by_the_series_query_where_the_query_has_the_placeholder():
    text = query(
        f"histogram_quantile(0.9, sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[5m])) {BY_POD})"
    )
    assert found(text) == []
    text = text.replace("http_requests_total{", '{__name__=~"^http_.*_bucket$",').replace(
        'matches: "^(.*)_total$"', 'matches: "^(.*)_bucket$"'
    )
    assert [each.lint for each in found(text)] == ["GroupByLost"]


@pytest.mark.parametrize(("text", "is_raw"), [
    ('a{namespace="<<index .LabelValuesByName "namespace">>"}', False),
    ('a{namespace="<<.LabelValuesByName.namespace>>",tier="<<.LabelValuesByName.tier>>"}', False),
    ('a{namespace=~"<<index .LabelValuesByName "namespace">>"}', True),
    ('a{namespace!="<<index .LabelValuesByName "namespace">>"}', True),
    ('a{namespace="x-<<index .LabelValuesByName "namespace">>"}', True),
    ('a{tier=~"<<.LabelValuesByName.tier>>"}', True),
    ('a{namespace="<<.LabelValuesByName.namespace>>"} > <<.LabelValuesByName.tier>>', True),
    ('a{pod="<<index .LabelValuesByName "pod">>"}', True),  # of several pods it is a|b
])  # fmt: skip
def test_a_value_alone_in_quotes_behind_equals_is_not_raw(text, is_raw):
    """The finding's advice silences it, and so does what it used to advise."""
    told = found(query(f"sum({text}) by (<<.GroupBy>>)"))
    assert ("RawValue" in {each.lint for each in told}) is is_raw
    assert all("Write <<.LabelMatchers>>" in e.reason for e in told if e.lint == "RawValue")


USAGE = """
resourceRules:
  cpu: &cpu
    containerQuery: 'sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>CONTAINERS}[3m])) by (<<.GroupBy>>)'
    nodeQuery: 'sum(rate(NODE_SERIES{<<.LabelMatchers>>NODES}[3m])) by (<<.GroupBy>>)'
    resources: {overrides: {node: {resource: node}, namespace: {resource: namespace}, pod: {resource: pod}}}
    containerLabel: LABEL
  memory: *cpu
"""  # noqa: E501


@pytest.mark.parametrize(("containers", "nodes", "series", "label", "told"), [
    ("", "", "container_x", "container", ['container!=""', 'id="/"']),
    (',container!=""', ',id="/"', "container_x", "container", []),
    (',image!=""', ',container!=""', "container_x", "container", []),
    (',container=~".+"', ',id=~"/"', "container_x", "container", []),
    (',container!="POD"', ',pod!=""', "container_x", "container", ['container!=""', 'id="/"']),
    (',box!=""', "", "node_cpu", "box", []),
    ("", "", "node_cpu", "box", ['box!=""']),
])  # fmt: skip
def test_usage_of_containers_and_the_cgroups_around_them_is_counted_twice(
    containers, nodes, series, label, told
):
    text = USAGE.replace("CONTAINERS", containers).replace("NODES", nodes)
    text = text.replace("NODE_SERIES", series).replace("LABEL", label)
    twice = [each for each in found(text) if each.lint == "CountedTwice"]
    words = list(dict.fromkeys(each.reason for each in twice))
    assert len(words) == len(told)
    assert all(advice in reason for advice, reason in zip(told, words, strict=True))
    assert all(each.is_hint for each in twice)  # nobody was asked whether there are such series
    needs = [each.need for each in twice]
    said = KnownMetrics(answers=dict.fromkeys(needs, ""))
    assert [each.is_hint for each in found(text, said) if each.lint == "CountedTwice"] == (
        [False] * len(twice))  # fmt: skip
    lacking = KnownMetrics(answers=dict.fromkeys(needs, "finds no series for it"))
    assert "CountedTwice" not in {each.lint for each in found(text, lacking)}


def test_arithmetic_of_durations_is_a_hint_until_a_server_refuses_it():
    text = query("sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m*2])) by (<<.GroupBy>>)")
    (hint,) = found(text, KnownMetrics(scrape_interval_s=30))
    assert (hint.lint, hint.is_hint) == ("DurationArithmetic", True)
    (slow,) = [e for e in found(text, KnownMetrics(scrape_interval_s=31)) if not e.is_hint]
    assert "rate[2m]" in slow.reason
    assert found(text, KnownMetrics(answers={hint.need: ""})) == []
    (refused,) = found(text, KnownMetrics(answers={hint.need: "Prometheus refuses it: unexpected"}))
    assert (refused.lint, refused.is_hint) == ("QueryInvalid", False)
    assert "Prometheus refuses it" in refused.reason


def test_series_of_one_rule_with_one_name_are_told_with_the_one_that_is_asked():
    known = KnownMetrics(shared={"rules[0]": {"busy": {"a:busy", "b:busy"}}})
    (told,) = found(SOUND, known)
    assert (told.lint, told.place) == ("NameTwice", "rules.yaml:5:9")
    assert "2 series names come to one metric, busy, and only b:busy" in told.reason
