"""Time without Prometheus, and nothing shrinks by a ``rate()`` over it: what the overlays and the
chart run, on the real plane.

A process on this machine plays the controller's pod, with the arguments of the Deployment and the
rights of its account; addresses, times and the Lease differ. Beside each stands the same with
``--hold-after-outage=false``, for HPAs of another namespace.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import Struct

from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler
from tests.integration.deploy.charted import template
from tests.integration.deploy.rendered import Manifest, of_kind, rendered
from tests.integration.exporter import Exporter, counter, pod
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import LOOPBACK, Program, free_port, wait_until

IS_SHORT = bool(os.environ.get("PODSCALE_SHORT"))
RANGE_S, AWAY_S = (12, 16) if IS_SHORT else (120, 120)
WHOLE_S = RANGE_S * 1.25
OVERLAYS = ("hpa-replace",) if IS_SHORT else ("cert-manager", "ha", "hpa-own", "hpa-replace")
CHART: Mapping[str, Any] = {"hpa": {"enabled": True, "mode": "replace"}}
REPLICAS = 4
RULES = f"""\
rules:
- seriesQuery: 'requests_total{{namespace!="",pod!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{matches: "^(.*)_total$", as: "${{1}}_per_second"}}
  metricsQuery: 'sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[{RANGE_S}s])) by (<<.GroupBy>>)'
