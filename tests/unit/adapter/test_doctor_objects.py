"""The doctor follows a MetricRule as a rule of the file: to the first stage that fails."""

import json
from typing import Any

import msgspec
import pytest

from adapter.doctor.diagnosis import diagnose, may_answer
from adapter.doctor.evidence import (
    AskedEvidence,
    Diagnosis,
    Given,
    Point,
    Result,
    Series,
    Surroundings,
)
from adapter.metric_rules.objects import StoredMetricRule, compiled
from adapter.rules.ruleset import Rule
from adapter.sources.sources_file import NamedSources, SourceAccess
from adapter.stages import Stage
from podscale.kube.client.resource import NAMESPACES, PODS
from podscale.kube.client.wire import ObjectMeta
from podscale.kube.discovery import Mapper
from tests.kit.doctor import WrittenAnswers, run, words

AROUND = Surroundings("http://prometheus", resources=(PODS, NAMESPACES), objects=("web-1",))
FILE = "externalRules: [{seriesQuery: depth, resources: {namespaced: false}, metricsQuery: file}]"
OWN = 'depth{namespace="shop"}'
DEPTH = {"type": "External", "seriesQuery": "depth", "metricsQuery": "sum(<<.Series>>)"}
PODS_RULE = {
    "seriesQuery": "depth", "resources": {"overrides": {"pod": {"resource": "pod"}}},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}  # fmt: skip
RENAMED = {"name": {"matches": "^(.*)$", "as": "of_$1"}}
EXTERNAL = AskedEvidence("external", "depth", "shop")
OF_PODS = AskedEvidence("custom", "depth", "shop", "pods", "*")


def own(namespace: str = "shop", **spec: Any) -> Rule:
    meta = ObjectMeta(name="web", namespace=namespace)
    stored = StoredMetricRule(meta, msgspec.Raw(json.dumps({**DEPTH, **spec}).encode()))
    found = compiled(
        stored,
        Mapper([PODS, NAMESPACES]),
        NamedSources(access={"default": SourceAccess(("*",))}),
    )
    assert isinstance(found, Rule), found
    return found


def labels(**more: str) -> Series:
    return Series([{"__name__": "depth", "namespace": "shop", **more}])


def examined(
    *rules: Rule, asked: AskedEvidence = EXTERNAL, series: Given | None = None,
    results: list[tuple[str, Given]] | None = None, text: str = "rules: []",
) -> Diagnosis:  # fmt: skip
    known = [(OWN, labels() if series is None else series), ("depth", labels())]
    objects = [each for each in rules if may_answer(each, asked)]
    return run(
        diagnose(text, asked, AROUND, objects=objects), WrittenAnswers(known, [], results or [])
    )


ONE = Result([Point({}, 1.0, 1.0)])


@pytest.mark.parametrize(
    ("spec", "asked", "series", "results", "stage"),
    [
        pytest.param({}, EXTERNAL, None, [(r'depth\{namespace="shop"\}', ONE)], Stage.HEALTHY),
        pytest.param({}, EXTERNAL, Series([]), [], Stage.NO_SERIES),
        pytest.param({"seriesFilters": [{"is": "^x"}]}, EXTERNAL, None, [], Stage.FILTERED_OUT),
        pytest.param(RENAMED, EXTERNAL, None, [], Stage.NAME_MISMATCH),
        pytest.param({}, EXTERNAL, None, [("depth", Result([]))], Stage.EMPTY_RESULT),
        pytest.param(
            {"metricsQuery": '<<if eq .Series "x">>a<<else>>info(a)<<end>>'},
            EXTERNAL, None, [], Stage.QUERY_INVALID, id="not-confined",
        ),
        pytest.param(
            {"type": "Custom", **PODS_RULE}, OF_PODS, labels(pod="web-1"),
            [('pod="web-1",namespace="shop"', Result([Point({"pod": "web-1"}, 1.0, 1.0)]))],
            Stage.HEALTHY, id="needs-no-label-of-the-namespace",
        ),
        pytest.param(
            {
                "type": "Custom",
                **PODS_RULE,
                "metricsQuery": "sum(<<.Series>>{of='<<.LabelValuesByName.namespace>>'}) by (pod)",
            },
            OF_PODS, labels(pod="web-1"),
            [('of="shop"', Result([Point({"pod": "web-1"}, 1.0, 1.0)]))],
            Stage.HEALTHY, id="is-rendered-as-it-is-served",
        ),
        pytest.param(
            {"type": "Custom", **PODS_RULE}, OF_PODS, labels(), [], Stage.NO_RESOURCE_LABEL
        ),
        pytest.param(
            {"type": "Custom", **PODS_RULE}, OF_PODS, labels(pod="web-1"),
            [("depth", Result([Point({"pod": "other"}, 1.0, 1.0)]))], Stage.OBJECT_MISMATCH,
        ),
    ],
)  # fmt: skip
def test_the_first_stage_that_fails_is_named(
    spec: dict[str, Any], asked: AskedEvidence, series: Given | None,
    results: list[tuple[str, Given]], stage: Stage,
) -> None:  # fmt: skip
    found = examined(own(**spec), asked=asked, series=series, results=results)
    assert (found.stage, found.place) == (stage, "MetricRule shop/web"), words(found)


@pytest.mark.parametrize(("resources", "wanted"), [
    ("", "none"), (", resources: {template: <<.Resource>>}", "the template"),
    (", resources: {overrides: {pod: {resource: pod}}}", "pod"),
])  # fmt: skip
def test_of_a_rule_that_maps_nothing_no_template_is_named(resources: str, wanted: str) -> None:
    text = f"rules: [{{seriesQuery: depth, metricsQuery: depth{resources}}}]"
    found = examined(asked=OF_PODS, series=labels(), text=text)
    assert f"the rule looks for {wanted}, and the series carry" in found.seen


def test_a_namespaces_own_rule_goes_before_the_files_and_nowhere_else() -> None:
    results: list[tuple[str, Given]] = [("^file$", ONE), ("sum", ONE)]
    assert examined(own(), results=results, text=FILE).place == "MetricRule shop/web"
    other = examined(own(namespace="blue"), results=results, text=FILE)
    assert (other.stage, other.place) == (Stage.HEALTHY, "rules file:1")


def test_one_that_fails_and_goes_before_another_is_told_of() -> None:
    results: list[tuple[str, Given]] = [("^file$", ONE), ("sum", Result([]))]
    found = examined(own(), results=results, text=FILE)
    assert found.stage == Stage.SHADOWED_BY_OTHER_RULE
    assert "MetricRule shop/web exposes depth under the same name and goes before it" in found.seen
