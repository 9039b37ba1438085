"""Of somebody who may not read the file's rules, the doctor follows the namespace's MetricRules."""

import json
from typing import Any

import pytest
from aiohttp import web

from adapter.doctor.evidence import AskedEvidence, Diagnosis
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.report import DoctorPlan
from podscale.cli.doctor.run import examine
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ObjectNotFound
from podscale.kube.client.resource import NAMESPACES, PODS
from podscale.kube.discovery import Mapper
from podscale.migrate.rules_source import RulesText
from tests.unit.feed.prometheus import Asked, FakePrometheus, serving

GROUP = "/apis/metrics.podscale.io/v1alpha1"
SPEC = {"type": "External", "seriesQuery": "depth", "metricsQuery": "sum(<<.Series>>)"}


class OneRuleApi:
    """An API server with one MetricRule, whose external metrics are all unknown."""

    user_agent = "test"

    def __init__(
        self, spec: dict[str, Any], accepted: str, source: str = "", *, generation: int = 1
    ) -> None:
        condition = {"type": "Accepted", "status": accepted, "reason": "SourceNotAllowed"}
        meta = {"name": "web", "namespace": "shop", "generation": generation}
        status = {"observedGeneration": 1, "conditions": [condition], "source": source}
        rule = {"metadata": meta, "spec": {**SPEC, **spec}, "status": status}
        self._lists = {f"{GROUP}/namespaces/shop/metricrules": [rule]}

    async def request(self, _method: str, path: str, **_: object) -> Response:
        if "external" in path:
            raise ObjectNotFound(404, "NotFound", "the server could not find the metric")
        return Response(200, {}, json.dumps({"items": self._lists.get(path, [])}).encode())


async def _examined(api: OneRuleApi) -> Diagnosis:
    """Follow depth in shop at a Prometheus that has its series, and no sample of it."""

    def react(asked: Asked) -> web.Response | None:
        if not asked.path.endswith("/series"):
            return None
        found = [{"__name__": "depth", "namespace": "shop"}] if "depth" in asked.query else []
        return web.json_response({"status": "success", "data": found})

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=None, prometheus=PrometheusOptions(url=prometheus.url), namespace="shop",
            asked=[AskedEvidence("external", "depth", "shop")], has_objects=True,
        )  # fmt: skip
        cluster = DoctorCluster(api)  # type: ignore[arg-type]
        report = await examine(plan, cluster, lambda *_: None)
    [(_, found)] = report.findings
    return found


@pytest.mark.parametrize(
    ("spec", "accepted", "stage", "place"),
    [
        pytest.param({}, "True", "EmptyResult", "MetricRule shop/web", id="followed"),
        pytest.param({"seriesFilters": [{"is": "^x"}]}, "True", "FilteredOut",
                     "MetricRule shop/web", id="loses-its-own-series"),
        pytest.param({"seriesQuery": "lag"}, "True", "NoSeries", "", id="not-meant"),
        pytest.param({"source": "other"}, "True", "NoSeries", "", id="of-another-prometheus"),
        pytest.param({"type": "Custom"}, "True", "NoSeries", "", id="of-another-api"),
        pytest.param({}, "False", "NoSeries", "", id="not-allowed-to-ask"),
    ],
)  # fmt: skip
async def test_the_objects_that_are_meant_are_followed(
    spec: dict[str, Any], accepted: str, stage: str, place: str
) -> None:
    found = await _examined(OneRuleApi(spec, accepted))
    assert (found.stage, found.place) == (stage, place), found.seen
    assert "file" not in found.seen  # which nobody has read


@pytest.mark.parametrize(
    ("source", "stage"),
    [("default", "EmptyResult"), ("", "EmptyResult"), ("infra", "NoSeries")],
)
async def test_one_whose_namespace_has_another_source_is_not_followed_here(
    source: str, stage: str
) -> None:
    found = await _examined(OneRuleApi({}, "True", source))
    assert found.stage == stage, found.seen