"""
METRIC = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
RIGHTS = (
    "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
)  # fmt: skip


class Controller(Struct, frozen=True):
    """An HPA controller as it is deployed, and the namespace whose HPAs it acts on."""

    way: str  # the overlay, or "chart"
    place: str  # of its pod
    account: str
    words: Sequence[str]
    is_holding: bool
    namespace: str

    @property
    def name(self) -> str:
        return f"{self.way}-{'holds' if self.is_holding else 'as-upstream'}"

    def program(self, plane: Plane, prometheus: PrometheusServer, directory: Path) -> Program:
        """Return the process that plays the pod."""
        own = directory / self.name
        own.mkdir()
        (own / "rules.yaml").write_text(RULES)
        kubeconfig = plane.kubeconfig_for(self.place, self.account)
        given = {
            "config": own / "rules.yaml",
            "prometheus-url": prometheus.url,
            "kubeconfig": kubeconfig,
            "authentication-kubeconfig": kubeconfig,
            "authorization-kubeconfig": kubeconfig,
            "cert-dir": own,
            "bind-address": LOOPBACK,
            "secure-port": free_port(),
            "metrics-relist-interval": "2s",
            "metrics-max-age": "30s",
            "feed-max-age": "500ms",
            "horizontal-pod-autoscaler-sync-period": "1s",
            "namespaces": self.namespace,
            "leader-elect": "false",
            "leader-elect-resource-name": f"podscale-{self.name}",  # of its history, too
        }
        if not self.is_holding:
            given["hold-after-outage"] = "false"
        if any(word.startswith("--tls-cert-file=") for word in self.words):
            pair = plane.cluster_ca.issue(self.name, hosts=["localhost"])
            given |= {"tls-cert-file": pair.cert_file, "tls-private-key-file": pair.key_file}
        kept = [word for word in self.words if word[2:].partition("=")[0] not in given]
        arguments = [*kept, *(f"--{name}={value}" for name, value in given.items())]
        return Program(
            self.name, [sys.executable, "-m", "podscale", *arguments], own / "log",
            {"POD_NAME": self.name, "POD_NAMESPACE": self.place},
        )  # fmt: skip


def install(plane: Plane, place: str, manifests: list[Manifest]) -> tuple[str, Sequence[str]]:
    """Apply the rights; return account and command line of the HPA controller."""
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}})
    text = yaml.safe_dump_all(of_kind(manifests, *RIGHTS))
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)
    for each in of_kind(manifests, "Deployment"):
        found = each["spec"]["template"]["spec"]
        words = found["containers"][0]["args"]
        if words[0] == "hpa":
            return found["serviceAccountName"], words
    raise AssertionError(f"no HPA controller in {place}")


def controllers(plane: Plane, tmp_path: Path, namespaces: ExitStack) -> Iterator[Controller]:
    """Install every way, and yield its controllers: as it is, and one that holds nothing."""
    ways = [(name, "podscale", rendered(name)) for name in OVERLAYS]
    ways.append(("chart", "ns", template(tmp_path, CHART)))
    for way, place, manifests in ways:
        account, words = install(plane, place, manifests)
        for is_holding in (True, False):
            namespace = namespaces.enter_context(plane.namespace(way))
            yield Controller(way, place, account, words, is_holding, namespace)


def autoscaler(controller: Controller) -> dict[str, Any]:
    made = horizontal_pod_autoscaler("web", controller.namespace, METRIC, behavior=AT_ONCE)
    if "--mode=own" in controller.words:
        made |= {"apiVersion": "autoscaling.podscale.io/v1", "kind": "PodAutoscaler"}
    return made


class Sizes:
    """The sizes of the workloads, as they are from time to time."""

    def __init__(self, plane: Plane, namespaces: Sequence[str]) -> None:
        self._plane, self._namespaces = plane, namespaces
        self.smallest = dict.fromkeys(namespaces, REPLICAS)

    def watch(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for each in self._plane.admin.get("/apis/apps/v1/deployments")["items"]:
                namespace = each["metadata"]["namespace"]
                if namespace in self.smallest:
                    size = int(each["spec"]["replicas"])
                    self.smallest[namespace] = min(self.smallest[namespace], size)
            time.sleep(0.5)


def load(prometheus: PrometheusServer, namespaces: Sequence[str]) -> bool:
    """Return whether the whole range is measured, of all pods."""
    found = prometheus.query(f"rate(requests_total[{RANGE_S}s])")
    pods = [each["metric"]["namespace"] for each in found if float(each["value"][1]) > 9.5]
    return sorted(pods) == sorted([*namespaces] * REPLICAS)


@pytest.mark.needs("helm", "kubectl")
@pytest.mark.timeout(300 if IS_SHORT else 900)
def test_after_time_without_prometheus_nothing_shrinks_by_a_rate_over_it(
    exporter: Exporter, prometheus: PrometheusServer, tmp_path: Path
) -> None:
    with (
        Plane(tmp_path, PlaneSettings(nodes=2)) as plane,
        ExitStack() as stack,
    ):
        found = list(controllers(plane, tmp_path, stack))
        namespaces = [each.namespace for each in found]
        for each in found:
            plane.apply(
                deployment("web", each.namespace, replicas=REPLICAS),
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": each.name, "namespace": each.place},
                    "spec": {"containers": [{"name": "hpa", "image": "pretend"}]},
                },
            )
        wait_until(
            "pods",
            lambda: all(len(plane.ready_pods(name)) == REPLICAS for name in namespaces),
            60,
        )
        exporter.set(
            *(
                pod(name, each, counter("requests_total", 10.0))
                for name in namespaces
                for each in plane.ready_pods(name)
            )
        )
        programs = tuple(
            stack.enter_context(each.program(plane, prometheus, tmp_path)) for each in found
        )
        # An HPA that is there earlier would shrink: at a start nobody knows of an outage.
        wait_until("a whole range", lambda: load(prometheus, namespaces), RANGE_S + 60, programs)
        plane.apply(*map(autoscaler, found))
        sizes = Sizes(plane, namespaces)
        wait_until("all decide", lambda: all(decided(plane, each) for each in found), 60, programs)
        prometheus.stop()
        sizes.watch(AWAY_S)
        assert set(sizes.smallest.values()) == {REPLICAS}  # silence is never the number zero
        prometheus.start()
        sizes.watch(WHOLE_S + 4)
        print({each.name: sizes.smallest[each.namespace] for each in found})
        for each in found:
            assert (sizes.smallest[each.namespace] == REPLICAS) == each.is_holding, each.name
            events = plane.admin.get(f"/api/v1/namespaces/{each.namespace}/events")["items"]
            reasons = {event["reason"] for event in events}
            assert ("GapInWindow" in reasons) == each.is_holding, f"{each.name}: {reasons}"


def decided(plane: Plane, controller: Controller) -> bool:
    """Return whether the metric was read, and the size is the load's."""
    made = autoscaler(controller)
    plural = "podautoscalers" if made["kind"] == "PodAutoscaler" else "horizontalpodautoscalers"
    path = f"/apis/{made['apiVersion']}/namespaces/{controller.namespace}/{plural}/web"
    status = plane.admin.get(path).get("status", {})
    return bool(status.get("currentMetrics")) and status.get("desiredReplicas") == REPLICAS
