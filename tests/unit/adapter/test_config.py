"""The rules file: what is refused, where, and all at once."""

import pytest
import yaml

from adapter.errors import ConfigInvalid
from adapter.rules import config, yaml_nodes
from adapter.rules.config import GroupResource
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
        (12, 18, "rules[2].metricsQuery"),
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


@pytest.mark.parametrize(
    ("scalar", "text"),
    [("!!str 5", "5"), ("!!int 5", "5"), ("!!float 1", "1"), ("!!null ~", ""),
     ("!!binary aGk=", "hi"), ("!x y", "y")],
)  # fmt: skip
def test_a_tagged_scalar_is_the_text_that_its_tag_makes_of_it(scalar, text):
    assert config.parse(f"rules: [{{seriesQuery: {scalar}}}]").config.rules[0].series_query == text


@pytest.mark.parametrize(
    "scalar", ["!!null x", "!!int x", "!!bool x", "!!float x", "!!binary x", "!!binary /w=="]
)
def test_a_scalar_that_is_not_what_its_tag_says_is_refused_at_its_place(scalar):
    with pytest.raises(ConfigInvalid) as refused:
        config.parse(f"rules:\n- seriesQuery: {scalar}")
    assert [problem.line for problem in refused.value.problems] == [2]


@pytest.mark.parametrize("scalar", ["!!str true", "!x true"])
def test_what_is_tagged_as_something_else_is_no_boolean(scalar):
    with pytest.raises(ConfigInvalid):
        config.parse(f"rules: [{{resources: {{namespaced: {scalar}}}}}]")


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


def test_merges_that_double_with_each_rule_are_refused_and_not_followed():
    lines = ["rules:", "- &r0 {seriesQuery: a, metricsQuery: q}"]
    lines += [f"- &r{n} {{<<: [*r{n - 1}, *r{n - 1}]}}" for n in range(1, 40)]
    with pytest.raises(ConfigInvalid, match="merges bring in more than a file may hold"):
        config.parse("\n".join(lines))


BASE = """rules:
- &base
  seriesQuery: a
  seriesFilters: [{is: z}]
  resources: {template: t, namespaced: false, overrides: {ns: {resource: namespace, group: g}}}
  name: {matches: "^(.*)_total$", as: x}
"""
NS = {"ns": GroupResource("namespace", "g")}
POD = {"pod": GroupResource("pod")}


def second_rule(text):
    return config.parse(BASE + text).config.rules[1]


# By yaml.v2 2.4.0's UnmarshalStrict into prometheus-adapter's structs.
@pytest.mark.parametrize(("rule", "matches", "as_"), [
    pytest.param("{<<: *base, name: {as: y}}", "^(.*)_total$", "y", id="filled"),
    pytest.param("{name: {as: y}, <<: *base}", "^(.*)_total$", "x", id="a-later-merge-wins"),
    pytest.param("{<<: *base, name: ~}", "", "", id="null-empties"),
    pytest.param("{<<: *base, name: {as: ~}}", "^(.*)_total$", "", id="null-empties-a-text"),
    pytest.param("{<<: *base, <<: {name: {as: y}}}", "^(.*)_total$", "y", id="two-merges"),
    pytest.param("{<<: {name: {as: y}}, <<: *base}", "^(.*)_total$", "x", id="the-last-merge-wins"),
    pytest.param("{<<: [{name: {as: y}}, *base]}", "^(.*)_total$", "y", id="the-first-of-a-list"),
    pytest.param("{<<: [*base, {name: {as: y}}]}", "^(.*)_total$", "x", id="whatever-it-is"),
    pytest.param("{<<: {<<: *base, name: {as: y}}}", "^(.*)_total$", "y", id="a-merge-in-a-merge"),
    pytest.param("{<<: *base, name: {<<: {as: y}}}", "^(.*)_total$", "y", id="a-merge-below"),
    pytest.param("{name: {as: y}, <<: {name: ~}}", "", "", id="a-merged-null"),
])  # fmt: skip
def test_what_is_merged_fills_the_same_struct(rule, matches, as_):
    name = second_rule(f"- {rule}\n").name
    assert (name.matches, name.as_) == (matches, as_)


@pytest.mark.parametrize(("resources", "template", "namespaced", "overrides"), [
    pytest.param("{template: u}", "u", False, NS, id="the-rest-stays"),
    pytest.param("{namespaced: yes}", "t", True, NS, id="a-boolean-is-replaced"),
    pytest.param("{namespaced: ~}", "t", True, NS, id="null-is-the-default"),
    pytest.param("{overrides: {pod: {resource: pod}}}", "t", False, NS | POD, id="labels-add-up"),
    pytest.param("{overrides: {}}", "t", False, NS, id="an-empty-mapping-adds-nothing"),
    pytest.param("{overrides: ~}", "t", False, {}, id="null-empties"),
    pytest.param("~", "", True, {}, id="null-empties-all"),
])  # fmt: skip
def test_merged_resources_are_filled_and_their_overrides_added_to(
    resources, template, namespaced, overrides
):
    found = second_rule(f"- {{<<: *base, resources: {resources}}}\n").resources
    assert (found.template, found.namespaced) == (template, namespaced)
    assert found.overrides == overrides


