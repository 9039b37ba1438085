"""Rules of two teams as objects on the real plane: created, broken, mended and deleted under RBAC.

Nothing of one team is seen or changed by the other, and what the status of an object says the
doctor says as well, in every state.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.identity import Client
from tests.cluster.metrics_stack import ROOT, MetricsStack
from tests.cluster.plane import Plane
from tests.integration.exporter import Exporter, Target, gauge
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import wait_until
from tests.tools.required import require

pytestmark = pytest.mark.timeout(600)

API = "rbac.authorization.k8s.io/v1"
GROUP = "/apis/metrics.podscale.io/v1alpha1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1/namespaces"
CRDS = ("metricrules.metrics.podscale.io", "clustermetricrules.metrics.podscale.io")
DEPTH = {
    "type": "External",
    "seriesQuery": "queue_depth",
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
}
# A file's rule of the same name, for who has none of their own.
RULES = """
externalRules:
- seriesQuery: shared_depth
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>)
"""


def kustomized(folder: str) -> str:
    """Return what a folder of ``config`` deploys."""
    return subprocess.run(
        [str(require("kubectl")), "kustomize", str(ROOT / folder)],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


class Team:
    """A namespace, and the one person who may edit it."""

    def __init__(
        self, plane: Plane, namespace: str, directory: Path, prometheus: PrometheusServer
    ) -> None:
        self.plane, self.namespace, self.prometheus = plane, namespace, prometheus
        user = plane.user(f"of-{namespace}")
        self.client = Client(user)
        self.kubeconfig = user.write_kubeconfig(
            directory / f"{namespace}.kubeconfig", namespace=namespace
        )
        subject = {"kind": "User", "name": user.name, "apiGroup": "rbac.authorization.k8s.io"}
        plane.apply(*(
            {"apiVersion": API, "kind": "RoleBinding",
             "metadata": {"name": role.replace(":", "-"), "namespace": namespace},
             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                         "name": role},
             "subjects": [subject]}
            for role in ("edit", "podscale:custom-metrics-reader")
        ))  # fmt: skip

    def path(self, name: str = "") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/metricrules{f'/{name}' if name else ''}"

    def write(self, rule: str, **spec: Any) -> None:
        """Create or change a rule with ``kubectl apply``, as the team's person."""
        manifest = {
            "apiVersion": "metrics.podscale.io/v1alpha1", "kind": "MetricRule",
            "metadata": {"name": rule, "namespace": self.namespace}, "spec": {**DEPTH, **spec},
        }  # fmt: skip
        text = json.dumps(manifest)
        self.plane.kubectl("apply", "-f", "-", kubeconfig=self.kubeconfig, stdin=text)

    def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        """Return status, reason and message by type, once they are of what was written last."""
        found = self.client.get(self.path(name))
        return {
            each["type"]: (each["status"], each["reason"], each.get("message", ""))
            for each in found.get("status", {}).get("conditions", ())
            if each["observedGeneration"] == found["metadata"]["generation"]
        }

    def wait_for(self, name: str, accepted: str, serving: str) -> None:
        """Wait until the reasons of a rule's conditions are these, and the doctor agrees."""
        seen: list[dict[str, tuple[str, str, str]]] = [{}]

        def probe() -> bool:
            seen[0] = self.conditions(name)
            reasons = {kind: each[1] for kind, each in seen[0].items()}
            return reasons == {"Accepted": accepted, "Serving": serving}

        try:
            wait_until(f"{name} is {accepted} and {serving}", probe, 40.0)
        except Exception as late:
            raise AssertionError(f"{name}: {seen[0]}") from late
        before: Any = None
        told: dict[str, Any] = {}
        for _ in range(3):
            before = self.client.get(self.path(name))["status"]
            told = {each["rule"]: each for each in self.doctor()["rules"]}
            if self.client.get(self.path(name))["status"] == before:
                break
        report = told[f"MetricRule {self.namespace}/{name}"]
        condition = next(each for each in before["conditions"] if each["type"] == "Serving")
        assert report["problem"] == (before["lastError"] or condition["message"])
        assert report["names"] == before["metrics"]
        if name == "depth" and accepted == "Accepted":
            self.followed(serving)

    def followed(self, serving: str) -> None:
        """Hold the doctor, with Prometheus to ask, to name the same stage of the rule `depth`."""
        asked = "--metric=queue_depth", "--api=external", f"--prometheus-url={self.prometheus.url}"
        [found] = self.doctor(*asked)["findings"]
        if serving == "Serving":
            assert found["stage"] == "Healthy"
        else:
            assert (found["stage"], found["place"]) == (
                serving,
                f"MetricRule {self.namespace}/depth",
            )

    def doctor(self, *words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "podscale", "doctor", "-o", "json", "-n", self.namespace, *words,
             "--kubeconfig", str(self.kubeconfig)],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def value(self, metric: str) -> str | int:
        """Return the value of an external metric in the namespace, or the status of a refusal."""
        answer = self.client.request("GET", f"{EXTERNAL}/{self.namespace}/{metric}")
        if answer.status != 200:
            return answer.status
        items = answer.body["items"]
        return items[0]["value"] if items else ""

    def wait_value(self, metric: str, value: str | int) -> None:
        seen: list[Any] = [None]

        def probe() -> bool:
            seen[0] = self.value(metric)
            return bool(seen[0] == value)

        wait_until(f"{metric} in {self.namespace} is {value}", probe, 30.0)


