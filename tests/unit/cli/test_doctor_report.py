"""What the doctor says of a cluster that lacks things, and of rules that expose nothing."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from adapter.apis.rules_api import RulesTold, RuleTold
from adapter.backends.backend_router import BackendTold
from adapter.doctor.diagnosis import reached
from adapter.doctor.evidence import AskedEvidence, Diagnosis, LintFinding, Surroundings
from adapter.stages import Stage
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.cli.doctor.object_lints import of_hpa
from podscale.cli.doctor.report import DoctorPlan, DoctorReport, RuleReport, print_report
from podscale.cli.doctor.run import examine
from podscale.kube.client.api import Api, Method, Response
from podscale.kube.client.connect import ApiServerTarget, connect
from podscale.kube.client.errors import ApiError, ApiUnreachable, KubeError
from podscale.migrate.rules_source import RulesText
from podscale.sandbox.server import SandboxServer

HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "maxReplicas": 3,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "gone"},
        "metrics": [{
            "type": "Pods",
            "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue",
                                                            "averageValue": "1"}},
        }],
    },
}  # fmt: skip
RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    server = SandboxServer()
    server.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    server.objects.put(HPA)
    async with server, connect(ApiServerTarget(server=server.url), user_agent="test") as connected:
        yield connected


@pytest.fixture
async def cluster(api: Api) -> DoctorCluster:
    found = DoctorCluster(api)
    await found.learn_resources()
    return found


async def test_a_namespace_that_is_not_there_is_told(cluster: DoctorCluster) -> None:
    await cluster.find_namespace("shop")
    with pytest.raises(ClusterFailed, match=r"^there is no namespace nope$"):
        await cluster.find_namespace("nope")
    with pytest.raises(ClusterFailed, match=r"^there is no namespace nope$"):
        await of_hpa(cluster, "nope", "web")


async def test_an_hpa_whose_target_is_gone_says_so_in_words(cluster: DoctorCluster) -> None:
    with pytest.raises(ClusterFailed, match=r"Deployment/gone, is not in namespace shop.*Ref"):
        await of_hpa(cluster, "shop", "web")


async def test_a_server_that_is_not_there_says_what_chooses_another() -> None:
    async with connect(ApiServerTarget(server="http://127.0.0.1:1"), user_agent="test") as api:
        with pytest.raises(
            ClusterFailed, match=r"no connection to 127.0.0.1:1: connection refused.*--no-cluster"
        ):
            await DoctorCluster(api).learn_resources()


@pytest.mark.parametrize(
    ("listed_s", "metrics", "problem", "healthy", "said"),
    [
        (
            1.0,
            0,
            "NoSeries: seriesQuery finds nothing",
            False,
            "✗ rules.yaml:3:3: rules[0]: NoSeries: ",
        ),
        (None, 0, "", False, "✗ rules.yaml:3:3: rules[0]: NotListedYet: "),
        (1.0, 1, "", True, "✓ rules[0]: 1 metric; "),
    ],
)
async def test_a_rule_of_the_running_adapter_is_well_only_with_metrics(
    cluster: DoctorCluster,
    capsys: pytest.CaptureFixture[str],
    listed_s: float | None,
    metrics: int,
    problem: str,
    healthy: bool,
    said: str,
) -> None:
    told = RulesTold(
        RULES, "rules.yaml", "http://prometheus", 60.0, 300.0,
        rules=[RuleTold("rules[0]", listed_s, metrics, problem)],
    )  # fmt: skip
    source = RulesText(RULES, "rules.yaml", "running adapter")
    plan = DoctorPlan(rules=source, prometheus=None, told=told, namespace="of-no-hpa")
    report = await examine(plan, cluster, lambda *_: None)
    assert report.is_healthy is healthy
    print_report(report, "table")
    out = capsys.readouterr().out
    assert out.startswith(said)
    assert ("no problems found" in out) is healthy


async def test_the_file_has_no_line_for_a_rule_that_is_an_object(
    cluster: DoctorCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = [RuleTold("rules[0]", 1.0, 0), RuleTold("ClusterMetricRule web", 1.0, 0)]
    told = RulesTold(RULES, "rules.yaml", "http://prometheus", 60.0, 300.0, rules=rules)
    source = RulesText(RULES, "rules.yaml", "running adapter")
    plan = DoctorPlan(rules=source, told=told, namespace="of-no-hpa")
    print_report(await examine(plan, cluster, lambda *_: None), "table")
    of_file, of_object, *_ = capsys.readouterr().out.splitlines()
    assert of_file.startswith("✗ rules.yaml:3:3: rules[0]: NoSeries: ")
    assert of_object.startswith("✗ ClusterMetricRule web: NoSeries: ")


async def test_an_hpa_of_any_namespace_whose_metric_nobody_lists_is_a_finding(
    cluster: DoctorCluster, api: Api
) -> None:
    rules = [RuleTold("rules[0]", 1.0, 1)]
    told = RulesTold(RULES, "rules.yaml", "http://prometheus", 60.0, 300.0, rules=rules)
    source = RulesText(RULES, "rules.yaml", "running adapter")
    report = await examine(DoctorPlan(rules=source, told=told), cluster, lambda *_: None)
    assert not report.is_healthy
    assert [(asked.metric, found.seen.partition(".")[0]) for asked, found in report.findings] == [
        ("load", "hpa/web in shop asks for it")
    ]


async def test_an_hpa_whose_schedule_is_refused_is_named_and_the_others_are_not() -> None:
    entry = {"start": "0 0 * 2 1#5", "end": "0 18 * * *", "minReplicas": 2}
    server = SandboxServer()
    for name, entries in (("never", [entry]), ("daily", [{**entry, "start": "0 8 * * *"}])):
        annotations = {"podscale.io/schedule": json.dumps(entries)}
        server.objects.put({**HPA, "metadata": {"name": name, "namespace": "shop",
                                                "annotations": annotations}})  # fmt: skip
    async with server, connect(ApiServerTarget(server=server.url), user_agent="test") as api:
        cluster = DoctorCluster(api)
        await cluster.learn_resources()
        for disabled in (frozenset[str](), frozenset(["ScheduleRefused"])):
            report = await examine(
                DoctorPlan(rules=None, disabled=disabled), cluster, lambda *_: None
            )
            found = [each for each in report.lints if each.lint == "ScheduleRefused"]
            assert [each.subject for each in found] == ["hpa/never in shop"] * (not disabled)
            assert all("entry 0: '0 0 * 2 1#5' does not come" in each.reason for each in found)


@pytest.mark.parametrize(("beside", "lints"), [
    ([], ["NoRules"]), ([BackendTold("keda", "https://keda", 2)], []),
])  # fmt: skip
async def test_a_running_adapter_without_rules_is_told_as_such(
    cluster: DoctorCluster, beside: list[BackendTold], lints: list[str]
) -> None:
    told = RulesTold("rules: []", "rules.yaml", "http://prometheus", 60.0, 300.0, backends=beside)
    source = RulesText("rules: []", "rules.yaml", "running adapter")
    report = await examine(DoctorPlan(rules=source, told=told), cluster, lambda *_: None)
    ours = [each for each in report.lints if each.subject == "rules"]
    assert [each.lint for each in ours] == lints
    ((asked, found),) = report.findings
    assert (asked.metric, found.stage) == ("load", "NoSeries")
    assert ("--prometheus-url" in found.change) is (not lints)  # it would show nothing
    one = DoctorPlan(rules=source, told=told, has_objects=True, namespace="of-no-hpa")
    report = await examine(one, cluster, lambda *_: None)
    assert "NoRules" not in {each.lint for each in report.lints}  # another may have MetricRules


async def test_rules_without_metrics_say_nothing_of_a_metric_that_was_asked_for(
    cluster: DoctorCluster,
) -> None:
    rules = [RuleTold("rules[0]", 1.0, 0), RuleTold("rules[1]", 1.0, 0, "PrometheusUnreachable")]
    told = RulesTold(RULES, "rules.yaml", "http://prometheus", 60.0, 300.0, rules=rules)
    asked = [AskedEvidence("custom", "load", "shop", "pods", "*")]
    source = RulesText(RULES, "rules.yaml", "running adapter")
    plan = DoctorPlan(rules=source, prometheus=None, told=told, asked=asked)
    report = await examine(plan, cluster, lambda *_: None)
    assert not report.is_healthy  # nobody serves it here
    assert [rule.rule for rule in report.rules] == ["rules[1]"]


async def test_without_a_prometheus_it_says_that_the_series_were_not_looked_at() -> None:
    usage = "resourceRules: {cpu: {containerQuery: a}, memory: {containerQuery: b}}\n"
    for rules, said in ((RULES, "1 rule read"), (usage, "there are no rules for custom")):
        plan = DoctorPlan(rules=RulesText(rules, "rules.yaml", "rules file"), prometheus=None)
        (note,) = (await examine(plan, None, lambda *_: None)).notes
        assert note.startswith(said)


def test_one_is_counted_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    rule = RuleReport("rules[0]", 1, ["load"])
    print_report(DoctorReport(rules=[rule]), "table")
    assert "1 series name, 1 metric: load" in capsys.readouterr().out


@pytest.mark.parametrize(("lint", "mark"), [("QueryInvalid", "✗"), ("RateWindow", "✓")])
def test_a_rule_that_answers_nothing_is_not_ticked_for_its_series(
    lint: str, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lints = [LintFinding(lint, "rules[0]", "of this rule")]
    print_report(DoctorReport(rules=[RuleReport("rules[0]", 1, ["load"])], lints=lints), "table")
    assert capsys.readouterr().out.startswith(f"{mark} rules[0]: 1 series name")


def test_what_series_and_objects_are_called_cannot_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = "\x1b]0;owned\x07\x9b2J\u202eload\n✓ no problems found"
    found = Diagnosis(Stage.NO_SERIES, hostile, hostile, "rules", 0, hostile, hostile)
    report = DoctorReport(
        findings=[(AskedEvidence("custom", hostile, "shop", "pods", "*"), found)],
        rules=[RuleReport(hostile, 1, [hostile]), RuleReport("", 0, [], hostile)],
        lints=[LintFinding("NameTwice", hostile, hostile)],
        notes=[hostile],
    )
    print_report(report, "table")
    shown = capsys.readouterr().out
    assert all(each.isprintable() for each in shown.replace("\n", ""))
    assert not any(line.startswith("✓ nothing") for line in shown.splitlines())
    assert len(shown.splitlines()) == 8
    print_report(report, "json")
    assert json.loads(capsys.readouterr().out)["findings"][0]["seen"] == hostile


@pytest.mark.parametrize("path", ["/api", "/apis"])
@pytest.mark.parametrize("failure", [
    ApiError.of(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
    ApiError.of(404, "NotFound", "the server could not find the requested resource"),
    ApiUnreachable("GET PATH: no answer within 20 s", is_timeout=True),
])  # fmt: skip
async def test_discovery_that_fails_in_part_is_what_the_doctor_names_first(
    api: Api, path: str, failure: KubeError
) -> None:
    """Half of the resources would be unknown, and the rules and HPAs that name them right."""

    class Failing:
        user_agent = "test"

        async def request(self, method: Method, asked: str, **more: Any) -> Response:
            if asked == path:
                raise failure
            return await api.request(method, asked, **more)

    words = re.escape(str(failure).removeprefix("GET PATH: "))
    with pytest.raises(ClusterFailed, match=rf"^API discovery failed: GET {path}: .*{words}"):
        await DoctorCluster(Failing()).learn_resources()  # type: ignore[arg-type]  # no watches


async def test_a_list_that_the_api_server_fails_on_ends_the_examination(api: Api) -> None:
    class Failing:
        user_agent = "test"

        async def request(self, method: Method, path: str, **more: Any) -> Response:
            if path.endswith("/horizontalpodautoscalers"):
                raise ApiError.of(503, "", "the server is currently unable to handle the request")
            return await api.request(method, path, **more)

    cluster = DoctorCluster(Failing())  # type: ignore[arg-type]  # no watches
    await cluster.learn_resources()
    plan = DoctorPlan(rules=RulesText("rules: []", "rules.yaml", "rules file"))
    with pytest.raises(ClusterFailed, match=r"^/apis/autoscaling/v2/horizontalpodautoscalers: "):
        await examine(plan, cluster, lambda *_: None)


async def test_an_api_service_that_could_not_be_read_is_not_said_to_be_elsewhere() -> None:
    asked = AskedEvidence("custom", "load", "shop", "pods", "web-1")
    around = Surroundings("", self_service="podscale/podscale")
    unread = dict.fromkeys(["v1beta1.custom.metrics.k8s.io"], "")
    assert reached(asked, replace(around, apiservices=unread)) is None
    found = reached(asked, around)
    assert found is not None
    assert found.stage == "APIServiceElsewhere"