@pytest.mark.parametrize(("filters", "count"), [("[{isNot: k}]", 1), ("[]", 0), ("~", 0)])
def test_a_merged_list_is_replaced(filters, count):
    found = second_rule(f"- {{<<: *base, seriesFilters: {filters}}}\n").series_filters
    assert len(found) == count
    assert all(each.is_not == "k" and not each.is_ for each in found)


def test_resource_rules_are_filled_wherever_they_are_merged():
    text = """<<: {resourceRules: {cpu: {containerQuery: a}}}
resourceRules:
  cpu: &cpu {nodeQuery: b, resources: {overrides: {i: {resource: node}}}}
  memory: {<<: *cpu, nodeQuery: c}
"""
    found = config.parse(text).config.resource_rules
    assert (found.cpu.container_query, found.cpu.node_query) == ("a", "b")
    assert (found.memory.container_query, found.memory.node_query) == ("", "c")
    assert found.memory.resources.overrides == {"i": GroupResource("node")}


OVERRIDES = "rules:\n- resources: {overrides: &ov {ns: {resource: namespace, group: g}}}\n"


@pytest.mark.parametrize("overrides", [
    "{<<: *ov, pod: {resource: pod}}", "{pod: {resource: pod}, <<: *ov}",
    "{<<: [*ov, {pod: {resource: pod}}]}", "{<<: *ov, <<: {pod: {resource: pod}}}",
])  # fmt: skip
def test_a_merge_key_among_overrides_adds_its_labels(overrides):
    text = f"{OVERRIDES}- resources: {{overrides: {overrides}}}\n"
    assert config.parse(text).config.rules[1].resources.overrides == NS | POD


@pytest.mark.parametrize(("overrides", "column"), [
    ("{<<: *ov, ns: {resource: pod}}", 36), ("{ns: {resource: pod}, <<: *ov}", None),
    ("{<<: [*ov, *ov]}", None), ("{<<: *ov, ns: ~}", 36),
])  # fmt: skip
def test_a_label_that_is_merged_and_written_is_refused_as_by_go(overrides, column):
    place = (3, column, "rules[1].resources.overrides") if column else (2, 31, None)
    ((line, at, path),) = problems(f"{OVERRIDES}- resources: {{overrides: {overrides}}}\n")
    assert (line, at) == place[:2]
    assert path == "rules[1].resources.overrides"


def test_a_quoted_merge_key_is_a_label_like_any_other():
    text = 'rules: [{resources: {overrides: {"<<": {resource: pod}}}}]'
    assert set(config.parse(text).config.rules[0].resources.overrides) == {"<<"}


@pytest.mark.parametrize("rule", [
    "{<<: ~}", "{<<: a}", "{<<: [a]}", "{<<: [[*base]]}", '{"<<": *base}', "&me {<<: *me}",
    "&me {<<: [{<<: *me}]}", "{<<: {seriesQuery: [a]}, seriesQuery: b}", "{<<: {nope: 1}}",
    "{<<: {seriesFilters: a}, seriesFilters: []}", "{<<: *base, name: {as: y, as: z}}",
    "{resources: {namespaced: 5, <<: {namespaced: yes}}}",
])  # fmt: skip
def test_what_go_cannot_merge_is_refused_once(rule):
    ((line, _, _),) = problems(f"{BASE}- {rule}\n")
    assert line == 7


def test_what_is_wrong_in_a_merged_rule_is_told_once():
    text = "rules:\n- &a {seriesQuery: [x], nope: 1}\n- <<: *a\n- <<: *a\n"
    assert problems(text) == [(2, 20, "rules[0].seriesQuery"), (2, 25, "rules[0]")]


def test_an_anchor_may_be_given_anew():
    rules_ = config.parse(
        "rules:\n- &a {seriesQuery: x}\n- &a {seriesQuery: y}\n- *a\n"
    ).config.rules
    assert [rule.series_query for rule in rules_] == ["x", "y", "y"]


def test_a_merged_fields_place_is_where_it_is_written():
    parsed = config.parse(f"{BASE}- <<: *base\n  name: {{as: y}}\n")
    assert parsed.places["rules[1].name.matches"] == (6, 19)
    assert parsed.places["rules[1].name.as"] == (8, 14)


TABS = [
    "rules:\n- seriesQuery: foo\t\n", 'rules:\n- seriesQuery: "foo"\t# c\n',
    "rules:\t\n- seriesQuery: foo\n", "rules:\n- {name: {matches: a,\tas: b}, seriesQuery: foo}\n",
    "rules: [\n\t{seriesQuery: foo}\n\t]\n", "rules:\n- seriesQuery:\tfoo\n",
]  # fmt: skip


@pytest.mark.parametrize("text", TABS)
def test_a_tab_may_follow_a_value_or_a_colon(text):
    assert config.parse(text).config.rules[0].series_query == "foo"


