"""Rules that a running adapter refused are never called healthy."""

import asyncio
import json
import time

import pytest
import structlog
from aiohttp import web

from adapter.apis.failures import source_failed
from adapter.apis.rules_api import RulesTold
from adapter.discovery.mapping import PresumingMapper
from adapter.doctor.evidence import AskedEvidence
from adapter.doctor.lints import sound_rules
from podscale.cli.doctor.cluster import DoctorCluster
from podscale.cli.doctor.report import DoctorPlan, print_report
from podscale.cli.doctor.run import examine
from podscale.core.metrics import Refused
from podscale.feed.http import refusals
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.errors import ApiError
from podscale.kube.client.resource import PODS
from podscale.kube.client.wire import StatusCause
from podscale.kube.discovery import Mapper
from podscale.migrate.reader import check
from podscale.migrate.rules_source import RulesText, find
from tests.unit.feed.prometheus import Asked, FakePrometheus, refused, serving

IN_FORCE = "externalRules: [{seriesQuery: a, metricsQuery: sum(a), resources: {namespaced: false}}]"


@pytest.mark.parametrize(("problem", "is_healthy"), [
    ("", True),
    ("rules.yaml:2:1: unknown key 'a'\nrules.yaml:3:1: unknown key 'b'", False),
])  # fmt: skip
async def test_a_refused_file_has_to_change(problem, is_healthy, capsys):
    told = RulesTold(IN_FORCE, "rules.yaml", "", 60.0, 300.0, problem)
    plan = DoctorPlan(rules=RulesText(IN_FORCE, "rules.yaml", "running adapter"), told=told)
    report = await examine(plan, None, lambda *_: None)
    assert report.is_healthy is is_healthy
    print_report(report, "table")
    out = capsys.readouterr().out
    assert ("no problems found" in out) is is_healthy
    assert all(f"  {line}\n" in out for line in problem.splitlines())


@pytest.mark.parametrize(
    ("text", "place"),
    [("", "rules.yaml"), ("# later\n", "rules.yaml"), ("{}", "rules.yaml"),
     ("externalRules: []", "rules.yaml"), ("rules: []", "rules.yaml:1:8"),
     ("resourceRules:\n", "rules.yaml")],
)  # fmt: skip
async def test_a_file_without_rules_is_a_finding(text, place, capsys):
    plan = DoctorPlan(rules=RulesText(text, "rules.yaml", "rules file"))
    report = await examine(plan, None, lambda *_: None)
    assert not report.is_healthy
    print_report(report, "table")
    out = capsys.readouterr().out
    assert f"{place}: NoRules: there are no rules" in out
    assert "no metric but those of MetricRules" in out
    assert "no problems found" not in out
    is_blank = text in ("", "# later\n")
    assert ("empty, a running adapter keeps its old rules" in out) is is_blank
    plan = DoctorPlan(rules=plan.rules, disabled=frozenset(["NoRules"]))
    assert (await examine(plan, None, lambda *_: None)).is_healthy


async def test_rules_of_usage_alone_are_rules():
    text = "resourceRules: {cpu: {containerQuery: a}, memory: {containerQuery: b}}"
    plan = DoctorPlan(rules=RulesText(text, "rules.yaml", "rules file"))
    report = await examine(plan, None, lambda *_: None)
    assert "NoRules" not in {each.lint for each in report.lints}


async def test_a_refused_file_has_its_queries_read_in_the_same_run(capsys):
    text = "rules:\n- {seriesQuery: a, metricsQuery: 'sum(', resourses: {}}\n"
    plan = DoctorPlan(rules=RulesText(text, "rules.yaml", "rules file"))
    print_report(await examine(plan, None, lambda *_: None), "table")
    out = capsys.readouterr().out
    assert "unknown key 'resourses'" in out
    assert "rules.yaml:2:34: QueryInvalid" in out


