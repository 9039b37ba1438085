"""Adapter, HPA and webhook on the real plane with the shipped roles, before a lying Prometheus."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.attacks import turns
from tests.attacks.attackers import Victims
from tests.attacks.lying_prometheus import LyingPrometheus
from tests.attacks.siege_objects import METRIC, autoscalers, reviews, vpa, workloads
from tests.attacks.tenant_requests import Tenant
from tests.cluster.hpa_stack import HpaStack
from tests.cluster.metrics_stack import RULES, MetricsStack
from tests.cluster.plane import Plane
from tests.cluster.vpa_stack import VpaStack
from tests.integration.exporter import Exporter
from tests.integration.prometheus import PrometheusServer
from tests.tools.process import Program, wait_until

HPAS = 50
_RULES = """\
rules:
- seriesQuery: '{__name__=~"http_requests_total|evil_total|flood_.*",namespace!="",pod!=""}'
  resources: {template: "<<.Resource>>"}
  name: {matches: "^(.*)_total$", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
"""


class Siege(Struct, frozen=True):
    """All that runs."""

    plane: Plane
    prometheus: LyingPrometheus
    programs: Mapping[str, tuple[Program, int]]  # with its port, by name
    victims: Victims
    token: str  # of who asks ordinarily
    pod: Mapping[str, Any]  # as the ReplicaSet of what the VPA sizes creates it

    @property
    def own(self) -> str:
        """The namespace of who asks ordinarily."""
        return self.victims.tenant.other

    def active(self) -> Mapping[str, str]:
        """Return since when each HPA has known its metric without a break."""
        path = f"/apis/autoscaling/v2/namespaces/{self.own}/horizontalpodautoscalers"
        return {
            item["metadata"]["name"]: each["lastTransitionTime"]
            for item in self.plane.admin.get(path)["items"]
            for each in (item.get("status") or {}).get("conditions") or ()
            if (each["type"], each["status"]) == ("ScalingActive", "True")
        }

    def raise_siege(self) -> None:
        """Delete what the attackers have left in the cluster."""
        path = f"namespaces/{self.victims.tenant.own}/horizontalpodautoscalers"
        self.plane.admin.delete(f"/apis/autoscaling/v2/{path}")


@contextmanager
def besieged(plane: Plane, directory: Path) -> Iterator[Siege]:
    """Run them for as long as the block."""
    with ExitStack() as running:
        own, other = (running.enter_context(plane.namespace(each)) for each in ("siege", "other"))
        plane.apply(*workloads(HPAS, own, other))
        vpas = running.enter_context(VpaStack(plane, directory))
        _recommend(plane, own)
        wait_until("pods", lambda: len(plane.ready_pods(own)) == HPAS + 1, 120)
        pods = plane.ready_pods(own)
        prometheus = running.enter_context(LyingPrometheus(directory, own, other, pods))
        rules = _RULES + RULES[RULES.index("resourceRules:") :]
        # With --metrics-source=api the HPA of thousands of metrics asks thousands of times
        # through kube-apiserver, on whose two cores everything here runs.
        feed = (
            "--metrics-source=feed", f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus.url}", "--metrics-relist-interval=2s",
            "--metrics-max-age=30s", "--feed-max-age=1s",
        )  # fmt: skip
        adapter = running.enter_context(
            MetricsStack(
                plane, PrometheusServer(directory), Exporter(directory), directory, rules=rules,
                module=turns.__name__,
                arguments=(f"--prometheus-url={prometheus.url}",),  # in place of the stack's own
            )
        )  # fmt: skip
        listed = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/{own}/pods/*/{METRIC}"
        adapter.wait_for_metric(listed, HPAS + 1)
        plane.apply(*autoscalers(HPAS, own))
        hpa = running.enter_context(
            HpaStack(plane, directory, sync_period="5s", source=feed, module=turns.__name__)
        )
        admission = vpas.start_admission(module=turns.__name__)
        [port] = [int(w[7:]) for w in admission.command if w.startswith("--port=")]
        [sized] = plane.pods(own, {"app": "sized"})
        metadata = {key: sized["metadata"][key] for key in ("labels", "ownerReferences")}
        pod = {
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {**metadata, "name": "created", "namespace": own},
            "spec": {"containers": [{"name": "app", "image": "pretend"}]},
        }  # fmt: skip
        proxy = plane.front_proxy_ca.issue("front-proxy-client", file_stem="siege")
        writer = plane.service_account(other, "writer")
        siege = Siege(
            plane,
            prometheus,
            {
                "adapter": (adapter.replicas[0], adapter.port),
                "admission": (admission, port),
                "hpa": (hpa.replicas[0], hpa.ports[0]),
            },
            Victims(
                adapter=adapter.port,
                admission=port,
                hpa=hpa.ports[0],
                api=writer.port,
                api_ca=str(writer.ca_file),
                writer=writer.token or "",
                token=plane.service_account(other, "tenant").token or "",
                proxy=(str(proxy.cert_file), str(proxy.key_file)),
                tenant=Tenant(other, own, tuple(pods[:4]), pods[0]),
                reviews=reviews(pod, own),
            ),
            plane.service_account(own, "tenant").token or "",
            pod,
        )
        alive = tuple(program for program, _ in siege.programs.values())
        wait_until("every HPA is active", lambda: len(siege.active()) == HPAS, 90, alive)
        yield siege


def _recommend(plane: Plane, namespace: str) -> None:
    plane.apply(vpa("sized", namespace))
    path = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers/sized"
    entry = {"containerName": "app", "target": {"cpu": "250m", "memory": "250Mi"}}
    recommendation = {"recommendation": {"containerRecommendations": [entry]}}
    plane.admin.patch(f"{path}/status", {"status": recommendation})
