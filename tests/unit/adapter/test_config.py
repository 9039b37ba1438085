"""The rules file: what is refused, where, and all at once."""

import pytest

from adapter import config
from adapter.errors import ConfigInvalid
from tests.unit.adapter.world import RULES, rules


def problems(text):
    with pytest.raises(ConfigInvalid) as caught:
        config.parse(text, "rules.yaml")
    return [(p.line, p.column, p.path) for p in caught.value.problems]


def refused_rules(text):
    with pytest.raises(ConfigInvalid) as caught:
        rules(text)
    return [(p.line, p.column, p.path) for p in caught.value.problems]


def test_every_problem_is_told_at_once_with_its_place():
    text = """rules:
- seriesQuery: a
  metricQuery: b
  name: nothing
- seriesFilters: {is: a}
resourceRules:
  window: 5 minutes
extra: 1
"""
    assert problems(text) == [
        (3, 3, "rules[0]"),
        (4, 9, "rules[0].name"),
        (5, 18, "rules[1].seriesFilters"),
        (7, 11, "resourceRules.window"),
        (8, 1, ""),
    ]


def test_what_does_not_compile_is_told_at_once_with_its_place():
    text = """rules:
- seriesQuery: a
  seriesFilters:
  - is: (
  - {is: a, isNot: b}
  resources: {template: const}
  name: {matches: "(a)(b)"}
- resources:
    overrides:
      d: {resource: bogus}
  metricsQuery: <<toUpper .Series>>
- metricsQuery: '<<.Series'
"""
    assert refused_rules(text) == [
        (4, 5, "rules[0].seriesFilters[0]"),
        (5, 5, "rules[0].seriesFilters[1]"),
        (6, 25, "rules[0].resources.template"),
        (7, 19, "rules[0].name.matches"),
        (10, 10, "rules[1].resources.overrides.d"),
        (11, 17, "rules[1].metricsQuery"),
        (12, 17, "rules[2].metricsQuery"),
    ]


@pytest.mark.parametrize(("scalar", "value"), [
    ("no", False), ("off", False), ("n", False), ("False", False),
    ("yes", True), ("On", True), ("Y", True), ("TRUE", True),
])  # fmt: skip
def test_booleans_are_those_of_yaml_1_1(scalar, value):
    text = f"externalRules: [{{resources: {{namespaced: {scalar}}}}}]"
    assert config.parse(text).config.external_rules[0].resources.namespaced is value


def test_a_quoted_no_is_no_boolean():
    text = "externalRules: [{resources: {namespaced: 'no'}}]"
    assert problems(text) == [(1, 42, "externalRules[0].resources.namespaced")]


@pytest.mark.parametrize("scalar", ["5", "1.50", "yes", "2001-01-01", "0x10"])
def test_any_scalar_is_the_text_that_is_written(scalar):
    assert (
        config.parse(f"rules: [{{seriesQuery: {scalar}}}]").config.rules[0].series_query == scalar
    )


def test_null_is_the_empty_text_and_null_sections_are_absent():
    parsed = config.parse("rules: [{seriesQuery: ~, name: null}]\nresourceRules:\n").config
    assert parsed.rules[0].series_query == ""
    assert parsed.resource_rules is None


def test_a_merge_key_is_taken_and_own_keys_win():
    text = """rules:
- &base {seriesQuery: a, metricsQuery: q}
- <<: *base
  seriesQuery: b
"""
    second = config.parse(text).config.rules[1]
    assert (second.series_query, second.metrics_query) == ("b", "q")


def test_keys_are_case_sensitive_and_the_right_one_is_hinted():
    with pytest.raises(ConfigInvalid, match="did you mean 'rules'"):
        config.parse("Rules: []")


def test_a_label_that_is_overridden_twice_is_refused():
    text = "rules: [{resources: {overrides: {a: {resource: pod}, a: {resource: pod}}}}]"
    assert len(problems(text)) == 1


def test_what_is_no_yaml_is_told_with_its_place():
    ((line, column, _),) = problems("rules:\n- a: b: c\n")
    assert (line, column) == (2, 7)


def test_only_the_first_document_counts():
    assert config.parse("rules: []\n---\nnonsense: 1\n").config.rules == ()


def test_the_text_of_a_problem_can_be_jumped_to():
    with pytest.raises(ConfigInvalid) as caught:
        config.parse("foo: 1", "rules.yaml")
    assert str(caught.value).startswith("rules.yaml:1:1: unknown key 'foo'")


def test_a_rule_without_resources_is_accepted():
    assert rules("rules: [{seriesQuery: a, metricsQuery: b}]").custom[0].labels.is_empty


def test_equal_rules_have_equal_fingerprints_wherever_they_stand():
    twice = rules("rules: [{seriesQuery: a}, {seriesQuery: b}, {seriesQuery: a}]").custom
    assert twice[0].fingerprint == twice[2].fingerprint != twice[1].fingerprint


def test_the_rules_of_the_tests_compile():
    made = rules(RULES)
    assert (len(made.custom), len(made.external)) == (1, 1)
    assert made.resource.window_s == 300