class RefusingAdapter:
    """An API server whose adapter refuses the query of every metric."""

    user_agent = "test"

    def __init__(self, failure):
        self.failure = failure

    async def request(self, _method, path, **_):
        told = source_failed(self.failure)
        causes = [StatusCause(each.reason, each.message) for each in told.details.causes]
        if "metrics.k8s.io" not in path:  # what a list fails on nothing is said of
            raise ApiError.of(403, "Forbidden", path)
        raise ApiError.of(told.code, told.reason, f"{path}: {told.message}", causes=causes)


@pytest.mark.parametrize(
    "failure", [Refused("QueryInvalid", "not for everybody"), refusals.failure("timeout")]
)
async def test_a_query_that_the_adapter_refuses_is_told_with_its_rule_and_the_parsers_words(
    failure,
):
    labels = "{overrides: {pod: {resource: pod}}}"
    rule = f"{{seriesQuery: NAME, resources: {labels}, metricsQuery: '(<<.Series>>'}}"
    text = "\n- ".join(["rules:", *(rule.replace("NAME", name) for name in ("other", "load"))])
    asked = AskedEvidence("custom", "load", "shop", "pods", "*")
    told = RulesTold(text, "rules.yaml", "", 60.0, 300.0)
    rules = RulesText(text, "rules.yaml", "running adapter")
    plan = DoctorPlan(rules=rules, told=told, asked=[asked])
    cluster = DoctorCluster(RefusingAdapter(failure))  # type: ignore[arg-type]  # nothing is watched
    cluster.mapper = Mapper([PODS])
    report = await examine(plan, cluster, lambda *_: None)
    ((_, found),) = report.findings
    assert found.stage == "QueryInvalid"
    assert "--prometheus-url" in found.seen  # no circle: it is not this very call
    (each,) = report.lints
    assert (each.lint, each.subject) == ("QueryInvalid", "rules[1]")
    assert each.place.startswith("rules.yaml:3:")
    assert "the query cannot be read: " in each.reason


@pytest.mark.parametrize("data", ["{}", "{config.yaml: {rules: []}}"])
async def test_a_config_map_without_a_rules_file_is_told_what_its_data_lacks(data, capsys):
    rules = find(f"kind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}\n", "cm.yaml")
    print_report(await examine(DoctorPlan(rules=rules), None, lambda *_: None), "table")
    assert "its data holds no rules file (config.yaml: |)" in capsys.readouterr().out


async def test_a_source_that_is_refused_now_is_told_before_the_upgrade() -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    sources = [{"name": "a", "url": "http://a", "tokenFile": token, "passwordEnv": "ELSEWHERE"}]
    data = {"config.yaml": IN_FORCE, "sources.yaml": json.dumps({"sources": sources})}
    manifest = {"kind": "ConfigMap", "metadata": {"name": "podscale-rules"}, "data": data}
    rules = find(json.dumps(manifest), "cm.yaml")
    report = await examine(DoctorPlan(rules=rules), None, lambda *_: None)
    assert [(each.lint, each.subject) for each in report.lints] == [
        ("SecretElsewhere", "sources[0].tokenFile")
    ]
    assert not report.is_healthy


@pytest.mark.parametrize("text", [
    IN_FORCE.replace("sum(a)", "'sum('"), "rules: [{seriesQuery: a, metricsQuery: 'sum(', x: 1}]",
])  # fmt: skip
@pytest.mark.parametrize("disabled", [[], ["QueryInvalid"]])
async def test_a_lint_of_a_rule_can_be_disabled(text, disabled):
    rules = RulesText(text, "rules.yaml", "rules file")
    plan = DoctorPlan(rules=rules, disabled=frozenset(disabled))
    report = await examine(plan, None, lambda *_: None)
    assert ("QueryInvalid" in {each.lint for each in report.lints}) is (not disabled)


METRICSQL = IN_FORCE.replace("sum(a)", "sum(a) default 0")
METRICSQL_SERIES = IN_FORCE.replace(
    "seriesQuery: a", """seriesQuery: '{__name__="a" or job="b"}', name: {as: a}"""
)


