"""Values of prometheus-adapter's chart, and what people wrap them in: places are the file's own."""

import json
import textwrap
from typing import Any

import pytest
import yaml

from adapter.discovery.mapping import PresumingMapper
from adapter.rules.config import Parsed, read
from adapter.rules.ruleset import read_rules
from podscale.migrate.documents import Unreadable
from podscale.migrate.reader import migrate_all
from podscale.migrate.rules_source import find

RULE = {"seriesQuery": "a", "resources": {"template": "<<.Resource>>"}, "metricsQuery": "sum(a)"}
VALUES = """\
rules:
  default: false
  custom:
  - seriesQuery: a
    resources: {template: <<.Resource>>}
    metricsQuery: sum(a)
  external:
  - metricsQuery: sum(b)
    seriesQuery: b
    resources: {namespaced: false}
"""
APPLICATION = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\n"
RELEASE = "kind: HelmRelease\napiVersion: h/v2\nmetadata: {name: a, namespace: m}\n"


def parsed(text: str) -> Parsed:
    found = find(text, "f.yaml")
    assert found.form == "Helm values"
    return read_rules(found.text, found.file, PresumingMapper())[0]


def indented(columns: int, text: str = VALUES) -> str:
    return textwrap.indent(text, " " * columns)


@pytest.mark.parametrize(("head", "columns"), [
    pytest.param("", 0, id="values"),
    pytest.param("prometheus: {enabled: true}\nprometheus-adapter:\n", 2, id="umbrella"),
    pytest.param("adapter:\n", 2, id="umbrella-with-an-alias"),
    pytest.param(f"{RELEASE}spec:\n  values:\n", 4, id="HelmRelease"),
    pytest.param(f"kind: A\napiVersion: v1\n---\n{RELEASE}spec:\n  values:\n", 4,
                 id="another-document-before"),
    pytest.param(f"{RELEASE}spec:\n  values:\n    prometheus-adapter:\n", 6,
                 id="HelmRelease-of-an-umbrella"),
    pytest.param(f"{APPLICATION}spec:\n  source:\n    helm:\n      valuesObject:\n", 8,
                 id="Application"),
    pytest.param(f"{APPLICATION}spec:\n  source:\n    helm:\n      values: |\n", 8,
                 id="Application-with-a-text"),
    pytest.param(f"{APPLICATION}spec:\n  sources:\n  - helm:\n      values: |\n", 10,
                 id="Application-of-several-sources"),
    pytest.param("releases:\n- chart: p/prometheus-adapter\n  values:\n  -\n", 4, id="helmfile"),
    pytest.param("helmCharts:\n- name: prometheus-adapter\n  valuesInline:\n", 4,
                 id="kustomization"),
])  # fmt: skip
def test_places_are_those_of_the_file(head, columns):
    text = head + indented(columns)
    found = parsed(text)
    line = head.count("\n")
    assert found.place("rules[0]") == f"f.yaml:{line + 4}:{columns + 5}"
    assert found.place("rules[0].metricsQuery") == f"f.yaml:{line + 6}:{columns + 19}"
    assert found.place("externalRules[0].seriesQuery") == f"f.yaml:{line + 9}:{columns + 18}"
    assert [each.metrics_query for each in found.config.rules] == ["sum(a)"]
    outcome = migrate_all([(text, "f.yaml")])
    assert "rules, taken as they are" in "".join(outcome.read)
    assert "image" in outcome.manifests[0]


def test_values_in_quotes_have_the_place_of_the_quotes():
    application = {"kind": "Application", "metadata": {"name": "a"}, "apiVersion": "v1",
                   "spec": {"source": {"helm": {"values": VALUES}}}}  # fmt: skip
    text = json.dumps(application, indent=1)
    line = next(i for i, each in enumerate(text.splitlines(), 1) if '"values"' in each)
    assert parsed(text).place("rules[0].metricsQuery").startswith(f"f.yaml:{line}:")


def test_a_recording_of_wrapped_rules_holds_the_rules_alone():
    found = find(f"adapter:\n{indented(2)}", "f.yaml")
    assert read(found.as_file)[0].config == read(found.text)[0].config


@pytest.mark.parametrize("value", ["false", "null", "0", '""'])
def test_default_rules_are_off_where_a_template_takes_the_value_for_false(value):
    assert parsed(f"rules: {{default: {value}}}").config.rules == ()


def test_default_rules_stand_before_the_written_at_the_line_that_asks_for_them():
    found = parsed(VALUES.replace("default: false", "default: true"))
    assert len(found.config.rules) == 7
    assert found.config.resource_rules is None
    assert found.place("rules[3].seriesQuery") == "f.yaml:2:3"
    assert found.place("rules[6]") == "f.yaml:4:5"
    outcome = migrate_all([("rules: {}\n", "f.yaml")])
    assert "f.yaml:1:1 (default rule 4)" in [each.about for each in outcome.differs]


