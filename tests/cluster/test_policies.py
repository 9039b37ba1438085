"""The admission policies as the overlays ship them: what our own accounts change of pods and
ConfigMaps, and whose pods have the PriorityClass of headroom."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster.identity import Answer, Client
from tests.cluster.plane import Plane
from tests.cluster.settings import PlaneSettings
from tests.integration.deploy.rendered import rendered
from tests.tools.process import wait_until

OVERLAYS = ("hpa-replace", "vpa", "nodes-full")
KINDS = {
    "Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding",
    "PriorityClass", "ResourceQuota", "ConfigMap", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
NAMESPACE = "podscale"
PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
POLICY = "podscale-accounts-podscale"
LEADER = "leader.podscale.io/recommender"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A plane with what the overlays say of rights."""
    objects = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each
        for overlay in OVERLAYS
        for each in rendered(overlay)
        if each["kind"] in KINDS
    }
    with Plane(tmp_path_factory.mktemp("policies"), PlaneSettings(nodes=1)) as plane:
        plane.apply(*sorted(objects.values(), key=lambda each: each["kind"] != "Namespace"))
        yield plane


def account(plane: Plane, name: str) -> Client:
    return Client(plane.service_account(NAMESPACE, name))


def pod(name: str, **spec: Any) -> dict[str, Any]:
    confined = {
        "allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 65532,
        "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    containers = [{"name": "one", "image": "shipped", "securityContext": confined}]
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, "annotations": {"of": name}},
        "spec": {"containers": containers, **spec},
    }  # fmt: skip


@pytest.fixture
def admission(cluster: Plane) -> Iterator[str]:
    """The path of a pod of the webhook."""
    made = cluster.admin.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod("admission"))
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{made['metadata']['name']}"
    yield path
    cluster.admin.request("DELETE", f"{path}?gracePeriodSeconds=0")


def is_refused(answer: Answer, policy: str = POLICY) -> bool:
    return answer.status == 403 and policy in answer.body["message"]


def wait_refused(client: Client, path: str, change: Mapping[str, Any]) -> None:
    """Return once the policy, which the API server takes up in a moment, refuses a change."""

    def refused() -> bool:
        return is_refused(client.request("PATCH", f"{path}?dryRun=All", change, PATCH))

    wait_until(f"{POLICY} refuses {change}", refused, 20.0)


def image(name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "one", "image": name}]}}