@contextlib.contextmanager
def unchanged(team: Team) -> Iterator[None]:
    """Hold a team's rules and metrics to be the same afterwards as before."""

    def seen() -> Any:
        found = team.client.get(team.path())["items"]
        rules = {each["metadata"]["name"]: each for each in found}
        return rules, [team.value(metric) for metric in ("queue_depth", "shared_depth")]

    before = seen()
    yield
    assert seen() == before


@pytest.fixture
def teams(plane: Plane, tmp_path: Path) -> Iterator[tuple[Team, Team]]:
    with contextlib.ExitStack() as held:
        crds = kustomized("config/crds/metric-rules")
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=crds)
        held.callback(plane.kubectl, "delete", "crd", *CRDS)
        plane.wait_established(*CRDS)
        names = [held.enter_context(plane.namespace(prefix)) for prefix in ("red", "blue")]
        exporter = held.enter_context(Exporter(tmp_path))
        for value, name in enumerate(names, 1):
            samples = (gauge("queue_depth", 10.0 * value), gauge("shared_depth", 100.0 * value))
            exporter.set((name, Target({"namespace": name, "pod": f"{name}-0"}, samples)))
        prometheus = held.enter_context(
            PrometheusServer(tmp_path, scrape_configs=[exporter.scrape_config()])
        )
        sources = tmp_path / "sources.yaml"
        closed = {"name": "closed", "url": prometheus.url}
        sources.write_text(yaml.safe_dump({"default": {"namespaces": names}, "sources": [closed]}))
        stack = MetricsStack(
            plane, prometheus, exporter, tmp_path, rules=RULES,
            arguments=[f"--sources={sources}"],
        )  # fmt: skip
        stack.apply()
        rights = kustomized("config/rbac/metric-rules")
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=rights)
        held.enter_context(stack)
        red, blue = (Team(plane, name, tmp_path, prometheus) for name in names)
        yield red, blue


def refused(team: Team, **spec: Any) -> str:
    with pytest.raises(subprocess.CalledProcessError) as error:
        team.write("refused", **spec)
    return str(error.value)


