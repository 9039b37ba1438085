import pytest

from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.resources import SandboxResources
from podscale.sandbox.objects.storage import Storage
from podscale.serving.auth.user import ANONYMOUS_USER, User
from tests.kit.apiserver.rbac import is_allowed, refusal

AMY = User("amy", ("dev", "system:authenticated"))
BOT = User("system:serviceaccount:ns:bot", ("system:serviceaccounts", "system:authenticated"))


def role(kind, name, rules, namespace="", **more):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    api = "rbac.authorization.k8s.io/v1"
    return {"kind": kind, "apiVersion": api, "metadata": metadata, "rules": rules, **more}


def binding(kind, name, role_kind, role_name, subjects, namespace=""):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "kind": kind,
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": metadata,
        "roleRef": {"kind": role_kind, "name": role_name},
        "subjects": subjects,
    }


@pytest.fixture
def objects() -> SandboxObjects:
    made = SandboxObjects(Storage(), SandboxResources())
    read = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
    lease = {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": ["mine"],
        "verbs": ["update"],
    }
    scale = {"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["update"]}
    urls = {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]}
    group = {"kind": "Group", "name": "dev"}
    account = {"kind": "ServiceAccount", "name": "bot", "namespace": "ns"}
    for content in (
        {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns"}},
        role("Role", "reader", [read], "ns"),
        role("ClusterRole", "leaser", [lease]),
        role("ClusterRole", "scaler", [scale, urls]),
        binding("RoleBinding", "a", "Role", "reader", [group], "ns"),
        binding("RoleBinding", "b", "ClusterRole", "leaser", [account], "ns"),
        binding("ClusterRoleBinding", "c", "ClusterRole", "scaler", [account]),
    ):
        made.put(content)
    return made


def asks(verb, resource="", group="", **more):
    return {"verb": verb, "resource": resource, "group": group, **more}


@pytest.mark.parametrize(
    ("user", "attributes", "allowed"),
    [
        (AMY, asks("list", "pods", namespace="ns"), True),
        (AMY, asks("get", "pods", subresource="log", namespace="ns"), True),
        (AMY, asks("get", "pods", subresource="exec", namespace="ns"), False),
        (AMY, asks("list", "pods", namespace="other"), False),
        (AMY, asks("list", "pods"), False),
        (AMY, asks("delete", "pods", namespace="ns"), False),
        (BOT, asks("update", "leases", "coordination.k8s.io", namespace="ns", name="mine"), True),
        (BOT, asks("update", "leases", "coordination.k8s.io", namespace="ns", name="its"), False),
        (BOT, asks("update", "deployments", "apps", subresource="scale", namespace="x"), True),
        (BOT, asks("update", "deployments", "apps", namespace="x"), False),
        (BOT, {"verb": "get", "path": "/metrics"}, True),
        (BOT, {"verb": "get", "path": "/debug/x"}, True),
        (AMY, {"verb": "get", "path": "/metrics"}, False),
        (AMY, {"verb": "get", "path": "/apis/apps/v1"}, True),
        (ANONYMOUS_USER, {"verb": "get", "path": "/apis"}, False),
        (ANONYMOUS_USER, {"verb": "get", "path": "/healthz"}, True),
        (User("root", ("system:masters",)), asks("delete", "nodes"), True),
    ],
)
def test_rules_decide(objects, user, attributes, allowed):
    assert is_allowed(objects, user, attributes)[0] is allowed


def test_an_aggregated_role_has_the_rules_of_the_roles_it_selects(objects):
    selector = {"clusterRoleSelectors": [{"matchLabels": {"agg": "yes"}}]}
    objects.put(role("ClusterRole", "all", [], aggregationRule=selector))
    part = role("ClusterRole", "part", [{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}])
    part["metadata"]["labels"] = {"agg": "yes"}
    objects.put(part)
    who = [{"kind": "User", "name": "amy"}]
    objects.put(binding("ClusterRoleBinding", "d", "ClusterRole", "all", who))
    assert is_allowed(objects, AMY, asks("delete", "nodes"))[0]


def test_a_refusal_says_who_cannot_do_what_where():
    assert refusal(AMY, asks("get", "pods", namespace="ns")) == (
        'User "amy" cannot get resource "pods" in API group "" in the namespace "ns"'
    )
    assert refusal(AMY, asks("update", "deployments", "apps", subresource="scale")) == (
        'User "amy" cannot update resource "deployments/scale" in API group "apps" '
        "at the cluster scope"
    )
