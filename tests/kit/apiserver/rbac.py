"""Authorization by the Roles and bindings that are stored, as kube-apiserver's RBAC."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from podscale.core.selectors import selector as labels
from podscale.sandbox.objects.objects import SandboxObjects
from podscale.sandbox.objects.storage import Object
from podscale.serving.auth.user import MASTERS, User

# What the bootstrap roles system:discovery and system:public-info-viewer allow.
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
_DISCOVERY = ("/api", "/apis", "/openapi")


def is_allowed(
    objects: SandboxObjects, user: User, attributes: Mapping[str, Any]
) -> tuple[bool, str]:
    """Return whether RBAC allows, and why.

    ``attributes`` are those of a SubjectAccessReview: ``verb`` and ``path``, or ``verb``,
    ``group``, ``resource``, ``subresource``, ``namespace``, ``name``.
    """
    if MASTERS in user.groups:
        return True, ""
    path = attributes.get("path")
    if path is not None and _is_public(path, user):
        return True, "RBAC: allowed by the bootstrap roles"
    for binding, rules in _bound(objects, user, attributes.get("namespace") or ""):
        if any(_permits(rule, attributes) for rule in rules):
            return True, f"RBAC: allowed by {binding}"
    return False, ""


def refusal(user: User, attributes: Mapping[str, Any]) -> str:
    """Return the sentence of a 403, after ``is forbidden: `` or the path."""
    if (path := attributes.get("path")) is not None:
        return f'User "{user.name}" cannot {attributes["verb"]} path "{path}"'
    resource = attributes["resource"]
    if attributes.get("subresource"):
        resource = f"{resource}/{attributes['subresource']}"
    scope = (
        f'in the namespace "{attributes["namespace"]}"'
        if attributes.get("namespace")
        else "at the cluster scope"
    )
    return (
        f'User "{user.name}" cannot {attributes["verb"]} resource "{resource}" '
        f'in API group "{attributes.get("group") or ""}" {scope}'
    )


def _is_public(path: str, user: User) -> bool:
    if path in _PUBLIC:
        return True
    known = "system:authenticated" in user.groups
    return known and any(path == root or path.startswith(root + "/") for root in _DISCOVERY)


def _bound(
    objects: SandboxObjects, user: User, namespace: str
) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    for binding in objects.list("clusterrolebindings"):
        if _names(binding, user, ""):
            shown = f'ClusterRoleBinding "{binding["metadata"]["name"]}"'
            yield shown, _rules(objects, binding["roleRef"], "")
    if not namespace:
        return
    for binding in objects.list("rolebindings", namespace):
        if _names(binding, user, namespace):
            shown = f'RoleBinding "{binding["metadata"]["name"]}/{namespace}"'
            yield shown, _rules(objects, binding["roleRef"], namespace)


def _names(binding: Object, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name in (user.name, "*"):
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            home = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{home}:{name}":
                return True
    return False


def _rules(
    objects: SandboxObjects, reference: Mapping[str, str], namespace: str
) -> Sequence[Mapping[str, Any]]:
    if reference["kind"] == "Role":
        role = objects.find("roles", namespace, reference["name"])
    else:
        role = objects.find("clusterroles", "", reference["name"])
    if role is None:
        return ()
    rules = list(role.get("rules") or ())
    for wanted in (role.get("aggregationRule") or {}).get("clusterRoleSelectors") or ():
        chosen = labels.from_wire(wanted)
        for other in objects.list("clusterroles", "", chosen):
            rules += other.get("rules") or ()
    return rules


def _permits(rule: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
    verbs = rule.get("verbs") or ()
    if "*" not in verbs and attributes["verb"] not in verbs:
        return False
    if (path := attributes.get("path")) is not None:
        return any(
            path == url or (url.endswith("*") and path.startswith(url[:-1]))
            for url in rule.get("nonResourceURLs") or ()
        )
    groups = rule.get("apiGroups") or ()
    if "*" not in groups and (attributes.get("group") or "") not in groups:
        return False
    if not _covers(rule.get("resources") or (), attributes):
        return False
    names = rule.get("resourceNames") or ()
    return not names or attributes.get("name") in names


def _covers(resources: Sequence[str], attributes: Mapping[str, Any]) -> bool:
    resource, subresource = attributes["resource"], attributes.get("subresource") or ""
    full = f"{resource}/{subresource}" if subresource else resource
    if "*" in resources or full in resources:
        return True
    return bool(subresource) and f"*/{subresource}" in resources