@pytest.mark.parametrize(("values", "said"), [
    ({"rules": {"custom": RULE}}, "f.yaml:1:12: HelmValues: rules.custom is a mapping, and the"),
    ({"rules": {"external": {"a": RULE}}}, "rules.external is a mapping, and the chart takes a"),
    ({"rules": {"custom": "- seriesQuery: a"}}, "rules.custom is the text '- seriesQuery: a'"),
    ({"rules": {"resource": [RULE]}}, "rules.resource is a list, and the chart takes a mapping"),
    ({"rules": {"existing": {"name": "a"}}}, "rules.existing is a mapping"),
    ({"rules": {"default": "false"}}, "rules.default is the text 'false', and the chart takes"),
    ({"prometheus": {"url": "a"}, "rules": [RULE]}, "rules is a list, and the chart takes a"),
    ({"rules": {"customs": [RULE]}}, "unknown key 'customs' of rules; did you mean 'custom'?"),
    ({"rules": {"default": True, "rate": "2m"}}, "unknown key 'rate' of rules; known here: d"),
    ({"rule": {"custom": [RULE]}}, "unknown key 'rule' of the values; did you mean 'rules'?"),
    ({"rules": {"default": True}, "custom": [RULE]}, "'custom' of the values: write rules.custom."),
    ({"rules": {"default": True}, "externalRules": [RULE]}, "the values: write rules.external."),
    ({"rules": {"custom": {}, "external": None, "resource": {}, "existing": ""}}, ""),
])  # fmt: skip
def test_values_that_the_chart_breaks_or_drops_are_told(values: Any, said: str):
    text = json.dumps(values)
    outcome = migrate_all([(text, "f.yaml")])
    problems = find(text, "f.yaml").problems
    assert said in "".join(each.text for each in problems)
    assert bool(problems) is bool(said)
    assert [each.text for each in outcome.broken if "HelmValues" in each.text] == [
        f"HelmValues: {each.reason}" for each in problems
    ]


def test_values_without_rules_are_told_the_keys_of_values():
    outcome = migrate_all([("rules: {default: false}\n", "f.yaml")])
    (remark,) = outcome.broken
    assert remark.text == (
        "NoRules: there are no rules: write rules.custom, rules.external or rules.resource"
    )


@pytest.mark.parametrize("text", [
    "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: a}\n",
    "kind: HelmRelease\napiVersion: v2\nmetadata: {name: a}\nspec: {values: {replicas: 2}}\n",
    "kind: ClusterRole\napiVersion: rbac/v1\nmetadata: {name: a}\nrules: [{verbs: [get]}]\n",
])  # fmt: skip
def test_a_file_of_another_kind_is_named_as_what_it_is(text):
    kind = yaml.safe_load(text)["kind"]
    with pytest.raises(Unreadable, match=f"f.yaml: this is a {kind}, which holds no rules"):
        find(text, "f.yaml")


def test_values_of_other_charts_are_none_of_ours():
    text = "loki: {ruler: {rules: {}}, rules: {a: {b: 1}}}\ngrafana: {prometheus: {url: a}}\n"
    assert find(text, "f.yaml").form == "rules file"


def test_values_of_a_config_map_are_values():
    text = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata:\n  values.yaml: |\n"
    assert parsed(text + indented(4)).place("rules[0]") == "f.yaml:9:9"


def test_a_file_is_read_once_however_many_objects_are_in_it(monkeypatch):
    asked: list[str] = []

    def values_in(text: str, file: str) -> list[Any]:
        asked.append(file)
        return []

    monkeypatch.setattr("podscale.migrate.rules_source.values_in", values_in)
    migrate_all([("---\n".join(["kind: Pod\n"] * 50), "f.yaml")])
    assert asked == ["f.yaml"]


def test_escapes_of_json_become_characters_where_places_are_read():
    values = json.dumps({"rules": {"custom": [RULE | {"seriesQuery": '{a="🦉\\\\ud83e\\udd89"}'}]}})
    (rule,) = parsed(values).config.rules[6:]
    assert rule.series_query == '{a="🦉\\\\ud83e\\udd89"}'


def test_values_of_before_in_an_object_are_not_read():
    helm = {"source": {"helm": {"values": VALUES}}}
    application = {
        "kind": "Application", "apiVersion": "v1",
        "metadata": {"name": "a", "annotations": {"last-applied": yaml.safe_dump({"spec": helm})}},
        "spec": helm, "status": {"history": [helm]},
    }  # fmt: skip
    (_, remark) = migrate_all([(json.dumps(application), "f.json")]).read
    assert remark == "Helm values of Application a: rules: 2 rules, taken as they are"
