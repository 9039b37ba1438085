"""Every way to install, on a real API server that enforces Pod Security `restricted`.

Images are not pulled: kwok makes pods Running that admission let in and the scheduler
placed. What the programs do with these arguments is told by the rest of the ring.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.operator_kinds import CRDS
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.tools.process import NotReadyError, wait_until
from tests.tools.required import require

ROOT = Path(__file__).parent.parent.parent
OVERLAYS = tuple(sorted(path.name for path in (ROOT / "deploy/kustomize/overlays").iterdir()))
WITH_HPA = ("ha", "cert-manager")  # beside those that are named after it
COMBINED = {  # several parts in a process
    "all-in-one": {"podscale": 1},
    "serve-control": {"podscale-serve": 2, "podscale-control": 2},
}
CHART = ROOT / "deploy" / "helm" / "podscale"
NAMESPACE = "podscale"
BALLAST = "podscale-ballast"
GONE_S = 60.0
CLUSTER_SCOPED = {
    "ClusterRole", "ClusterRoleBinding", "APIService", "CustomResourceDefinition",
    "MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A plane with four nodes in two zones and the operators' kinds."""
    with Plane(tmp_path_factory.mktemp("deploy"), PlaneSettings(nodes=4)) as plane:
        for number in range(4):
            zone = f"topology.kubernetes.io/zone=zone-{number % 2}"
            plane.kubectl("label", "node", f"node-{number}", zone)
        plane.apply(*CRDS)
        plane.wait_established(*(crd["metadata"]["name"] for crd in CRDS))
        yield plane


def deployments(plane: Plane, namespace: str) -> dict[str, Any]:
    items = plane.admin.get(f"/apis/apps/v1/namespaces/{namespace}/deployments")["items"]
    return {each["metadata"]["name"]: each for each in items}


def wait_admitted(plane: Plane, namespace: str) -> dict[str, int]:
    """Return Deployment -> ready pods once all wanted pods are; what was refused is told."""

    def ready() -> bool:
        found = deployments(plane, namespace).values()
        return bool(found) and all(
            each["status"].get("readyReplicas", 0) == each["spec"]["replicas"]
            and each["status"].get("observedGeneration") == each["metadata"]["generation"]
            for each in found
        )

    try:
        wait_until(f"the pods of {namespace} are admitted and Ready", ready, 30.0)
    except NotReadyError as late:
        events = plane.kubectl("get", "events", "-n", namespace)
        raise AssertionError(f"{late}\n{events}") from None
    return {
        name: each["status"]["readyReplicas"]
        for name, each in deployments(plane, namespace).items()
    }


