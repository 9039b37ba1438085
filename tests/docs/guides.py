"""The guides of docs/migrate, command by command, on whatever cluster is handed in.

Each function is one guide: it makes what the guide starts from, runs every block in order,
and looks at the cluster after each step. ``tests/docs/test_guides.py`` has the sandbox
as cluster, ``tests/cluster/test_guides.py`` the real plane.
"""

import base64
import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import trustme
import yaml

from adapter.rules import config_gen
from podscale.migrate.keda.side_by_side import API_SERVICE
from tests.docs.blocks import ROOT, Failed, Shell, blocks
from tests.integration.launched import PROGRAM, stub_prometheus
from tests.tools.process import LOOPBACK, Program, free_port, wait_until
from tests.tools.required import require

GUIDES = ROOT / "docs" / "migrate"
INPUTS = ROOT / "tests" / "unit" / "migrate" / "inputs"
RULES = """\
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
"""
SHOP = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


class Ground(Protocol):
    """A cluster, as its administrator sees it."""

    kubeconfig: Path
    directory: Path

    def route(self, group: str, version: str, port: int) -> None:
        """Have the aggregator send a group on to a loopback server."""
        ...


def kubectl(ground: Ground, *words: str, stdin: str = "") -> str:
    done = subprocess.run(
        [str(require("kubectl")), f"--kubeconfig={ground.kubeconfig}",
         f"--cache-dir={ground.directory / 'cache'}", *words],
        input=stdin, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
    return done.stdout


def apply(ground: Ground, *objects: Mapping[str, Any]) -> None:
    kubectl(ground, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))


def found(ground: Ground, *words: str) -> Any:
    return json.loads(kubectl(ground, "get", *words, "-o", "json"))


def deployment(name: str, namespace: str, image: str, args: Sequence[str] = ()) -> dict[str, Any]:
    labels = {"app": name, "app.kubernetes.io/name": name}
    container = {"name": "main", "image": image, "args": list(args)}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
        },
    }  # fmt: skip


def image(ground: Ground, namespace: str, name: str) -> str:
    made = found(ground, "deployment", name, "-n", namespace)
    return str(made["spec"]["template"]["spec"]["containers"][0]["image"])


def crd(plural: str, kind: str, scope: str = "Namespaced") -> dict[str, Any]:
    """Return a CRD of KEDA's that takes what it is given."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.keda.sh"},
        "spec": {
            "group": "keda.sh", "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [{"name": "v1alpha1", "served": True, "storage": True,
                          "schema": {"openAPIV3Schema": schema}}],
        },
    }  # fmt: skip


def in_tree_hpa(ground: Ground) -> None:
    look, namespace, shadow, explain = blocks(GUIDES / "in-tree-hpa.md")
    manager = yaml.safe_load((INPUTS / "controller-manager.yaml").read_text())
    manager["metadata"]["labels"] = {"component": "kube-controller-manager"}
    target = {"type": "AverageValue", "averageValue": "5"}
    metric = {"metric": {"name": "http_requests_per_second"}, "target": target}
    about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    apply(ground, SHOP, manager, deployment("web", "shop", "web"), {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": about, "maxReplicas": 5,
                 "metrics": [{"type": "Pods", "pods": metric}]},
    })  # fmt: skip
    (ground.directory / "rules.yaml").write_text(RULES)
    port = free_port()
    started = f"podscale hpa --mode=shadow --secure-port={port} --bind-address={LOOPBACK}"
    with stub_prometheus() as (address, _):
        replaced = {
            "podscale hpa --mode=shadow": f"{started} --cert-dir={ground.directory}",
            "http://prometheus.monitoring.svc:9090": f"http://{address}",
        }
        with Shell(ground.directory, ground.kubeconfig, replaced) as shell:
            told = shell.run(look)
            assert "--controllers=*,bootstrapsigner,tokencleaner,-horizontal-pod" in told
            shell.run(namespace)
            program = shell.start(shadow)
            ground.route("hpa.podscale.io", "v1alpha1", port)
            before = found(ground, "hpa", "web", "-n", "shop")["spec"]
            said: list[str] = []
            wait_until("an explanation", _explained(shell, explain, said), 60.0, (program,))
            assert "shop/web → Deployment/web" in said[-1]
            assert found(ground, "hpa", "web", "-n", "shop")["spec"] == before
            assert shell.unused == set()


def _explained(shell: Shell, block: Any, said: list[str]) -> Callable[[], bool]:
    def probe() -> bool:
        try:
            said.append(shell.run(block))
        except Failed:  # not routed yet, or nothing decided yet
            return False
        return True

    return probe


def _takes(ground: Ground, manifest: str) -> bool:
    try:
        kubectl(ground, "apply", "-f", "-", stdin=manifest)
    except AssertionError:  # a CRD is served a moment after it is made
        return False
    return True


def keda_api_service() -> dict[str, Any]:
    """Return the APIService as KEDA's installation leaves it."""
    service = {"namespace": "keda", "name": "keda-operator-metrics-apiserver", "port": 443}
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": service,
            "caBundle": base64.b64encode(trustme.CA().cert_pem.bytes()).decode(),
        },
    }


