"""``podscale serve``, ``control`` and ``run``: several parts in one process, on the sandbox."""

import http.client
import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.launched import Sandbox, stub_prometheus
from tests.integration.vpa_stage import ROOT, deployment, vpa
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

NAMESPACE = "default"
RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {template: <<.Resource>>}
  name: {as: http_requests_per_second}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)
resourceRules:
  cpu: &usage
    containerQuery: sum by (<<.GroupBy>>) (rate(container_cpu{<<.LabelMatchers>>}[1m]))
    nodeQuery: sum by (<<.GroupBy>>) (rate(node_cpu{<<.LabelMatchers>>}[1m]))
    resources: {template: <<.Resource>>}
    containerLabel: container
  memory: *usage
  window: 1m
"""
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 3,
        "maxReplicas": 5,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "http_requests_per_second"},
                    "target": {"type": "AverageValue", "averageValue": "7"},
                },
            }
        ],
    },
}
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
VPAS = f"/apis/autoscaling.k8s.io/v1/namespaces/{NAMESPACE}/verticalpodautoscalers"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/podscale/leases"
POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "podscale", "name": "podscale-0"}
HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Joined:
    """A sandbox with one HPA and one VPA, and a command of ours beside it."""

    def __init__(self, directory: Path, sandbox: Sandbox, prometheus: str) -> None:
        self.directory, self.sandbox, self._prometheus = directory, sandbox, prometheus
        (directory / "rules.yaml").write_text(RULES)

    def words(self, command: str, *more: str) -> Sequence[str]:
        names = ("kubeconfig",)
        if command == "adapter":
            names = ("lister-kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [
            sys.executable, "-m", "podscale", command,
            *(f"--{name}={self.sandbox.kubeconfig}" for name in names),
            f"--config={self.directory / 'rules.yaml'}",
            f"--prometheus-url=http://{self._prometheus}",
            f"--cert-dir={self.directory}", f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}", *more,
        ]  # fmt: skip

    @contextmanager
    def running(self, command: str, *more: str, **environment: str) -> Iterator[Program]:
        log = self.directory / f"{command}.log"
        with Program(command, list(self.words(command, *more)), log, environment) as program:
            yield program

    def until(self, what: str, program: Program, claim: Any) -> None:
        wait_until(what, claim, 40.0, (program,))

    def condition(self) -> str:
        status = self.sandbox.ask(f"{HPAS}/web").get("status") or {}
        return " ".join(
            f"{each['type']}={each['status']}" for each in status.get("conditions") or ()
        )

    def has_recommendation(self) -> bool:
        status = self.sandbox.ask(f"{VPAS}/web").get("status") or {}
        kinds = {each["type"] for each in status.get("conditions") or ()}
        return bool(kinds)

    def told(self) -> list[tuple[str, str]]:
        """Return type and reason of the events about our pod, in their order."""
        found = self.sandbox.ask("/api/v1/namespaces/podscale/events")["items"]
        ours = [each for each in found if each["involvedObject"] == POD]
        ours.sort(key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["type"], each["reason"]) for each in ours]

    def hooks(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.sandbox.ask(HOOKS)["items"]]

    def leases(self) -> set[str]:
        found = self.sandbox.ask(LEASES)["items"]
        return {each["metadata"]["name"] for each in found if each["spec"].get("holderIdentity")}


@contextmanager
def joined_in(directory: Path) -> Iterator[Joined]:
    sandbox = Sandbox(directory)
    with stub_prometheus() as (address, _), ExitStack() as stack:
        stack.callback(sandbox.program.stop)
        sandbox.start()
        sandbox.ask("/api/v1/namespaces", "POST", {"metadata": {"name": "podscale"}})
        for crd in yaml.safe_load_all((ROOT / "config/crds/vpa/vpa.yaml").read_text()):
            sandbox.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "POST", crd)
        sandbox.ask(DEPLOYMENTS, "POST", deployment(1))
        sandbox.ask(HPAS, "POST", HPA)
        sandbox.ask(VPAS, "POST", vpa())
        yield Joined(directory, sandbox, address)


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    with joined_in(tmp_path) as made:
        yield made


def test_run_scales_recommends_and_admits_in_one_process(joined):
    webhook = ("--admission.port=0", "--register-by-url", f"--webhook-address={LOOPBACK}",
               f"--admission.tls-cert-file={joined.directory / 'none'}")  # fmt: skip
    with joined.running("run", *webhook) as program:
        joined.until("the HPA's minimum is kept", program, lambda: _replicas(joined) == 3)
        joined.until("the VPA has conditions", program, joined.has_recommendation)
        joined.until("the webhook is registered", program, lambda: joined.hooks() != [])
        assert joined.leases() <= {"vpa-admission-controller"}
        program.stop()
        assert program.exit_code == 0


def test_control_leads_by_one_lease_for_each_part(joined):
    with joined.running("control") as program:
        joined.until("the HPA's minimum is kept", program, lambda: _replicas(joined) == 3)
        names = {"podscale-hpa", "vpa-recommender-lease", "vpa-updater"}
        joined.until("every part leads", program, lambda: names <= joined.leases())
        assert joined.hooks() == []
        program.stop()
        assert program.exit_code == 0
    assert joined.leases() == set(), "a Lease is given back at the end"


def test_serve_acts_on_nothing(joined):
    webhook = ("--admission.port=0", "--register-by-url", f"--webhook-address={LOOPBACK}",
               f"--admission.tls-cert-file={joined.directory / 'none'}")  # fmt: skip
    with joined.running("serve", *webhook) as program:
        joined.until("the webhook is registered", program, lambda: joined.hooks() != [])
        program.stop()
        assert program.exit_code == 0
    assert _replicas(joined) == 1
    assert joined.condition() == ""


def test_without_the_vpas_crds_the_other_parts_work(joined):
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in joined.sandbox.ask(crds)["items"]:
        joined.sandbox.ask(f"{crds}/{crd['metadata']['name']}", "DELETE")
    port = free_port()
    webhook = ("--admission.port=0", "--register-by-url", f"--webhook-address={LOOPBACK}",
               f"--admission.tls-cert-file={joined.directory / 'none'}")  # fmt: skip
    with joined.running("run", *webhook, f"--secure-port={port}") as program:
        joined.until("the HPA's minimum is kept", program, lambda: _replicas(joined) == 3)
        joined.until("the adapter answers", program, lambda: _is_served(port))
        assert joined.hooks() == []
        program.stop()
        assert program.exit_code == 0


@pytest.mark.parametrize("command", ["adapter", "serve", "control", "run"])
def test_whoever_reads_the_rules_tells_of_each_change_by_an_event_of_its_pod(joined, command):
    rules = joined.directory / "rules.yaml"
    port = free_port()
    more = [f"--secure-port={port}"]
    if command in ("serve", "run"):
        more += ["--admission.port=0", "--register-webhook=false"]
    at = {"POD_NAME": "podscale-0", "POD_NAMESPACE": "podscale"}
    with joined.running(command, *more, **at) as program:
        joined.until("it serves", program, lambda: _is_served(port))
        rules.write_text("rules: [{metricQuery: x}]")
        refused = ("Warning", "RulesNotReloaded")
        joined.until("the refusal is told", program, lambda: joined.told() == [refused])
        rules.write_text(RULES + "# repaired")
        taken = ("Normal", "RulesReloaded")
        joined.until("the change is told", program, lambda: joined.told() == [refused, taken])
        program.stop()
        assert program.exit_code == 0


@pytest.mark.parametrize("command", ["serve", "control", "run"])
def test_all_mistakes_are_told_at_once_with_status_2(joined, command):
    (joined.directory / "rules.yaml").write_text("rules:\n- seriesQuery: 7\n  nonsense: true\n")
    with joined.running(command) as program:
        wait_until("it ends", lambda: not program.is_running, 20.0)
        assert program.exit_code == 2
        text = (joined.directory / f"{command}.log").read_text()
        assert "rules.yaml:3" in text
        assert "Traceback" not in text


def _replicas(joined: Joined) -> int:
    return int(joined.sandbox.ask(f"{DEPLOYMENTS}/web")["spec"]["replicas"])


def _is_served(port: int) -> bool:
    tls = ssl._create_unverified_context()  # noqa: S323 - a certificate of its own making
    connection = http.client.HTTPSConnection(LOOPBACK, port, timeout=5, context=tls)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == 200
    finally:
        connection.close()
