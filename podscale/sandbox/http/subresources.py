"""The subresources that are objects of their own kind: scale, eviction, resize, token."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import Any

from podscale.core.selectors import selector as labels
from podscale.sandbox.auth import SandboxTokens
from podscale.sandbox.errors import bad_request, conflict, invalid
from podscale.sandbox.objects.objects import SandboxObjects, at, is_ready, is_true
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object, Stored
from podscale.serving.status import Cause, Details, Status, StatusError

_DISRUPTION = "DisruptionBudget"


def read_scale(resource: SandboxResource, content: Object) -> Object:
    paths = resource.scale
    if paths is None:
        raise bad_request("no scale subresource")
    metadata = content["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": at(content, paths.status) or 0}
    if shown := _selector_text(at(content, paths.selector)):
        status["selector"] = shown
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        # Go leaves out a zero.
        "spec": {"replicas": wanted} if (wanted := at(content, paths.spec)) else {},
        "status": status,
    }


def write_scale(
    objects: SandboxObjects, resource: SandboxResource, namespace: str, name: str, scale: Object
) -> Stored:
    """Set the replicas an object wants, from a ``Scale``; returns the object."""
    paths = resource.scale
    if paths is None:
        raise bad_request("no scale subresource")
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        causes = [
            ("spec.replicas", f"Invalid value: {replicas}: must be greater than or equal to 0")
        ]
        raise invalid("Scale", "autoscaling", name, causes)
    old = objects.stored(resource, namespace, name)
    revision = (scale.get("metadata") or {}).get("resourceVersion")
    if revision and revision != str(old.revision):
        raise conflict(resource.name, name)
    content = deepcopy(old.object)
    target = content
    *parents, last = paths.spec.split(".")
    for part in parents:
        target = target.setdefault(part, {})
    target[last] = replicas
    return objects.update(resource, namespace, name, content)


def _selector_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return ""
    if "matchLabels" in value or "matchExpressions" in value:
        return str(labels.from_wire(value))
    return str(labels.from_labels(value))  # a ReplicationController's plain map


def evict(objects: SandboxObjects, namespace: str, name: str, eviction: Object) -> Object:
    """Delete a pod if its PodDisruptionBudgets allow; raises ``StatusError`` 429 otherwise."""
    pod = objects.get("pods", namespace, name)
    options = dict(eviction.get("deleteOptions") or {})
    if not _counts(pod):
        objects.delete("pods", namespace, name, options=options)
        return _success()
    budgets = [
        budget
        for budget in objects.list("poddisruptionbudgets", namespace)
        if labels.from_wire(budget["spec"].get("selector")).matches(
            pod["metadata"].get("labels") or {}
        )
    ]
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource "
            "does not support."
        )
        raise StatusError(Status(message=message, reason="InternalError", code=500))
    for budget in budgets:
        _spend(objects, budget, pod)
    if not options.get("dryRun"):
        objects.delete("pods", namespace, name, options=options)
    return _success()


def _counts(pod: Object) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed", "Pending"):
        return False
    return not pod["metadata"].get("deletionTimestamp")


def _spend(objects: SandboxObjects, budget: Object, pod: Object) -> None:
    name, namespace = budget["metadata"]["name"], budget["metadata"]["namespace"]
    status = allowance(objects, budget)
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    if not is_true(pod, "Ready") and (
        policy == "AlwaysAllow" or status["currentHealthy"] >= status["desiredHealthy"]
    ):
        return
    if status["disruptionsAllowed"] > 0:
        left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        objects.update(
            "poddisruptionbudgets", namespace, name, {**budget, "status": left}, "status"
        )
        return
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    explained = (
        f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods "
        f"and has {status['currentHealthy']} currently"
    )
    details = Details(causes=(Cause(_DISRUPTION, explained),))
    raise StatusError(Status(message=message, reason="TooManyRequests", details=details, code=429))


def allowance(objects: SandboxObjects, budget: Object) -> dict[str, Any]:
    """Return a budget's status as the disruption controller would count it now.

    Its bounds are numbers: percentages are not served.
    """
    spec, namespace = budget["spec"], budget["metadata"]["namespace"]
    pods = [
        pod
        for pod in objects.list("pods", namespace, labels.from_wire(spec.get("selector")))
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
    ]
    healthy = sum(map(is_ready, pods))
    expected = len(pods)
    desired = spec.get("minAvailable", 1)
    if "maxUnavailable" in spec:
        expected = _controlled(objects, pods) or expected
        desired = max(expected - spec["maxUnavailable"], 0)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": max(healthy - desired, 0) if pods else 0,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }


def _controlled(objects: SandboxObjects, pods: list[Object]) -> int:
    """Return how many pods the controllers of ``pods`` want."""
    owners = {
        owner["uid"]: (owner["kind"], pod["metadata"]["namespace"], owner["name"])
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences") or ()
        if owner.get("controller")
    }
    return sum(at(objects.find(*owner) or {}, "spec.replicas") or 0 for owner in owners.values())


def _success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def resized(pod: Object, body: Object) -> Object:
    """Return the pod with the container resources of ``body``: all that resize may change."""
    wanted = {
        c.get("name"): c.get("resources") for c in (body.get("spec") or {}).get("containers", ())
    }
    spec = dict(pod["spec"])
    spec["containers"] = [
        {**container, "resources": wanted.get(container["name"]) or container.get("resources", {})}
        for container in spec.get("containers", ())
    ]
    for container in spec["containers"]:
        resources = container["resources"]
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        if not set(requests) <= {"cpu", "memory"} or not set(limits) <= {"cpu", "memory"}:
            causes = [("spec", "Forbidden: only cpu and memory resources are mutable")]
            raise invalid("Pod", "", pod["metadata"]["name"], causes)
    metadata = body.get("metadata") or {}
    given = {**pod, "spec": spec}
    if revision := metadata.get("resourceVersion"):
        given["metadata"] = {**pod["metadata"], "resourceVersion": revision}
    return given


def request_token(tokens: SandboxTokens, namespace: str, name: str, body: Object) -> Object:
    """Return the ``TokenRequest`` with a token of the ServiceAccount."""
    spec = body.get("spec") or {}
    expires = datetime.now(UTC) + timedelta(seconds=spec.get("expirationSeconds") or 3600)
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
        "status": {
            "token": tokens.issue_service_account(namespace, name),
            "expirationTimestamp": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
    }
