"""What the doctor is asked that no rule answers, and calls that nothing can be done with."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner
from msgspec import structs

from adapter.apis.rules_api import RulesTold
from adapter.backends.backend_router import BackendTold
from adapter.doctor.evidence import AskedEvidence, Point, Result, ResultOf, Surroundings
from adapter.doctor.recording import RecordedAnswer, Recording, RecordingInvalid, decode, encode
from podscale.cli.doctor import cluster as doctor_cluster
from podscale.cli.doctor.cluster import ClusterFailed, DoctorCluster
from podscale.cli.doctor.command import command
from podscale.cli.doctor.object_lints import of_hpa
from podscale.cli.doctor.report import DoctorPlan
from podscale.cli.doctor.run import examine
from podscale.cli.doctor.served import answered, running_rules
from podscale.cli.inputs import WrongInput
from podscale.cli.prometheus import PrometheusChoice
from podscale.feed.http.client import PrometheusClient
from podscale.feed.options import PrometheusOptions
from podscale.kube.client.api import Response
from podscale.kube.client.errors import ApiError, ApiUnreachable
from podscale.kube.client.resource import DEPLOYMENTS, VPAS
from podscale.kube.discovery import Mapper
from podscale.migrate.rules_source import RulesText

USAGE = "/apis/metrics.k8s.io/v1beta1/namespaces/shop/pods?labelSelector=app%3Dweb"
LISTS = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
CPU = AskedEvidence("resource", "cpu", "shop", "pods", "*", "app=web")


class Told:
    """An API server that answers what it was told; 404 for everything else."""

    user_agent = "test"

    def __init__(self, bodies: Mapping[str, object]) -> None:
        self.bodies = bodies
        self.headers: dict[str, str] = {}

    async def request(self, method: str, path: str, **more: Any) -> Response:
        token = (more.get("query") or {}).get("continue", "")
        found = self.bodies.get(f"{path}#{token}" if token else path)
        if isinstance(found, int):
            raise ApiError.of(found, "Forbidden", f"{path}: refused")
        if found is None:
            raise ApiError.of(404, "NotFound", f"{path}: the server could not find it")
        return Response(200, self.headers, json.dumps(found).encode())


def cluster(bodies: Mapping[str, object]) -> DoctorCluster:
    return DoctorCluster(Told(bodies))  # type: ignore[arg-type]  # nothing is watched


def usage(*containers: Mapping[str, str]) -> dict[str, object]:
    told = [{"name": f"c{place}", "usage": each} for place, each in enumerate(containers)]
    return {"metadata": {"name": "web-1"}, "containers": told}


@pytest.mark.parametrize(("answer", "stage", "said"), [
    pytest.param({"items": [usage({"cpu": "1m", "memory": "1Mi"})]}, "Healthy", "1 pod",
                 id="served"),
    pytest.param({"items": []}, "ObjectMismatch", "none of the pods that app=web selects",
                 id="no-pod"),
    pytest.param({"items": [usage({"cpu": "1m"}, {"memory": "1Mi"})]}, "ObjectMismatch",
                 "the cpu of none", id="a-container-lacks-it"),
    pytest.param(None, "NoSeries", "metrics.k8s.io: ", id="nobody-serves-it"),
    pytest.param(403, "Forbidden", "refused", id="forbidden"),
    pytest.param({"items": 3}, "QueryInvalid", "is not understood", id="nonsense"),
])  # fmt: skip
async def test_usage_is_asked_of_metrics_k8s_io(answer, stage, said):
    report = await examine(DoctorPlan(rules=None, usage=[CPU]), cluster({USAGE: answer}), _quiet)
    ((asked, found),) = report.findings
    assert (asked, found.stage) == (CPU, stage)
    assert said in found.seen
    assert report.is_healthy is (stage == "Healthy")
    assert report.rules == []


@pytest.mark.parametrize(("containers", "stage", "said"), [
    pytest.param({"app": "cpu", "proxy": "memory"}, "Healthy", "cpu of container app is served",
                 id="another-lacks-it"),
    pytest.param({"app": "memory", "proxy": "cpu"}, "ObjectMismatch", "the cpu of container app",
                 id="it-lacks-it"),
    pytest.param({"main": "cpu", "proxy": "cpu"}, "ObjectMismatch",
                 "Their containers are main, proxy", id="no-pod-has-it"),
])  # fmt: skip
async def test_of_a_container_resource_only_the_named_container_counts(containers, stage, said):
    told = [{"name": name, "usage": {kind: "1"}} for name, kind in containers.items()]
    metric = {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app"}}
    facts = cluster({
        f"{LISTS}/web": hpa("web", metrics=[metric]),
        DEPLOYMENTS.path("shop", "web", "scale"): {"status": {"selector": "app=web"}},
        USAGE: {"items": [{"metadata": {"name": "web-1"}, "containers": told}]},
    })  # fmt: skip
    facts.mapper = Mapper([DEPLOYMENTS])
    asked, _ = await of_hpa(facts, "shop", "web")
    report = await examine(DoctorPlan(rules=None, usage=asked), facts, _quiet)
    ((_, found),) = report.findings
    assert found.stage == stage
    assert said in found.seen


@pytest.mark.parametrize(("answer", "stage"), [
    ({"items": [{"value": "1"}]}, "Healthy"),
    ({"items": None}, "ObjectMismatch"),
    ({"items": "no list"}, "APIServiceElsewhere"),
])  # fmt: skip
async def test_an_answer_in_another_form_is_a_finding(answer, stage):
    asked = AskedEvidence("external", "queue", "shop")
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/queue"
    assert (await answered(cluster({path: answer}), asked)).stage == stage


async def test_whose_answer_it_is_is_told():
    asked = AskedEvidence("external", "lag", "shop")
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/lag"
    api = Told({path: {"items": [{"value": "1"}]}})
    api.headers["x-podscale-external-backend"] = "keda"
    seen = (await answered(DoctorCluster(api), asked)).seen
    assert seen == "lag is served by the external backend keda: 1 item."


async def test_what_is_wrong_with_backends_is_told_with_the_rules():
    told = RulesTold(
        config="rules: []", file="r.yaml", prometheus_url="", relist_interval_s=1,
        max_sample_age_s=1,
        backends=[
            BackendTold("keda", "https://keda", 2, shadowed=["lag, by our rules"]),
            BackendTold("billing", "https://b", 0, "no answer within 5 s"),
            BackendTold("Service podscale/keda", "", 0, "the file has a backend of its name"),
        ],
    )  # fmt: skip
    rules = RulesText("rules: []", "r.yaml", "running adapter")
    plan = DoctorPlan(rules=rules, told=told)
    found = await examine(plan, cluster({}), _quiet)
    assert [(each.lint, each.subject) for each in found.lints] == [
        ("ExternalBackend", "external backend keda"),
        ("ExternalBackend", "external backend billing"),
        ("ExternalBackend", "Service podscale/keda"),
    ]
    assert "lag, by our rules" in found.lints[0].reason
    assert not found.is_healthy
    quiet = structs.replace(plan, disabled=frozenset({"ExternalBackend"}))
    assert (await examine(quiet, cluster({}), _quiet)).is_healthy


@pytest.mark.parametrize(("running_in", "service"), [
    pytest.param("blue", "", id="it-tells-where-it-runs"),
    pytest.param("", "blue/podscale-adapter", id="its-service-is-known"),
])  # fmt: skip
@pytest.mark.parametrize("kinds", [(), ("ies",), ("ies", "ybindings")])
async def test_the_policy_of_our_accounts_is_looked_for_where_the_adapter_is(
    kinds, running_in, service
):
    told = RulesTold("rules: []", "r.yaml", "", 1, 1, running_in=running_in)
    around = Surroundings("", self_service=service)
    rules = RulesText("rules: []", "r.yaml", "running adapter")
    plan = DoctorPlan(rules=rules, told=told, around=around)
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic{}/podscale-accounts-blue"
    found = await examine(plan, cluster({path.format(kind): {} for kind in kinds}), _quiet)
    assert len([note for note in found.notes if "podscale's accounts are missing" in note]) == (
        len(kinds) < 2
    )


@pytest.mark.parametrize(("writer", "is_told"), [("keda", True), ("podscale-adapter", False)])
async def test_a_ca_bundle_that_somebody_overwrote_is_told_with_who_did(writer, is_told):
    name = "v1beta1.external.metrics.k8s.io"
    written = {"f:spec": {".": {}, "f:caBundle": {}, "f:service": {}}}
    condition = {
        "type": "Available", "status": "False",
        "message": "tls: failed to verify: x509: certificate signed by unknown authority",
    }  # fmt: skip
    service = {
        "metadata": {"managedFields": [
            {"manager": "kube-apiserver", "fieldsV1": {"f:status": {"f:conditions": {}}}},
            {"manager": writer, "fieldsV1": written},
        ]},
        "spec": {"service": {"namespace": "podscale", "name": "podscale-adapter"}},
        "status": {"conditions": [condition]},
    }  # fmt: skip
    rules = "/apis/external.metrics.k8s.io/v1beta1/podscale-rules"
    made = cluster({f"/apis/apiregistration.k8s.io/v1/apiservices/{name}": service, rules: 503})
    with pytest.raises(ClusterFailed) as failed:
        await running_rules(made)
    assert "x509" in str(failed.value)
    assert ("overwritten by 'keda'" in str(failed.value)) == is_told
    assert ("--enable-apiservice-patching=false" in str(failed.value)) == is_told


class Hanging(Told):
    """An API server behind which the adapter takes ``takes_s`` to say 504."""

    def __init__(self, takes_s: float) -> None:
        super().__init__({})
        self.takes_s = takes_s

    async def request(self, method: str, path: str, **more: Any) -> Response:
        if "metrics.k8s.io" not in path:
            return await super().request(method, path, **more)
        if self.takes_s >= more["timeout_s"]:
            raise ApiUnreachable(f"GET {path}: no answer", is_timeout=True)
        said = "unable to fetch metrics: Prometheus did not answer in time"
        raise ApiError.of(504, "Timeout", said)


@pytest.mark.parametrize(("queries", "outage", "said"), [
    pytest.param(2, "", "Prometheus did not answer in time", id="slow-refusal"),
    pytest.param(float("inf"), "Prometheus did not answer in time (since 22:32:56Z)",
                 "Prometheus did not answer in time (since 22:32:56Z).", id="outage-known"),
    pytest.param(float("inf"), "", "as when its Prometheus hangs", id="nobody-knows"),
])  # fmt: skip
async def test_a_prometheus_that_hangs_is_named_and_not_the_api_server(queries, outage, said):
    waits_s = queries * PrometheusOptions(url="http://prometheus").deadline_s
    asked = AskedEvidence("custom", "load", "shop", "pods", "*")
    hanging = DoctorCluster(Hanging(waits_s))  # type: ignore[arg-type]  # nothing is watched
    found = await answered(hanging, asked, outage)
    assert found.stage == "PrometheusUnreachable"
    assert said in found.seen
    assert "API server does not answer" not in found.seen


def hpa(name: str, **spec: Any) -> dict[str, object]:
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"scaleTargetRef": about, "minReplicas": 2, "maxReplicas": 2} | spec,
    }


async def test_every_page_of_a_list_is_looked_at(monkeypatch):
    bodies = {
        LISTS: {"metadata": {"continue": "more"}, "items": [hpa("one"), hpa("two")]},
        f"{LISTS}#more": {"items": [hpa("three")]},
    }
    plan = DoctorPlan(rules=None, namespace="shop")
    found = await examine(plan, cluster(bodies), _quiet)
    assert [each.subject for each in found.lints] == [
        f"hpa/{name} in shop" for name in ("one", "two", "three")
    ]
    monkeypatch.setattr(doctor_cluster, "_MOST_PAGES", 1)
    found = await examine(plan, cluster(bodies), _quiet)
    assert len(found.lints) == 2
    assert "only the first 500 horizontalpodautoscalers were looked at" in found.notes


async def test_lints_of_other_hpas_are_not_those_of_the_one_that_was_asked_for():
    bodies = {LISTS: {"items": [hpa("one"), hpa("two")]}}
    found = await examine(
        DoctorPlan(rules=None, namespace="shop", hpa="two"), cluster(bodies), _quiet
    )
    assert [each.subject for each in found.lints] == ["hpa/two in shop"]


async def test_an_odd_object_hides_none_of_the_others():
    facts = cluster({
        LISTS: {"items": [hpa("one")]},
        VPAS.path("shop"): {"items": [{"metadata": {"name": "odd"}, "spec": {"targetRef": 3}}]},
    })  # fmt: skip
    facts.mapper = Mapper([VPAS])
    found = await examine(DoctorPlan(rules=None, namespace="shop"), facts, _quiet)
    assert [each.lint for each in found.lints] == ["MinEqualsMax"]
    assert any("VerticalPodAutoscaler odd is not linted" in each for each in found.notes)


async def test_an_hpa_that_nobody_can_read_is_a_sentence():
    bodies = {f"{LISTS}/web": hpa("web", metrics=[{"type": 3}])}
    with pytest.raises(ClusterFailed, match="the HPA web in namespace shop: Expected `str`"):
        await of_hpa(cluster(bodies), "shop", "web")


@pytest.mark.parametrize(("words", "said"), [
    (["hpa/"], "hpa/: say which, hpa/NAME"),
    (["hpa/web", "--no-cluster", "-f", "RULES", "--prometheus-url", "http://p"],
     "leave --no-cluster out"),
    (["-f", "RULES", "--timeout", "0"], "--timeout 0: give more than 0 seconds"),
    (["-f", "RULES", "--timeout", "nan"], "--timeout nan: "),
    (["-f", "RULES", "--metric-selector", "a in b"], "--metric-selector a in b: "),
    (["-f", "RULES", "--prometheus-header", "X-Scope-OrgID"], "write NAME=VALUE"),
    (["-f", "RULES", "--no-cluster", "--prometheus-url", "http://p", "--prometheus-ca-file",
      "RULES"], "--prometheus-ca-file RULES: "),
    (["-f", "RULES", "--no-cluster", "--prometheus-url", "http://p", "--prometheus-token-file",
      "none"], "--prometheus-token-file none: No such file"),
    (["-f", "RULES", "--kubeconfig", "nowhere"],
     "the kubeconfig nowhere does not exist; with --no-cluster none is asked"),
    (["-f", "VALUES", "--no-cluster"], "give --config-map NAMESPACE/my-rules"),
    (["--series", "BINARY"], "--series BINARY: "),
])  # fmt: skip
def test_a_call_that_nothing_can_be_done_with_says_what_to_change(
    words, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("RULES").write_text("rules: []\n")
    Path("VALUES").write_text("prometheus: {url: http://p}\nrules: {existing: my-rules}\n")
    Path("BINARY").write_bytes(b'{"format":"\xff\xfe"}')
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2, done.output
    assert said in done.output


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_recording_holds_what_is_no_number(number):
    entry = RecordedAnswer(ResultOf("load"), Result([Point.of({}, float(number), None)]))
    kept = Recording(config="", asked=CPU, around=Surroundings(""), entries=[entry])
    written = encode(kept)
    assert encode(decode(written)) == written
    with pytest.raises(RecordingInvalid, match="not a recording of podscale doctor"):
        decode(written.replace(f'"{number}"'.encode(), b'"many"'))


def test_a_recording_that_says_otherwise_what_is_no_number_is_refused_by_its_format():
    written = encode(Recording(config="", asked=CPU, around=Surroundings("")))
    with pytest.raises(
        RecordingInvalid, match="'podscale-doctor/1'; this reads 'podscale-doctor/2'"
    ):
        decode(written.replace(b"podscale-doctor/2", b"podscale-doctor/1"))


def test_a_proxy_that_cannot_be_used_is_told_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "socks5://proxy:1080")
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    words = ["-f", str(rules), "--no-cluster", "--prometheus-url", "http://prometheus:9090"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2, done.output
    assert "only http and https proxies can be used" in done.output


def test_a_proxy_that_is_not_asked_because_of_a_ca_refuses_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy:1080")
    ca_file = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(ca_file))
    given = PrometheusChoice("https://prometheus:9090", ca_file=str(ca_file))
    options = given.options(5.0)
    assert options is not None
    PrometheusClient(options)  # does not refuse it either
    with pytest.raises(WrongInput, match="only http and https proxies"):
        given._replace(ca_file="").options(5.0)


def test_without_a_cluster_it_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []\n")
    done = CliRunner().invoke(command, ["-f", str(rules), "--disable-lint", "NoRules"])
    assert done.exit_code == 0, done.output
    assert (
        f"Cluster checks skipped: the kubeconfig {tmp_path / 'gone'} does not exist" in done.output
    )


def _quiet(*_: object) -> None:
    """Draw nothing."""