@pytest.mark.parametrize(("spec", "stage"), [({}, "EmptyResult"), ({"source": "x"}, "NoSeries")])
async def test_a_status_of_an_older_spec_decides_nothing(spec: dict[str, Any], stage: str) -> None:
    refused = await _examined(OneRuleApi(spec, "False", generation=2))
    found = await _examined(OneRuleApi(spec, "True", "infra" if not spec else "", generation=2))
    assert (refused.stage, found.stage) == (stage, stage)


@pytest.mark.parametrize(("kind", "is_recorded"), [("Custom", True), ("External", False)])
async def test_what_a_files_rules_alone_lead_to_is_recorded(kind: str, is_recorded: bool) -> None:
    text = "externalRules: [{seriesQuery: depth, metricsQuery: depth}]"
    async with serving(FakePrometheus()) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(text, "rules.yaml", "rules.yaml"), namespace="shop",
            prometheus=PrometheusOptions(url=prometheus.url),
            asked=[AskedEvidence("external", "depth", "shop")], has_objects=True,
        )  # fmt: skip
        cluster = DoctorCluster(OneRuleApi({"type": kind}, "True"))  # type: ignore[arg-type]
        report = await examine(plan, cluster, lambda *_: None)
    assert (report.recording is not None) == is_recorded


async def test_what_a_bound_refuses_is_named_before_an_adapter_has_it() -> None:
    api = OneRuleApi({}, "True")
    specs: list[dict[str, str]] = [{}] * 49 + [{"metricsQuery": "<<with .Series>>a<<end>>"}, {}]
    rules = [
        {
            "metadata": {
                "name": f"rule-{51 - i:02}",
                "namespace": "shop",
                "creationTimestamp": f"2026-01-01T00:00:{i:02}Z",
            },
            "spec": {**SPEC, **spec},
        }
        for i, spec in enumerate(specs)
    ]
    api._lists[f"{GROUP}/namespaces/shop/metricrules"] = rules
    plan = DoctorPlan(rules=None, namespace="shop", has_objects=True)
    report = await examine(plan, DoctorCluster(api), lambda *_: None)  # type: ignore[arg-type]
    problems = {each.rule.removeprefix("MetricRule shop/"): each.problem for each in report.rules}
    said = {name: text.partition(":")[0] for name, text in problems.items() if text}
    assert said == {"rule-02": "TemplateConstructRefused", "rule-01": "TooManyRules"}
    assert "spec.metricsQuery: line 1, column 1: " in problems["rule-02"]


@pytest.mark.parametrize(
    ("type_", "names", "is_named"),
    [
        pytest.param("Custom", 5_000, False, id="as-many-as-may-be"),
        pytest.param("Custom", 5_001, True, id="beyond-the-bound"),
        pytest.param("External", 10_000, False, id="of-no-kind-of-object"),
        pytest.param("External", 10_001, True, id="of-no-kind-beyond-the-bound"),
    ],
)
async def test_a_namespace_that_lists_too_many_metrics_is_named_before_an_adapter_refuses_it(
    type_: str, names: int, is_named: bool
) -> None:
    overrides = {"pod": {"resource": "pod"}, "namespace": {"resource": "namespace"}}
    spec = {"type": type_, "resources": {"overrides": overrides}}
    api = OneRuleApi(spec, "True")
    [rule] = api._lists[f"{GROUP}/namespaces/shop/metricrules"]
    rules = [
        {
            **rule,
            "metadata": {**rule["metadata"], "name": name},
            "status": {**rule["status"], "metricsExposed": count},
        }
        for name, count in (("one", names), ("other", 10_000 if type_ == "External" else 5_000))
    ]
    api._lists[f"{GROUP}/namespaces/shop/metricrules"] = rules
    cluster = DoctorCluster(api)  # type: ignore[arg-type]
    cluster.mapper = Mapper([PODS, NAMESPACES])
    plan = DoctorPlan(rules=None, namespace="shop", has_objects=True)
    report = await examine(plan, cluster, lambda *_: None)
    problems = [each.problem for each in report.rules if "namespace shop" in each.rule]
    assert [text.partition(":")[0] for text in problems] == ["TooManyMetrics"] * is_named
    assert report.is_healthy is not is_named