def keda(ground: Ground) -> None:
    look, rules, move, beside, back = blocks(GUIDES / "keda.md")
    kinds = (
        crd("scaledobjects", "ScaledObject"),
        crd("triggerauthentications", "TriggerAuthentication"),
        crd("clustertriggerauthentications", "ClusterTriggerAuthentication", "Cluster"),
    )
    apply(ground, SHOP, deployment("web", "shop", "web"), *kinds)
    scaled = (INPUTS / "keda-minimal.yaml").read_text()
    wait_until("KEDA's kinds are served", lambda: _takes(ground, scaled), 30.0)
    with stub_prometheus() as (address, _):
        replaced = {"http://prometheus.monitoring.svc:9090": f"http://{address}"}
        with Shell(ground.directory, ground.kubeconfig, replaced) as shell:
            told = shell.run(look)
            assert "kind: HorizontalPodAutoscaler" in told
            assert "# the way back:" in told
            assert "externalRules[0]" in shell.run(rules, codes=(0, 1))
            assert found(ground, "hpa", "-n", "shop")["items"] == []  # looking changes nothing
            shell.run(move)
            assert found(ground, "hpa", "web", "-n", "shop")["spec"]["maxReplicas"] == 100
            paused = found(ground, "scaledobject", "web", "-n", "shop")["metadata"]["annotations"]
            assert paused["autoscaling.keda.sh/paused"] == "true"
            apply(ground, keda_api_service())
            assert "services: true" in shell.run(beside)
            kubectl(ground, "delete", "apiservice", API_SERVICE)
            shell.run(back)
            assert found(ground, "hpa", "-n", "shop")["items"] == []
            after = found(ground, "scaledobject", "web", "-n", "shop")["metadata"]["annotations"]
            assert "autoscaling.keda.sh/paused" not in after
            assert shell.unused == set()


def upstream_vpa(ground: Ground) -> None:
    look, first, others, back = blocks(GUIDES / "upstream-vpa.md")
    kubectl(ground, "apply", "-f", str(ROOT / "config" / "crds" / "vpa" / "vpa.yaml"))
    made = list(yaml.safe_load_all((INPUTS / "vpa-deployments.yaml").read_text()))
    for each in made:
        each["spec"]["template"]["metadata"]["labels"] = each["spec"]["selector"]["matchLabels"]
        for container in each["spec"]["template"]["spec"]["containers"]:
            # A flag that nobody knows ends ``migrate`` with 1; upstream would not start with it.
            container["args"] = [
                word for word in container.get("args", []) if "made-up" not in word
            ]
    apply(ground, *made)
    names = [each["metadata"]["name"] for each in made]
    theirs = {name: image(ground, "kube-system", name) for name in names}
    with Shell(ground.directory, ground.kubeconfig, {}) as shell:
        assert "/recommender" in shell.run(look)
        assert {name: image(ground, "kube-system", name) for name in names} == theirs
        shell.run(first)
        now = {name: image(ground, "kube-system", name) for name in names}
        assert now == {**theirs, "vpa-recommender": "podscale:latest"}
        shell.run(others)
        assert {image(ground, "kube-system", name) for name in names} == {"podscale:latest"}
        shell.run(back)
        assert {name: image(ground, "kube-system", name) for name in names} == theirs


def prometheus_adapter(ground: Ground) -> None:
    """The image changes and changes back. What is answered, the cluster ring compares with the
    original's record (``test_migration``); here our program answers all the time.
    """
    look, doctor, move, compare, back = blocks(GUIDES / "prometheus-adapter.md")
    port = free_port()
    rules = ground.directory / "rules.yaml"
    rules.write_text(RULES)
    monitoring = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}}
    labels = {"app.kubernetes.io/name": "prometheus-adapter"}
    apply(ground, SHOP, monitoring, {
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "adapter-config", "namespace": "monitoring", "labels": labels},
        "data": {"config.yaml": RULES + config_gen.default_yaml().partition("rules:\n")[2]},
    }, {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "web"}]},
    }, deployment("prometheus-adapter", "monitoring", "prometheus-adapter:v0.12.0",
                  ["/adapter", "--secure-port=6443", "--v=4"]))  # fmt: skip
    with stub_prometheus() as (address, _):
        launcher = ground.directory / "adapter"
        launcher.symlink_to(PROGRAM)
        words = [f"--config={rules}", f"--prometheus-url=http://{address}", f"--secure-port={port}",
                 f"--bind-address={LOOPBACK}", f"--cert-dir={ground.directory / 'certificates'}",
                 f"--lister-kubeconfig={ground.kubeconfig}"]  # fmt: skip
        # As the in-cluster configuration would, for reviews as well.
        environment = {"KUBECONFIG": str(ground.kubeconfig)}
        log = ground.directory / "adapter.log"
        with Program("adapter", [launcher, "/adapter", *words], log, environment) as program:
            ground.route("custom.metrics.k8s.io", "v1beta1", port)
            replaced = {"http://localhost:9090": f"http://{address}"}
            with Shell(ground.directory, ground.kubeconfig, replaced) as shell:
                said: list[str] = []
                wait_until("an answer", _explained(shell, compare, said), 60.0, (program,))
                shell.run(look)
                assert "http_requests_per_second" in shell.run(doctor, codes=(0, 1))
                theirs = image(ground, "monitoring", "prometheus-adapter")
                shell.run(move)
                assert image(ground, "monitoring", "prometheus-adapter") == "podscale:latest"
                assert json.loads(shell.run(compare))["items"][0]["value"] == "7"
                shell.run(back)
                assert image(ground, "monitoring", "prometheus-adapter") == theirs
                assert shell.unused == set()
