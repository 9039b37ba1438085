"""What the API server itself writes into objects: names, times, generations, defaults."""

import base64
import random
import uuid
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from podscale.core.json_decoder import decode_json
from podscale.core.selectors.labels import subdomain_problems
from podscale.sandbox.errors import bad_request, invalid
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object

# Without vowels and without 0, 1, 3, so that names do not spell words.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
# Names of these are not DNS subdomains (path segments are enough).
_FREE_NAMES = frozenset({"rbac.authorization.k8s.io"})


def prepare_create(
    resource: SandboxResource, namespace: str, body: Object, *, keeps_status: bool, now: str
) -> Object:
    """Return the object to store for a create request; raises ``StatusError``."""
    body = {
        "kind": resource.kind,
        "apiVersion": resource.api_version(),
        **{key: value for key, value in body.items() if key not in ("kind", "apiVersion")},
    }
    metadata = dict(body.get("metadata") or {})
    if not metadata.get("name") and metadata.get("generateName"):
        suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))
        metadata["name"] = metadata["generateName"][:58] + suffix
    _check_name(resource, metadata.get("name") or "")
    if resource.namespaced:
        if metadata.setdefault("namespace", namespace) != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent "
                "on the request"
            )
    else:
        metadata.pop("namespace", None)
    metadata.pop("resourceVersion", None)
    metadata.pop("deletionTimestamp", None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now
    if resource.has_generation:
        metadata["generation"] = 1
    body["metadata"] = metadata
    if resource.has_status and not keeps_status:
        body.pop("status", None)
    return set_defaults(resource, body)


def prepare_update(
    resource: SandboxResource, old: Object, body: Object, subresource: str
) -> Object:
    """Return the object to store for an update, with the fields a client cannot write."""
    before = old["metadata"]
    if subresource == "status":
        merged = {**old, "metadata": dict(before)}
        merged.pop("status", None)
        return {**merged, "status": body["status"]} if "status" in body else merged
    metadata = dict(body.get("metadata") or {})
    for field in ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp"):
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    metadata.pop("resourceVersion", None)
    metadata["resourceVersion"] = before["resourceVersion"]
    new = {**body, "kind": old["kind"], "apiVersion": old["apiVersion"], "metadata": metadata}
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    new = set_defaults(resource, new)
    if resource.has_generation:
        changed = _without(old) != _without(new)
        new["metadata"]["generation"] = before.get("generation", 1) + changed
    return new


def _without(content: Object) -> Object:
    return {key: part for key, part in content.items() if key not in ("metadata", "status")}


def _check_name(resource: SandboxResource, name: str) -> None:
    if not name:
        causes = [("metadata.name", "Required value: name or generateName is required")]
        raise invalid(resource.kind, resource.group, name, causes)
    if resource.group in _FREE_NAMES:
        return
    if problems := subdomain_problems(name):
        causes = [("metadata.name", f'Invalid value: "{name}": {problem}') for problem in problems]
        raise invalid(resource.kind, resource.group, name, causes)


def set_defaults(resource: SandboxResource, content: Object) -> Object:
    """Return the object with the defaults that consumers of the sandbox rely on."""
    fill = _DEFAULTS.get((resource.group, resource.kind))
    if fill is None:
        return content
    # A round trip through JSON copies a pod six times faster than deepcopy.
    copied: Object = decode_json(msgspec.json.encode(content))
    fill(copied)
    return copied


def _fill(target: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    for key, value in defaults.items():
        if target.get(key) is None:
            target[key] = deepcopy(value)


def _pod_spec(spec: dict[str, Any]) -> None:
    _fill(
        spec,
        {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    )
    for container in [*spec.get("containers", ()), *spec.get("initContainers", ())]:
        resources = container.setdefault("resources", {})
        # Requests that are not given are the limits.
        if limits := resources.get("limits"):
            resources["requests"] = {**limits, **resources.get("requests", {})}
        _fill(container, {"terminationMessagePath": "/dev/termination-log"})
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _pod(content: Object) -> None:
    _pod_spec(content.setdefault("spec", {}))
    content.setdefault("status", {"phase": "Pending", "qosClass": qos_class(content)})


def qos_class(pod: Object) -> str:
    """Return the pod's quality of service."""
    guaranteed, best_effort = True, True
    for container in pod["spec"].get("containers", ()):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        best_effort = best_effort and not requests and not limits
        for name in ("cpu", "memory"):
            guaranteed = guaranteed and name in limits and requests.get(name) == limits[name]
    if best_effort:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _workload(content: Object) -> None:
    spec = content.setdefault("spec", {})
    _fill(spec, {"replicas": 1})
    _pod_spec(spec.setdefault("template", {}).setdefault("spec", {}))


def _deployment(content: Object) -> None:
    _workload(content)
    strategy = {"maxSurge": "25%", "maxUnavailable": "25%"}
    _fill(
        content["spec"],
        {
            "strategy": {"type": "RollingUpdate", "rollingUpdate": strategy},
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
        },
    )


def _hpa(content: Object) -> None:
    spec = content.setdefault("spec", {})
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    _fill(spec, {"minReplicas": 1})
    if not spec.get("metrics"):
        spec["metrics"] = [{"type": "Resource", "resource": cpu}]
    content.setdefault("status", {"desiredReplicas": 0, "currentMetrics": None})
    for direction, rules in (spec.get("behavior") or {}).items():
        _fill(rules, _BEHAVIOR[direction])


_UP_POLICIES = [
    {"type": "Pods", "value": 4, "periodSeconds": 15},
    {"type": "Percent", "value": 100, "periodSeconds": 15},
]
_BEHAVIOR: dict[str, dict[str, Any]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": _UP_POLICIES,
    },
    "scaleDown": {
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}


def _service(content: Object) -> None:
    spec = content.setdefault("spec", {})
    _fill(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
    for port in spec.get("ports", ()):
        _fill(port, {"protocol": "TCP", "targetPort": port.get("port")})
    content.setdefault("status", {"loadBalancer": {}})


def _namespace(content: Object) -> None:
    content.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    content.setdefault("status", {"phase": "Active"})
    labels = content["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = content["metadata"]["name"]


def _secret(content: Object) -> None:
    content.setdefault("type", "Opaque")
    for key, text in (content.pop("stringData", None) or {}).items():
        content.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


_DEFAULTS: dict[tuple[str, str], Callable[[Object], None]] = {
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "ReplicationController"): _workload,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _workload,
    ("apps", "StatefulSet"): _workload,
    ("autoscaling", "HorizontalPodAutoscaler"): _hpa,
}