def test_two_teams_rules_under_their_own_rights(teams: tuple[Team, Team]) -> None:
    red, blue = teams
    wait_until(
        "red may edit rules", lambda: red.client.request("GET", red.path()).status == 200, 60.0
    )
    red.write("depth")
    red.wait_for("depth", "Accepted", "Serving")
    red.wait_value("queue_depth", "10")
    assert blue.value("queue_depth") == 404
    # Both reach for everything; each has its own.
    blue.write("depth", metricsQuery='sum({__name__=~".+_depth",namespace=~".+"})')
    blue.wait_for("depth", "Accepted", "Serving")
    blue.wait_value("queue_depth", "220")
    assert red.value("queue_depth") == "10"
    # The file's rule is everybody's, until a namespace has its own of that name.
    assert {red.value("shared_depth"), blue.value("shared_depth")} == {"300"}
    with unchanged(blue):
        red.write("shared", seriesQuery="shared_depth")
        red.wait_for("shared", "Accepted", "Serving")
        red.wait_value("shared_depth", "100")
        # Of equal names the last by the object's name counts, and is told to.
        red.write("zzz", seriesQuery="shared_depth", metricsQuery="sum(<<.Series>>) * 2")
        red.wait_for("zzz", "Accepted", "Serving")
        red.wait_value("shared_depth", "200")
        shadowed = f"shared_depth is answered by MetricRule {red.namespace}/zzz"
        wait_until(shadowed, lambda: shadowed in red.conditions("shared")["Serving"][2], 20.0)
        red.wait_for("shared", "Accepted", "Serving")
        for name in ("shared", "zzz"):
            red.client.delete(red.path(name))
        red.wait_value("shared_depth", "300")
    with unchanged(blue):
        no_sum = 'label_replace(<<.Series>>, "namespace", "other", "", "")'
        red.write("depth", metricsQuery=no_sum)
        red.wait_for("depth", "QueryNotConfined", "NotAccepted")
        red.wait_value("queue_depth", 503)  # what it could have is nobody else's
        red.write("depth", source="closed")
        red.wait_for("depth", "SourceNotAllowed", "NotAccepted")
        red.write("depth", source="", seriesQuery=f'queue_depth{{namespace="{blue.namespace}"}}')
        red.wait_for("depth", "Accepted", "NoSeries")
        red.write("depth", source="", seriesFilters=[{"is": "^other$"}])
        red.wait_for("depth", "Accepted", "FilteredOut")
        red.write("depth", source="", seriesFilters=[], name={"matches": "^(.*)_(.*)$"})
        red.wait_for("depth", "Invalid", "NotAccepted")
        red.write("depth", source="", seriesFilters=[], name={})
        red.wait_for("depth", "Accepted", "Serving")
        red.wait_value("queue_depth", "10")
    with unchanged(blue), unchanged(red):
        assert "spec.name.matches" in refused(red, name={"matches": "(?=x)"})
        assert "spec.seriesFilters[0]" in refused(red, seriesFilters=[{"is": "a", "isNot": "b"}])
        assert "spec.resources" in refused(red, type="Custom")
        assert "spec.seriesQuery" in refused(red, seriesQuery="x" * 9000)
        assert "spec.type" in refused(red, type="Resource")
        for method, name, body in (
            ("GET", "", None), ("GET", "depth", None), ("DELETE", "depth", None),
            ("POST", "", {"metadata": {"name": "mine"}, "spec": DEPTH}),
        ):  # fmt: skip
            assert red.client.request(method, blue.path(name), body).status == 403
        everywhere = f"{GROUP}/clustermetricrules"
        assert red.client.request("POST", everywhere, {"spec": DEPTH}).status == 403
        denied = red.client.request("GET", f"{EXTERNAL}/{blue.namespace}/queue_depth")
        assert denied.status == 403
    with unchanged(blue):
        custom_metrics(red, blue)
        red.client.delete(red.path("depth"))
        red.wait_value("queue_depth", 404)
    table = red.plane.kubectl("get", "metricrules", "-n", blue.namespace)
    assert table.splitlines()[0].split() == [
        "NAME", "TYPE", "ACCEPTED", "SERVING", "SERIES", "METRICS", "AGE",
    ]  # fmt: skip
    cluster_rule(red, blue)


def custom_metrics(red: Team, blue: Team) -> None:
    """A rule of pods is served to its own namespace, and listed nowhere."""
    spec: Mapping[str, Any] = {
        "type": "Custom", "resources": {"overrides": {"pod": {"resource": "pod"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }  # fmt: skip
    red.write("pods", **spec)
    red.wait_for("pods", "Accepted", "Serving")
    path = f"{CUSTOM}/{red.namespace}/pods/{red.namespace}-0/queue_depth"
    assert red.client.get(path)["items"][0]["value"] == "10"
    other = path.replace(red.namespace, blue.namespace)
    assert blue.client.request("GET", other).status == 404
    listed = red.plane.admin.get("/apis/custom.metrics.k8s.io/v1beta1")["resources"]
    assert "pods/queue_depth" not in [each["name"] for each in listed]


def cluster_rule(red: Team, blue: Team) -> None:
    """One for everybody is before the file's rule of that name, and behind a namespace's own."""
    manifest = {
        "apiVersion": "metrics.podscale.io/v1alpha1", "kind": "ClusterMetricRule",
        "metadata": {"name": "shared"},
        "spec": {**DEPTH, "seriesQuery": "{__name__=~\"shared_depth|queue_depth\"}",
                 "resources": {"namespaced": False}, "metricsQuery": "count(<<.Series>>)"},
    }  # fmt: skip
    red.plane.apply(manifest)
    red.wait_value("shared_depth", "2")
    red.wait_value("queue_depth", "2")
    assert blue.value("queue_depth") == "220"
    red.plane.admin.delete(f"{GROUP}/clustermetricrules/shared")
    red.wait_value("shared_depth", "300")