@pytest.mark.parametrize(("text", "place"), [
    ("rules:\n\t- seriesQuery: foo\n", (2, 1)),
    ("rules:\n-\tseriesQuery: foo\n", (2, 2)),
    ("rules:\n- seriesQuery: foo\n\tmetricsQuery: b\n", (3, 1)),
])  # fmt: skip
def test_a_tab_that_indents_is_refused_and_named_with_its_place(text, place):
    with pytest.raises(ConfigInvalid, match=r"tab|\\t") as caught:
        config.parse(text, "rules.yaml")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column) == place
    assert str(caught.value).startswith(f"rules.yaml:{place[0]}:{place[1]}: not YAML: ")


def test_without_libyaml_a_tab_is_a_problem_and_the_rest_reads_the_same():
    found = yaml_nodes.root(TABS[0], yaml.SafeLoader)
    assert (found.line, found.column) == (2, 19)
    slow, fast = (yaml_nodes.root(RULES, loader) for loader in (yaml.SafeLoader, yaml.CSafeLoader))
    assert yaml.serialize(slow) == yaml.serialize(fast)


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader])
@pytest.mark.parametrize("text", [
    "a: [", "*x", 'a: "\x07"', "a: \ud800", "a: @b", "[" * 1000, "{a: b", '"a',
])  # fmt: skip
def test_what_cannot_be_read_is_a_problem_with_either_scanner(loader, text):
    assert yaml_nodes.root(text, loader).message.startswith("not YAML: ")


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
    (rule,) = rules("rules: [{seriesQuery: a, metricsQuery: b}]").custom
    assert not rule.labels.has_template
    assert not rule.labels.override_labels


def test_equal_rules_have_equal_fingerprints_wherever_they_stand():
    twice = rules("rules: [{seriesQuery: a}, {seriesQuery: b}, {seriesQuery: a}]").custom
    assert twice[0].fingerprint == twice[2].fingerprint != twice[1].fingerprint


def test_the_rules_of_the_tests_compile():
    made = rules(RULES)
    assert (len(made.custom), len(made.external)) == (1, 1)
    assert made.resource.window_s == 300


@pytest.mark.parametrize(("field", "text", "said"), [
    ("metricsQuery", "sum(<<.Series>)",
     'line 1, column 5: unexpected ">" in action: "<<.Series>)"'),
    ("metricsQuery", "sum(<<.Series>>)\\n by (<<.GroupBy",
     'line 2, column 6: unclosed action: "<<.GroupBy"'),
    ("metricsQuery", "<<with .Series>>x<<end>>",
     ('line 1, column 1: TemplateConstructRefused: rules cannot use with in templates; write it '
      'with fields, index, if, range, printf, eq and ne: "<<with .Series>>x<<end>>"')),
    ("resources", "<<.Resource", 'line 1, column 1: unclosed action: "<<.Resource"'),
    ("resources", "a<<if>>", 'line 1, column 2: unexpected ">" in action: "<<if>>"'),
])  # fmt: skip
def test_what_is_wrong_with_a_template_is_said_without_a_name_it_has_not(field, text, said):
    value = f'{{template: "{text}"}}' if field == "resources" else f'"{text}"'
    rest = "metricsQuery: a" if field == "resources" else "resources: {template: <<.Resource>>}"
    with pytest.raises(ConfigInvalid) as refused:
        rules(f"rules:\n- {{seriesQuery: a, {rest}, {field}: {value}}}")
    (problem,) = refused.value.problems
    assert problem.message == said


@pytest.mark.parametrize(("written", "action"), [
    ("sum(<<.Series>>) by (<<.GroupBy)", "<<.GroupBy)"),
    ("'sum(<<.Series>>) by (<<.GroupBy)'", "<<.GroupBy)"),
    ("|\n    sum(<<.Series>>{<<.LabelMatchers>>})\n    by (<<.GroupBy)", "<<.GroupBy)"),
    ("|-\n    sum(<<.Series{<<.LabelMatchers>>})\n    by (<<.GroupBy>>)",
     "<<.Series{<<.LabelMatchers>>})"),
    ("sum(\n    <<.Series>>)\n    by (<</* by pod */>><<.GroupBy", "<<.GroupBy"),
    ('"sum(<<.Series>>) by (\\x3c<.GroupBy)"', ""),  # not written as it reads: the value
])  # fmt: skip
@pytest.mark.parametrize("rest", ["", "\n  resources: {template: <<.Resource>>}"])
def test_an_action_that_does_not_close_is_quoted_where_it_opens(written, action, rest):
    text = f"rules:\n- seriesQuery: a\n  metricsQuery: {written}{rest}\n"
    with pytest.raises(ConfigInvalid) as refused:
        rules(text)
    (problem,) = refused.value.problems
    place = text.index(action) if action else text.index("metricsQuery: ") + len("metricsQuery: ")
    before = text[:place].split("\n")
    assert (problem.line, problem.column) == (len(before), len(before[-1]) + 1)
    assert f'"{action or "<<.GroupBy)"}' in problem.message
