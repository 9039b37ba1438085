"""What stands beside a metric that is served, and what the doctor writes in the user's words."""

import json
import math

import pytest

from adapter.discovery.mapping import BUILT_IN
from adapter.doctor import diagnosis as doctor
from adapter.doctor.evidence import AskedEvidence, Point, Result, Series, Surroundings
from tests.kit.doctor import WrittenAnswers, run, words

RULE = {
    "seriesQuery": "http_requests_total",
    "resources": {"overrides": {
        "namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}
    }},
    "name": {"matches": "^(.*)_total$", "as": "${1}_per_second"},
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
}  # fmt: skip
LABELS = {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-1"}


def point(pod, value=1.0, age_s=5.0):
    return Point({"pod": pod}, value, age_s)


def diagnosis(points, pods, rules=(RULE,), metric="http_requests_per_second", failing="", young=()):
    found = WrittenAnswers(
        [(rule["seriesQuery"], Series([LABELS | {"__name__": rule["seriesQuery"]}]))
         for rule in rules],
        [],
        [(failing, Result([]))] * bool(failing) + [("", Result(points))],
    )  # fmt: skip
    asked = AskedEvidence("custom", metric, "shop", "pods", "*", "app=web")
    around = Surroundings("http://prometheus", resources=BUILT_IN, objects=pods, young=young)
    text = json.dumps({"rules": list(rules)})
    return run(doctor.diagnose(text, asked, around, "rules.yaml"), found)


@pytest.mark.parametrize(("points", "silent"), [
    ([point("web-1"), point("web-2"), point("web-3")], []),
    ([point("web-1"), point("web-3")], ["web-2"]),
    ([point("web-2")], ["web-1", "web-3"]),
    ([point("web-1"), point("web-2", math.nan), point("web-3")], ["web-2"]),
    ([point("web-1"), point("web-2"), point("web-3", age_s=400.0)], ["web-3"]),
    ([point("web-1"), point("db-0"), point("web-3")], ["web-2"]),
    ([point("web-1"), point("web-2"), point("web-3", age_s=None)], []),
])  # fmt: skip
def test_pods_without_a_sample_stand_beside_healthy_by_name(points, silent):
    found = diagnosis(points, ["web-1", "web-2", "web-3"])
    assert found.stage == "Healthy"
    assert [each.lint for each in found.beside] == ["NoSample"] * bool(silent)
    told = "".join(each.reason for each in found.beside)
    assert [name for name in ("web-1", "web-2", "web-3") if name in told] == silent
    assert all(name in words(found) for name in silent)
    assert ("Nothing needs to change" in words(found)) is (not silent)


def test_a_pod_that_has_just_come_is_not_told_of():
    found = diagnosis([point("web-1")], ["web-1", "web-2", "web-3"], young=["web-2"])
    (told,) = found.beside
    assert "web-3" in told.reason
    assert "web-2" not in told.reason
    assert diagnosis([point("web-1")], ["web-1", "web-2"], young=["web-2"]).beside == ()


def test_many_silent_pods_are_counted_and_the_first_named():
    pods = [f"web-{number:03}" for number in range(100)]
    found = diagnosis([point("web-000")], pods)
    assert "web-001" in words(found)
    assert "and 79 more" in words(found)
    assert "web-099" not in words(found)


def test_the_rule_whose_name_is_exposed_twice_is_told_beside_with_both_series():
    other = RULE | {"seriesQuery": "requests_total", "name": {"as": "http_requests_per_second"}}
    found = diagnosis([point("web-1")], ["web-1"], (RULE, other))
    assert (found.stage, found.rule) == ("Healthy", 1)
    assert [each.lint for each in found.beside] == ["NameTwice"]
    assert "http_requests_total" in words(found)
    assert "requests_total" in words(found).replace("http_requests_total", "")


def test_a_shadowed_rule_names_its_series_and_the_other_ones():
    other = RULE | {"seriesQuery": "requests_total", "name": {"as": "http_requests_per_second"}}
    found = diagnosis([point("web-1")], ["web-1"], (RULE, other), failing=r"\(requests_total")
    assert (found.stage, found.rule) == ("ShadowedByOtherRule", 0)
    assert "from the series http_requests_total" in words(found)
    assert "exposes requests_total" in words(found)


@pytest.mark.parametrize(("written", "meant"), [
    ("{1}_rate", "${1}_rate"), ("$1_rate", "${1}_rate"), (r"\1_rate", "${1}_rate")
])  # fmt: skip
def test_a_name_that_is_not_the_one_asked_for_says_what_to_write(written, meant):
    rule = RULE | {"name": {"matches": "^(.*)_total$", "as": written}}
    found = diagnosis([], ["web-1"], (rule,), metric="http_requests_rate")
    assert found.stage == "NameMismatch"
    assert f"write {meant}" in words(found)


def test_a_name_that_is_not_what_was_meant_is_told_as_it_is_written():
    rule = {**RULE, "name": {"matches": "^(.*)_total$", "as": "$1_per_second"}}
    found = diagnosis([point("web-1")], ["web-1"], rules=[rule])
    assert found.stage == "NameMismatch"
    assert "name.as is $1_per_second" in found.seen
    assert "write ${1}_per_second" in found.seen


def answered(rule, series, asked, results):
    found = WrittenAnswers([(rule["seriesQuery"], Series(series))], [], results)
    around = Surroundings("http://prometheus", resources=BUILT_IN)
    section = "rules" if asked.api == "custom" else "externalRules"
    return run(doctor.diagnose(json.dumps({section: [rule]}), asked, around, "rules.yaml"), found)


def test_an_empty_quantile_of_buckets_without_le_names_le():
    query = "histogram_quantile(0.9, sum(rate(a_bucket{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>))"
    asked = AskedEvidence("custom", "http_requests_per_second", "shop", "pods", "web-1")
    found = answered({**RULE, "metricsQuery": query}, [LABELS], asked, [("", Result([]))])
    assert found.stage == "EmptyResult"
    assert "drops the label le" in found.seen
    assert "by (le, <<.GroupBy>>)" in found.seen
    assert "one by one" not in found.seen


def test_advice_for_a_lost_label_keeps_le():
    query = "histogram_quantile(0.9, sum(rate(a_bucket{<<.LabelMatchers>>}[2m])) by (le))"
    asked = AskedEvidence("custom", "http_requests_per_second", "shop", "pods", "web-1")
    points = Result([Point({}, 1.0, 5.0)])
    found = answered({**RULE, "metricsQuery": query}, [LABELS], asked, [("", points)])
    assert found.stage == "GroupByLost"
    assert "by (le, <<.GroupBy>>)" in found.change


TEAMS = {
    **RULE,
    "seriesQuery": '{__name__=~".+:busy"}',
    "name": {"matches": "^.+:busy$", "as": "busy"},
    "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}
BUSY = [LABELS | {"__name__": f"{team}:busy"} for team in ("a", "b", "c")]


@pytest.mark.parametrize(("having", "stage"), [
    ("a:busy", "ShadowedByOtherRule"), ("b:busy", "ShadowedByOtherRule"),
    ("c:busy", "Healthy"), ("none", "EmptyResult"),
])  # fmt: skip
def test_a_series_of_the_same_rule_that_is_not_asked_is_named(having, stage):
    asked = AskedEvidence("custom", "busy", "shop", "pods", "web-1")
    results = [(having, Result([point("web-1")])), ("", Result([]))]
    found = answered(TEAMS, BUSY, asked, results)
    assert found.stage == stage
    if stage == "ShadowedByOtherRule":
        assert f"from the series {having}, but only c:busy" in found.seen
    assert [each.lint for each in found.beside] == ["NameTwice"] * (stage == "Healthy")


def test_series_that_the_query_does_not_name_share_it():
    rule = {**TEAMS, "metricsQuery": "avg(other{<<.LabelMatchers>>}) by (<<.GroupBy>>)"}
    asked = AskedEvidence("custom", "busy", "shop", "pods", "web-1")
    found = answered(rule, BUSY, asked, [("", Result([point("web-1")]))])
    assert (found.stage, found.beside) == ("Healthy", ())


QUEUE = {
    "seriesQuery": "queue",
    "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
}


@pytest.mark.parametrize(("labels", "seen", "unseen"), [
    ({"namespace": "mq"}, "The series' namespace is mq, not shop. Set resources.namespaced: false",
     "one by one"),
    ({"namespace": "mq", "exported_namespace": "shop"}, "in the label exported_namespace",
     "one by one"),
    ({"namespace": "shop"}, "one by one", "namespaced"),
])  # fmt: skip
def test_series_of_another_namespace_are_told_with_it(labels, seen, unseen):
    asked = AskedEvidence("external", "queue", "shop")
    series = [{"__name__": "queue", "queue": "orders", **labels}]
    found = answered(QUEUE, series, asked, [("", Result([]))])
    assert found.stage == "EmptyResult"
    assert seen in found.seen
    assert unseen not in found.seen


def test_of_pods_the_namespace_is_judged_by_their_own_series():
    series = [LABELS, LABELS | {"pod": "web-2", "namespace": "other"}]
    for name, seen in (("web-2", "The series' namespace is other, not shop."), ("web-1", "one by")):
        asked = AskedEvidence("custom", "http_requests_per_second", "shop", "pods", name)
        assert seen in answered(RULE, series, asked, [("", Result([]))]).seen