def marked(**labels: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


def annotated(**annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


@pytest.mark.parametrize("name", ["podscale-recommender", "podscale-hpa", "podscale-nodes"])
def test_whoever_leads_marks_pods_and_changes_nothing_else_of_them(
    cluster: Plane, admission: str, name: str
) -> None:
    client = account(cluster, name)
    wait_refused(client, admission, image("taken-over"))
    before = cluster.admin.get(admission)
    refused = [
        image("taken-over"), marked(app="other"), marked(app=None), marked(more="1"),
        annotated(of="other"), annotated(of=None), annotated(**{"vpa.podscale.io/infeasible": "1"}),
        {"metadata": {"finalizers": ["podscale.io/stays"]}},
        {"spec": {"activeDeadlineSeconds": 1}},
        {"metadata": {"labels": {LEADER: "true"}}, **image("taken-over")},
    ]  # fmt: skip
    for change in refused:
        assert is_refused(client.request("PATCH", admission, change, PATCH)), change
    assert cluster.admin.get(admission)["spec"]["containers"] == before["spec"]["containers"]
    for value in ("true", "false", None):
        answer = client.request("PATCH", admission, marked(**{LEADER: value}), PATCH)
        assert answer.status == 200, answer.raw
        assert answer.body["metadata"]["labels"].get(LEADER) == value


def test_the_updater_writes_its_annotations_on_pods_of_everybody(cluster: Plane) -> None:
    client = account(cluster, "podscale-updater")
    with cluster.namespace("shop") as namespace:
        cluster.admin.post(f"/api/v1/namespaces/{namespace}/pods", pod("web"))
        path = f"/api/v1/namespaces/{namespace}/pods/web"
        wait_refused(client, path, image("taken-over"))
        for change in (annotated(of="other"), marked(app="other"), marked(more="1")):
            assert is_refused(client.request("PATCH", path, change, PATCH)), change
        for value in ("{}", None):
            change = annotated(**{"vpa.podscale.io/infeasible": value, "vpaUpdates": value})
            answer = client.request("PATCH", path, change, PATCH)
            assert answer.status == 200, answer.raw


def test_the_nodes_part_makes_a_ballast_pod_one_of_an_older_revision(
    cluster: Plane, admission: str
) -> None:
    wait_refused(account(cluster, "podscale-nodes"), admission, image("taken-over"))
    pods = "/api/v1/namespaces/podscale-ballast/pods"
    cluster.admin.post(pods, pod("ballast", priorityClassName="podscale-ballast"))
    change = marked(**{"controller-revision-hash": "renewed", "pod-template-generation": "renewed"})
    nodes = account(cluster, "podscale-nodes")
    answer = nodes.request("PATCH", f"{pods}/ballast", change, PATCH)
    assert answer.status == 200, answer.raw
    assert is_refused(nodes.request("PATCH", f"{pods}/ballast", image("taken-over"), PATCH))


def test_the_hpa_writes_histories_and_not_the_rules(cluster: Plane) -> None:
    client, rules = account(cluster, "podscale-hpa"), f"{CONFIG_MAPS}/podscale-rules"
    stored = cluster.admin.get(rules)
    evil = {**stored, "data": {"sources.yaml": "sources: [{name: a, url: http://evil}]"}}

    def refused() -> bool:
        return is_refused(client.request("PUT", f"{rules}?dryRun=All", evil))

    wait_until("the rules are kept", refused, 20.0)
    assert is_refused(client.request("PUT", rules, evil))
    assert cluster.admin.get(rules)["data"] == stored["data"]

    def named(name: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}

    assert is_refused(client.request("POST", CONFIG_MAPS, named("podscale-other")))
    assert is_refused(client.request("POST", CONFIG_MAPS, named("podscale-hpa-history-0.rules")))
    made = client.post(CONFIG_MAPS, named("podscale-hpa-history-0"))
    made["binaryData"] = {"history.json.gz": ""}
    answer = client.request("PUT", f"{CONFIG_MAPS}/podscale-hpa-history-0", made)
    assert answer.status == 200, answer.raw
    # Nobody else is held to it.
    assert cluster.admin.request("PUT", rules, cluster.admin.get(rules)).status == 200


def test_no_account_creates_itself_the_token_of_another(cluster: Plane) -> None:
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    of_another = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "podscale-hpa-ca",
                     "annotations": {"kubernetes.io/service-account.name": "podscale-updater"}},
    }  # fmt: skip
    client = account(cluster, "podscale-hpa")

    def refused() -> bool:
        return is_refused(client.request("POST", f"{secrets}?dryRun=All", of_another))

    wait_until("it is refused", refused, 20.0)
    assert is_refused(client.request("POST", secrets, {**of_another, "type": "Opaque"}))
    certificate = {
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": "podscale-hpa-ca"}, "data": {"tls.crt": "", "tls.key": ""},
    }  # fmt: skip
    assert client.request("POST", f"{secrets}?dryRun=All", certificate).status == 201
    assert cluster.admin.request("POST", f"{secrets}?dryRun=All", of_another).status == 201


def test_every_account_of_ours_sees_that_the_policy_is_there(cluster: Plane) -> None:
    client = account(cluster, "podscale-adapter")
    for plural in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}"
        assert client.request("GET", f"{path}/{POLICY}").status == 200
        assert client.request("GET", path).status == 403


def test_the_class_of_headroom_is_for_pods_of_its_namespace(cluster: Plane) -> None:
    of_the_class = pod("cheap", priorityClassName="podscale-headroom")
    with cluster.namespace("shop") as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"

        def refused() -> bool:
            answer = cluster.admin.request("POST", f"{path}?dryRun=All", of_the_class)
            return is_refused(answer, "podscale-headroom")

        wait_until("it is refused", refused, 20.0)
        assert is_refused(cluster.admin.request("POST", path, of_the_class), "podscale-headroom")
        assert cluster.admin.request("POST", path, pod("web")).status == 201
    home = "/api/v1/namespaces/podscale-headroom/pods?dryRun=All"
    assert cluster.admin.request("POST", home, of_the_class).status == 201