@pytest.mark.parametrize("asked", [(), (AskedEvidence("external", "a", "shop"),)])
@pytest.mark.parametrize("takes_it", [True, False])
@pytest.mark.parametrize(("text", "lint"), [
    (METRICSQL, "QueryInvalid"), (METRICSQL_SERIES, "SeriesQueryInvalid"),
])  # fmt: skip
async def test_a_query_beyond_promql_is_a_problem_unless_the_store_answers_it(
    text, lint, takes_it, asked, capsys
):
    def react(request: Asked) -> web.Response | None:
        asks = str([*request.request.query.values(), *request.form])
        if not takes_it and ("default" in asks or " or " in asks):
            return refused(400, "bad_data", "no such thing")
        if request.path.endswith("/series"):
            return web.json_response({"status": "success", "data": [{"__name__": "a"}]})
        value = [time.time(), str(time.time()) if "timestamp(" in request.query else "1"]
        data = {"resultType": "vector", "result": [{"metric": {}, "value": value}]}
        return web.json_response({"status": "success", "data": data})

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(text, "rules.yaml", "rules file"),
            prometheus=PrometheusOptions(url=prometheus.url),
            asked=asked,
        )
        report = await examine(plan, None, lambda *_: None)
    assert [each.lint for each in report.lints] == ([] if takes_it else [lint])
    assert report.is_healthy is takes_it
    said = f"Prometheus at {prometheus.url} refuses it: "
    for each in report.lints:
        assert said in each.reason
        assert "no such thing" in each.reason
        assert "--prometheus-url" not in each.reason  # it is this very call
    print_report(report, "json")
    for each in json.loads(capsys.readouterr().out)["lints"]:
        assert set(each) == {"lint", "subject", "reason", "place"}


@pytest.mark.parametrize(("status", "said"), [
    (200, "finds no series for it"), (503, "did not answer it"),
])  # fmt: skip
async def test_what_is_said_of_a_series_query_beyond_promql_is_what_came_back(status, said):
    def react(request: Asked) -> web.Response | None:
        if not request.path.endswith("/series"):
            return None
        return web.json_response({"status": "success", "data": []}, status=status)

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(METRICSQL_SERIES, "rules.yaml", "rules file"),
            prometheus=PrometheusOptions(url=prometheus.url),
        )
        (told,) = (await examine(plan, None, lambda *_: None)).lints
    assert f"Prometheus at {prometheus.url} {said}" in told.reason
    assert "refuses it" not in told.reason


@pytest.mark.parametrize(("words", "change"), [
    ("query processing would load too many samples into memory", "select fewer series"),
    ("query timed out in query execution", "select fewer series"),
    ("expanding series: context deadline exceeded", "select fewer series"),
    ("many-to-many matching not allowed", "can be tried on Prometheus"),
])  # fmt: skip
async def test_a_query_that_is_too_much_is_told_how_to_make_it_less(words, change):
    def react(asked: Asked) -> web.Response | None:
        if asked.path.endswith("/series"):
            return web.json_response({"status": "success", "data": [{"__name__": "a"}]})
        return refused(422, "execution", words) if "sum" in asked.query else None

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(IN_FORCE, "rules.yaml", "rules file"),
            prometheus=PrometheusOptions(url=prometheus.url),
            asked=[AskedEvidence("external", "a", "shop")],
        )
        ((_, found),) = (await examine(plan, None, lambda *_: None)).findings
    assert found.stage == "QueryInvalid"
    assert words in found.seen
    assert change in found.change


