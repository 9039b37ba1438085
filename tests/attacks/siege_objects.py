"""What is in the besieged cluster: two tenants, workloads, HPAs and a VPA, and hostile ones."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from podscale.core.settings import FALLBACK, PODS_BY
from tests.attacks.test_tenants import SHIPPED, binding, named
from tests.attacks.test_written_texts import HOSTILE
from tests.cluster.workloads import deployment, horizontal_pod_autoscaler

CONTAINERS, METRICS = 12_000, 5_000
METRIC, EVIL = "http_requests_per_second", "evil_per_second"
SIZED = {"cpu": "250m", "memory": "250Mi"}
LARGE_EVERY = 6  # of the hostile objects, one is the HPA of thousands of metrics


def workloads(count: int, own: str, other: str) -> list[Mapping[str, Any]]:
    """Return ``count`` Deployments, one that the VPA sizes, and who may read and write what."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    return [
        *(deployment(f"web-{number}", own) for number in range(count)),
        deployment("sized", own),
        deployment("large", other),
        *({**account, "metadata": named("tenant", each)} for each in (own, other)),
        *(binding("RoleBinding", role, each) for role in SHIPPED for each in (own, other)),
        {**account, "metadata": named("writer", other)},
        binding("RoleBinding", "cluster-admin", other, "writer"),
    ]


def autoscalers(count: int, namespace: str) -> list[Mapping[str, Any]]:
    """Return an HPA for each of ``count`` Deployments."""
    return [
        horizontal_pod_autoscaler(f"web-{number}", namespace, _metric()) for number in range(count)
    ]


def vpa(name: str, namespace: str, **policy: Any) -> dict[str, Any]:
    """Return a VPA for the Deployment ``sized``."""
    made: dict[str, Any] = {
        "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
        "metadata": named(name, namespace),
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "sized"},
            "updatePolicy": {"updateMode": "Initial"},
        },
    }  # fmt: skip
    if policy:
        made["spec"]["resourcePolicy"] = {"containerPolicies": [{"containerName": "*", **policy}]}
    return made


def hostile(namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the object of each that a tenant creates to harm others, without end."""
    hpas = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    vpas = f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers"
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    many = [{"name": f"c{number}", "image": "pretend"} for number in range(CONTAINERS // 3)]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": named("many", namespace),
           "spec": {"containers": many}}  # fmt: skip
    metrics = [_metric({"a": str(number)}) for number in range(METRICS)]
    large = horizontal_pod_autoscaler("large", namespace, *metrics, most=1)
    while True:
        for number, text in enumerate(HOSTILE.values()):
            if number % LARGE_EVERY == 0:
                yield hpas, large
                yield pods, pod
                yield vpas, vpa("negative", namespace, minAllowed={"cpu": "-1"})
                yield vpas, vpa("huge", namespace, maxAllowed={"memory": "1e30"})
            written = horizontal_pod_autoscaler(f"written-{number}", namespace, _metric())
            written["metadata"]["annotations"] = dict.fromkeys((FALLBACK, PODS_BY), text)
            yield hpas, written


def reviews(pod: Mapping[str, Any], namespace: str) -> list[str]:
    """Return reviews of pods that nobody has."""

    def review(spec: Mapping[str, Any], labels: Mapping[str, str]) -> str:
        metadata = {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **labels}}
        request = {
            "uid": "1", "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace, "operation": "CREATE",
            "object": {"metadata": metadata, "spec": spec},
        }  # fmt: skip
        made = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        return json.dumps({**made, "request": request})

    def containers(count: int) -> list[dict[str, str]]:
        return [{"name": f"c{number}"} for number in range(count)]

    return [
        review({"containers": containers(CONTAINERS)}, {}),
        review({"containers": containers(4_200)}, {}),
        review({"containers": containers(1), "initContainers": containers(10_000)}, {}),
        review({"containers": containers(1)}, {f"l{n}": "" for n in range(10_000)}),
        '{"request":' + "[" * 100_000 + "]" * 100_000 + "}",
    ]


def _metric(labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    metric = {"name": METRIC, **({"selector": {"matchLabels": labels}} if labels else {})}
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "Pods", "pods": {"metric": metric, "target": target}}