def wait_gone(plane: Plane, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    wait_until(
        f"namespace {namespace} is gone",
        lambda: plane.admin.request("GET", path).status == 404,
        GONE_S,
    )


def ours(plane: Plane) -> list[str]:
    """Return what of us lies outside of any namespace."""
    kinds = "clusterroles,clusterrolebindings,apiservices,crds,validatingadmissionpolicies"
    found = plane.kubectl("get", kinds, "-o", "name").split()
    return [name for name in found if "podscale" in name]


def uninstall(plane: Plane, *words: str) -> None:
    plane.kubectl("delete", "--wait=false", "--ignore-not-found", *words)
    for namespace in (NAMESPACE, BALLAST):
        wait_gone(plane, namespace)
    assert ours(plane) == []


def test_the_namespace_refuses_a_pod_that_is_not_restricted(cluster: Plane) -> None:
    cluster.kubectl("apply", "-f", str(ROOT / "deploy/kustomize/base/namespace.yaml"))
    try:
        with pytest.raises(subprocess.CalledProcessError, match='PodSecurity "restricted'):
            cluster.kubectl("run", "loose", f"--namespace={NAMESPACE}", "--image=podscale")
    finally:
        uninstall(cluster, "-f", str(ROOT / "deploy/kustomize/base/namespace.yaml"))


@pytest.mark.parametrize("overlay", ["base", *OVERLAYS])
def test_an_overlay_installs_and_leaves_nothing_behind(cluster: Plane, overlay: str) -> None:
    folder = ROOT / "deploy" / "kustomize"
    chosen = str(folder / "base" if overlay == "base" else folder / "overlays" / overlay)
    try:
        cluster.kubectl("apply", "-k", chosen)
        pods = wait_admitted(cluster, NAMESPACE)
        print(overlay, pods)
        if overlay in COMBINED:
            assert pods == COMBINED[overlay]
        else:
            assert pods["podscale-adapter"] == (3 if overlay == "ha" else 2)
        vpa = {f"podscale-{part}" for part in ("recommender", "updater", "admission")}
        assert pods.keys() & vpa == (vpa if overlay == "vpa" else set())
        assert ("podscale-hpa" in pods) == (overlay[:3] == "hpa" or overlay in WITH_HPA)
        # Again, as GitOps does every few minutes: nothing may be in the way.
        again = cluster.kubectl("apply", "-k", chosen)
        assert "created" not in again
        budgets = cluster.admin.get(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets")
        # A budget for a part's only pod would hold up every drain.
        several = {name for name, ready in pods.items() if ready > 1}
        assert {each["metadata"]["name"] for each in budgets["items"]} == several
    finally:
        uninstall(cluster, "-k", chosen)


def test_highly_available_replicas_lie_on_nodes_of_their_own(cluster: Plane) -> None:
    chosen = str(ROOT / "deploy/kustomize/overlays/ha")
    try:
        cluster.kubectl("apply", "-k", chosen)
        wait_admitted(cluster, NAMESPACE)
        for component in ("adapter", "hpa"):
            pods = cluster.pods(NAMESPACE, {"app.kubernetes.io/component": component})
            assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    finally:
        uninstall(cluster, "-k", chosen)


def allowed(plane: Plane, verb: str, what: str, account: str) -> bool:
    """Return whether the ServiceAccount may, in all namespaces; ``what``: plural.group/sub."""
    named, _, subresource = what.partition("/")
    plural, _, group = named.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{account}",
            "resourceAttributes": {
                "verb": verb, "group": group, "resource": plural, "subresource": subresource,
            },
        },
    }  # fmt: skip
    answer = plane.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("mode", ["replace", "own", "shadow"])
def test_each_mode_may_write_what_it_acts_on_and_nothing_else(cluster: Plane, mode: str) -> None:
    chosen = str(ROOT / "deploy/kustomize/overlays" / f"hpa-{mode}")
    hpas, own = "horizontalpodautoscalers.autoscaling", "podautoscalers.autoscaling.podscale.io"
    try:
        cluster.kubectl("apply", "-k", chosen)
        wait_admitted(cluster, NAMESPACE)
        may = {
            (verb, what): allowed(cluster, verb, what, "podscale-hpa")
            for verb, what in (
                ("list", hpas), ("update", f"{hpas}/status"),
                ("list", own), ("update", f"{own}/status"),
                ("update", "deployments.apps/scale"), ("get", "deployments.apps/scale"),
                ("update", "deployments.apps"), ("delete", "pods"), ("create", "pods/eviction"),
            )
        }  # fmt: skip
        assert {key for key, value in may.items() if value} == {
            "replace": {
                ("list", hpas), ("update", f"{hpas}/status"),
                ("get", "deployments.apps/scale"), ("update", "deployments.apps/scale"),
            },
            # The list only tells it which targets the in-tree controller scales already.
            "own": {
                ("list", hpas), ("list", own), ("update", f"{own}/status"),
                ("get", "deployments.apps/scale"), ("update", "deployments.apps/scale"),
            },
            "shadow": {("list", hpas), ("get", "deployments.apps/scale")},
        }[mode]  # fmt: skip
    finally:
        uninstall(cluster, "-k", chosen)