@pytest.mark.parametrize("asked", [(), (AskedEvidence("external", "a", "shop"),)])
async def test_a_series_query_that_prometheus_gives_up_is_no_wrong_selector(asked, capsys):
    words = "expanding series: context deadline exceeded"

    def react(request: Asked) -> web.Response | None:
        return refused(422, "execution", words) if request.path.endswith("/series") else None

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(IN_FORCE, "rules.yaml", "rules file"),
            prometheus=PrometheusOptions(url=prometheus.url),
            asked=asked,
        )
        report = await examine(plan, None, lambda *_: None)
    assert not report.is_healthy
    print_report(report, "table")
    out = " ".join(capsys.readouterr().out.split())
    assert "QueryInvalid" in out
    assert "SeriesQueryInvalid" not in out
    assert f"gave up on seriesQuery 'a': 422 execution: {words}" in out
    assert "select fewer series" in out


async def test_a_query_for_usage_that_is_too_much_is_told_how_to_make_it_less():
    words = "query timed out in query execution"
    query = "sum(usage{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    rule = (
        f"{{containerQuery: '{query}', nodeQuery: '{query}', containerLabel: container, "
        "resources: {template: <<.Resource>>}}"
    )
    text = f"resourceRules: {{cpu: {rule}, memory: {rule}}}"
    fake = FakePrometheus(
        react=lambda asked: refused(422, "execution", words) if "topk" in asked.query else None
    )
    async with serving(fake) as prometheus:
        options = PrometheusOptions(url=prometheus.url)
        rules = RulesText(text, "rules.yaml", "rules file")
        report = await examine(DoctorPlan(rules=rules, prometheus=options), None, lambda *_: None)
    assert len(report.rules) == 2
    for each in report.rules:
        assert f"QueryInvalid: containerQuery: Prometheus refuses it: 422 execution: {words}" in (
            each.problem
        )
        assert "select fewer series" in each.problem


async def test_a_query_that_is_not_answered_is_not_called_wrong():
    async def react(asked: Asked) -> web.Response | None:
        if asked.path.endswith("/series"):
            return web.json_response({"status": "success", "data": [{"__name__": "a"}]})
        if "sum" in asked.query:
            await asyncio.sleep(30)
        return None

    async with serving(FakePrometheus(react=react)) as prometheus:
        plan = DoctorPlan(
            rules=RulesText(IN_FORCE, "rules.yaml", "rules file"),
            prometheus=PrometheusOptions(url=prometheus.url, deadline_s=0.2),
            asked=[AskedEvidence("external", "a", "shop")],
        )
        ((_, found),) = (await examine(plan, None, lambda *_: None)).findings
    assert found.stage == "PrometheusUnreachable"


async def test_a_query_beyond_promql_is_told_in_the_same_words_everywhere(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(METRICSQL)
    rules = RulesText(METRICSQL, str(path), "rules file")
    (by_doctor,) = (await examine(DoctorPlan(rules=rules), None, lambda *_: None)).lints
    (by_migrate,) = check(rules, "rules").broken
    with structlog.testing.capture_logs() as logs:
        sound_rules(path.read_text(), str(path), PresumingMapper())
    (by_adapter,) = (each["problem"] for each in logs)
    assert by_doctor.text == by_adapter == f"{by_migrate.about}: {by_migrate.text}"
    assert "Prometheus refuses it" in by_adapter
    assert "VictoriaMetrics takes more" in by_adapter


NOTHING = "rules: []\n"


@pytest.mark.parametrize(("beside", "is_healthy"), [
    ("", False), ("externalRules: []", False), (IN_FORCE, True),
    ("resourceRules: {cpu: {containerQuery: a}, memory: {containerQuery: a}}", True),
])  # fmt: skip
async def test_no_rules_are_a_problem_where_nothing_else_is_served(beside, is_healthy):
    rules = RulesText(NOTHING + beside, "rules.yaml", "rules file")
    report = await examine(DoctorPlan(rules=rules), None, lambda *_: None)
    assert ("NoRules" not in {each.lint for each in report.lints}) is is_healthy
    said = " ".join(each.reason for each in report.lints)
    assert ("--disable-lint NoRules" in said) is not is_healthy
