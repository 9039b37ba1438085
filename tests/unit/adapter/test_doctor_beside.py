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