# Values files as people have them: ours with everything on, and prometheus-adapter's.
RULE = {
    "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
    "resources": {
        "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
    },
    "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
}
USAGE = {
    "containerQuery": "sum(rate(container_cpu_usage_seconds_total{<<.LabelMatchers>>}[3m])) "
    "by (<<.GroupBy>>)",
    "nodeQuery": "sum(rate(node_cpu_seconds_total{<<.LabelMatchers>>}[3m])) by (<<.GroupBy>>)",
    "resources": {"overrides": {"node": {"resource": "node"}, "pod": {"resource": "pod"},
                                "namespace": {"resource": "namespace"}}},
    "containerLabel": "container",
}  # fmt: skip
WATCHED = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "scraper": {"name": "prometheus", "namespace": "monitoring"},
}
VALUES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "defaults": ({}, {"podscale"}),
    "an-adapters-values-file": (
        {
            "logLevel": 4,
            "metricsRelistInterval": "30s",
            "prometheus": {"url": "http://{{ .Release.Name }}-prom.svc", "port": 80, "path": "/x"},
            "replicas": 1,
            "psp": {"create": False},
            "podSecurityContext": {
                "fsGroup": 10001, "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "rules": {"default": False, "custom": [RULE], "external": [RULE],
                      "resource": {"cpu": USAGE, "memory": USAGE, "window": "3m"}},
            "tls": {"enable": True, "ca": "ca", "key": "key", "certificate": "certificate"},
            "podDisruptionBudget": {"enabled": True, "minAvailable": None, "maxUnavailable": 1},
            "extraArguments": ["--metrics-max-age=2m", "--prometheus-header=X-Scope-OrgID=one"],
            "customLabels": {"team": "sre"},
            "customAnnotations": {"example.com/owner": "sre"},
            "podAnnotations": {"example.com/injected": "false"},
            "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            "dnsPolicy": "ClusterFirst",
            "extraVolumes": [{"name": "extra", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "extra", "mountPath": "/extra"}],
            "service": {"annotations": {"example.com/a": "b"}, "port": 443, "type": "ClusterIP"},
        },
        {"podscale"},
    ),
    "rules-of-your-own": (
        {"rules": {"existing": "my-rules"}, "serviceAccount": {"name": "reader"}}, {"podscale"},
    ),
    "shadow-watched": (
        {"hpa": {"enabled": True}, "metrics": WATCHED}, {"podscale", "podscale-hpa"},
    ),
    "replace-by-feed": (
        {"hpa": {"enabled": True, "mode": "replace", "metricsSource": "feed"}},
        {"podscale", "podscale-hpa"},
    ),
    "vpa": (
        {"vpa": {"enabled": True}, "rules": {"resource": {"window": "3m"}}, "metrics": WATCHED},
        {"podscale", "podscale-recommender", "podscale-updater", "podscale-admission"},
    ),
    "own-with-cert-manager": (
        {"hpa": {"enabled": True, "mode": "own"}, "certManager": {"enabled": True},
         "metrics": WATCHED},
        {"podscale", "podscale-hpa"},
    ),
}  # fmt: skip


def helm(tmp_path: Path, *words: str) -> str:
    """Run the real helm with nothing of this machine's settings; its error is raised."""
    homes = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}
    done = subprocess.run(
        [str(require("helm")), *words],
        capture_output=True, text=True, check=False, timeout=60,
        env={"HOME": str(tmp_path), **homes},  # where it keeps what the API server serves
    )  # fmt: skip
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize("case", VALUES)
def test_the_chart_installs_and_leaves_nothing_behind(
    cluster: Plane, tmp_path: Path, case: str
) -> None:
    values, expected = VALUES[case]
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    text = helm(
        tmp_path, "template", "podscale", str(CHART), f"--namespace={NAMESPACE}", f"--values={file}"
    )
    namespace = (ROOT / "deploy/kustomize/base/namespace.yaml").read_text()
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(f"{namespace}\n---\n{text}")
    try:
        cluster.kubectl("apply", "-f", str(manifests))
        pods = wait_admitted(cluster, NAMESPACE)
        print(case, pods)
        assert set(pods) == expected
        assert pods["podscale"] == values.get("replicas", 2)
        for each in yaml.safe_load_all(text):
            if each["kind"] in CLUSTER_SCOPED:
                assert "namespace" not in each["metadata"]
            else:
                assert each["metadata"]["namespace"] in {NAMESPACE, "kube-system"}
    finally:
        uninstall(cluster, "-f", str(manifests))


VPA = """
apiVersion: autoscaling.k8s.io/v1
kind: VerticalPodAutoscaler
metadata: {name: web, namespace: default}
spec:
  targetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
"""


def test_a_release_comes_changes_and_goes_and_the_vpas_stay(cluster: Plane, tmp_path: Path) -> None:
    where = (f"--namespace={NAMESPACE}", f"--kubeconfig={cluster.admin_kubeconfig}")
    vpa = ("--set=vpa.enabled=true",)
    external = '--set-json=rules.external=[{"seriesQuery":"queue_depth"}]'
    namespace = str(ROOT / "deploy/kustomize/base/namespace.yaml")
    cluster.kubectl("apply", "-f", namespace)
    try:
        helm(tmp_path, "install", "podscale", str(CHART), *where, *vpa)
        wait_admitted(cluster, NAMESPACE)
        cluster.kubectl("apply", "-f", "-", stdin=VPA)
        before = deployments(cluster, NAMESPACE)["podscale"]["metadata"]["generation"]
        helm(tmp_path, "upgrade", "podscale", str(CHART), *where, *vpa, external)
        # No pod starts anew: whoever keeps the caBundles has to see the new APIService.
        assert deployments(cluster, NAMESPACE)["podscale"]["metadata"]["generation"] == before
        assert "v1beta1.external.metrics.k8s.io" in cluster.kubectl("get", "apiservices")
        helm(tmp_path, "rollback", "podscale", "1", *where)
        assert "external.metrics" not in cluster.kubectl("get", "apiservices")
        helm(tmp_path, "upgrade", "podscale", str(CHART), *where, "--reset-values")  # no VPA
        assert set(deployments(cluster, NAMESPACE)) == {"podscale"}
        assert "web" in cluster.kubectl("get", "vpa")
        helm(tmp_path, "uninstall", "podscale", *where)
        assert "web" in cluster.kubectl("get", "vpa")
        helm(tmp_path, "install", "podscale", str(CHART), *where, *vpa)
        assert "web" in cluster.kubectl("get", "vpa")
    finally:
        helm(tmp_path, "uninstall", "podscale", *where, "--ignore-not-found")
        crds = ("verticalpodautoscalers", "verticalpodautoscalercheckpoints")
        named = [f"crd/{each}.autoscaling.k8s.io" for each in crds]
        cluster.kubectl("delete", "--ignore-not-found", *named)
        uninstall(cluster, "-f", namespace)


def test_a_second_release_whose_accounts_no_policy_names_is_refused(
    cluster: Plane, tmp_path: Path
) -> None:
    where = (f"--namespace={NAMESPACE}", f"--kubeconfig={cluster.admin_kubeconfig}")
    bare = [f"--set=apiServices.{api}=false" for api in ("custom", "external", "resource")]
    cluster.kubectl("apply", "-f", str(ROOT / "deploy/kustomize/base/namespace.yaml"))
    try:
        helm(tmp_path, "install", "podscale", str(CHART), *where, *bare)
        with pytest.raises(subprocess.CalledProcessError) as refused:
            helm(tmp_path, "install", "second", str(CHART), *where, *bare)
        assert f"podscale-accounts-{NAMESPACE}" in str(refused.value.cmd)
    finally:
        helm(tmp_path, "uninstall", "podscale", *where, "--ignore-not-found")
        helm(tmp_path, "uninstall", "second", *where, "--ignore-not-found")
        uninstall(cluster, "-f", str(ROOT / "deploy/kustomize/base/namespace.yaml"))
