"""What the sandbox must answer exactly as kube-apiserver: one script, played on both.

Each step is a request and the parts of its answer that clients build on. The cluster ring
plays the script on the real plane and on the sandbox and compares, so the two cannot drift.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.tools.programs import OLDER, release

Send = Callable[[str, str, object, Mapping[str, str]], tuple[int, Any]]
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
_STATUS = ("status", "reason", "message", "code")


@dataclass(frozen=True)
class Step:
    """One request; ``pick`` names what is compared beside the status."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pick: Sequence[str] = ()
    of_status: Sequence[str] = _STATUS  # what is compared of a Status
    echo: Callable[[Any], Any] | None = None  # makes the body from the last answer


def play(send: Send, namespace: str) -> list[tuple[str, int, dict[str, Any]]]:
    """Return per step what was asked, the status, and the picked parts (of a Status: all)."""
    transcript, last = [], None
    for step in STEPS:
        body = step.echo(last) if step.echo else step.body
        path = step.path.replace("NS", namespace)
        status, answer = send(step.method, path, body, step.headers)
        is_status = isinstance(answer, dict) and answer.get("kind") == "Status"
        picked = {name: at(answer, name) for name in (step.of_status if is_status else step.pick)}
        transcript.append((f"{step.method} {step.path}", status, _masked(picked, namespace)))
        last = answer
    return transcript


def at(content: Any, path: str) -> Any:
    """Return what lies at a dotted path; numbers index lists; None where nothing is."""
    for part in path.split("."):
        if isinstance(content, list):
            content = content[int(part)] if int(part) < len(content) else None
        elif isinstance(content, dict):
            content = content.get(part)
        else:
            return None
    return content


def _masked(picked: dict[str, Any], namespace: str) -> dict[str, Any]:
    def mask(value: Any) -> Any:
        return value.replace(namespace, "NS") if isinstance(value, str) else value

    return {name: mask(value) for name, value in picked.items()}


def _with(**changes: Any) -> Callable[[Any], Any]:
    def change(answer: Any) -> Any:
        return {**answer, **changes}

    return change


def _stale(answer: Any) -> Any:
    return {**answer, "metadata": {**answer["metadata"], "resourceVersion": "1"}}


MAPS = "/api/v1/namespaces/NS/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/NS/deployments"
HPAS = "/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers"
PODS = "/api/v1/namespaces/NS/pods"
BUDGETS = "/apis/policy/v1/namespaces/NS/poddisruptionbudgets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/NS/leases"
GENERATION = "metadata.generation"
HPA_GENERATION = [] if release() == OLDER else [GENERATION]  # not counted before 1.37
CONTAINER = {"name": "c", "image": "i"}
LABELLED = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [CONTAINER]}}
DEPLOYMENT = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "template": LABELLED,
    },
}
HPA = {
    "kind": "HorizontalPodAutoscaler",
    "apiVersion": "autoscaling/v2",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nope"},
        "maxReplicas": 5,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 7}, "scaleUp": {}},
    },
}
# No node has this label: the pod stays as it is created.
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "labels": {"app": "p"}},
    "spec": {
        "nodeSelector": {"no": "where"},
        "containers": [
            {**CONTAINER, "resources": {"limits": {"cpu": "1"}, "requests": {"memory": "1Mi"}}}
        ],
    },
}
_DIRECTION = "spec.behavior"

STEPS: tuple[Step, ...] = (
    # Objects, names, conflicts.
    Step("GET", f"{MAPS}/none"),
    Step("POST", MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}, pick=["data.x", "kind"]),
    Step("POST", MAPS, {"metadata": {"name": "a"}}),
    Step("POST", MAPS, {"metadata": {"name": "a", "namespace": "other"}}),
    Step("POST", "/api/v1/namespaces/nowhere-at-all/configmaps", {"metadata": {"name": "a"}}),
    Step("GET", f"{MAPS}/a", pick=["kind", "apiVersion", GENERATION]),
    Step("PUT", f"{MAPS}/a", echo=_with(data={"x": "2"}), pick=["data.x"]),
    Step("PUT", f"{MAPS}/a", echo=_stale),
    Step("PUT", f"{MAPS}/b", {"metadata": {"name": "a"}}),
    Step("PATCH", f"{MAPS}/a", {"data": {"y": "3"}}, MERGE, ["data.x", "data.y"]),
    Step("PATCH", f"{MAPS}/a", {"data": {"y": None}}, STRATEGIC, ["data.x", "data.y"]),
    Step(
        "PATCH",
        f"{MAPS}/a",
        [{"op": "add", "path": "/data/z", "value": "4"}],
        JSON_PATCH,
        ["data.z"],
    ),
    Step("PATCH", f"{MAPS}/a", {"metadata": {"resourceVersion": "1"}, "data": {"q": "1"}}, MERGE),
    Step("PATCH", f"{MAPS}/none", {"data": {}}, MERGE),
    Step("GET", f"{MAPS}?labelSelector=a%20b"),
    Step("GET", f"{MAPS}?fieldSelector=data.x%3D1"),
    Step(
        "GET",
        f"{MAPS}?fieldSelector=metadata.name%3Da",
        pick=["kind", "apiVersion", "items.0.metadata.name", "items.0.kind", "items.1"],
    ),
    Step("GET", f"{MAPS}?limit=1&labelSelector=no%3Dthing", pick=["items", "metadata.continue"]),
    Step("GET", f"{MAPS}?continue=nonsense", of_status=("reason", "code")),
    Step("DELETE", f"{MAPS}/a", pick=["kind"]),
    Step("DELETE", f"{MAPS}/a"),
    Step("GET", "/api/v1/namespaces/NS/nothings"),
    Step("GET", "/apis/nope.example.com/v1/things"),
    Step("POST", f"{MAPS}/a", {}),
    Step("PATCH", MAPS, {}, MERGE),
    Step(
        "PATCH",
        f"{PODS}/none",
        {},
        {"Content-Type": "text/plain"},
        of_status=("reason", "code"),
    ),
    Step("GET", f"{PODS}?fieldSelector=spec.x%3D1"),
    Step("GET", "/api/v1/namespaces/NS/namespaces/NS"),
    Step("POST", MAPS, {"metadata": {"name": "Upper_case"}}),
    Step("POST", MAPS, {"metadata": {"generateName": "gen-"}}, pick=["metadata.generateName"]),
    Step(
        "POST",
        MAPS,
        {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}},
        of_status=("reason", "code"),
    ),
    Step("POST", MAPS, {"metadata": {"name": "dry"}}, {}, ["metadata.name"]),
    Step(
        "POST",
        MAPS,
        {"metadata": {"name": "held", "finalizers": ["example.com/x"]}},
        pick=["metadata.finalizers"],
    ),
    Step("DELETE", f"{MAPS}/held", pick=["kind", "metadata.finalizers"]),
    Step("GET", f"{MAPS}/held", pick=["metadata.deletionGracePeriodSeconds"]),
    Step("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, MERGE, ["kind"]),
    Step("GET", f"{MAPS}/held"),
    Step(
        "DELETE",
        f"{MAPS}/dry",
        {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}},
        of_status=("reason", "code"),
    ),
    Step("DELETE", f"{MAPS}?labelSelector=no%3Dthing", pick=["kind", "items"]),
    # Generations, status and scale.
    Step("POST", DEPLOYMENTS, DEPLOYMENT, pick=["spec.replicas", GENERATION]),
    Step(
        "GET",
        f"{DEPLOYMENTS}/web/scale",
        pick=["kind", "apiVersion", "spec", "status.selector", "metadata.name"],
    ),
    Step("PUT", f"{DEPLOYMENTS}/web/scale", echo=_stale),
    Step(
        "PATCH",
        f"{DEPLOYMENTS}/web/scale",
        {"spec": {"replicas": -1}},
        MERGE,
    ),
    Step(
        "PATCH",
        f"{DEPLOYMENTS}/web",
        {"spec": {"paused": True}},
        STRATEGIC,
        ["spec.paused", GENERATION],
    ),
    Step("PATCH", f"{DEPLOYMENTS}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE, [GENERATION]),
    Step("GET", f"{DEPLOYMENTS}/none/scale"),
    # Autoscalers: defaults, status apart from spec.
    Step(
        "POST",
        HPAS,
        HPA,
        pick=[
            "spec.minReplicas",
            "spec.metrics",
            f"{_DIRECTION}.scaleUp",
            f"{_DIRECTION}.scaleDown",
            *HPA_GENERATION,
            "status",
        ],
    ),
    Step(
        "PATCH",
        f"{HPAS}/web/status",
        {"status": {"currentReplicas": 3, "desiredReplicas": 4}, "spec": {"maxReplicas": 9}},
        MERGE,
        [
            "spec.maxReplicas",
            "status.currentReplicas",
            "status.desiredReplicas",
            *HPA_GENERATION,
        ],
    ),
    Step("PATCH", f"{HPAS}/web", {"metadata": {"labels": {"a": "b"}}}, MERGE, HPA_GENERATION),
    Step(
        "PATCH",
        f"{HPAS}/web",
        {"spec": {"maxReplicas": 6}, "status": {"currentReplicas": 9}},
        MERGE,
        ["spec.maxReplicas", "status.currentReplicas", *HPA_GENERATION],
    ),
    Step("DELETE", f"{HPAS}/web", pick=["kind"]),
    # Pods: defaults, resize, eviction.
    Step(
        "POST",
        PODS,
        POD,
        pick=[
            "status.phase",
            "status.qosClass",
            "spec.restartPolicy",
            "spec.terminationGracePeriodSeconds",
            "spec.containers.0.resources",
        ],
    ),
    Step(
        "PATCH",
        f"{PODS}/p/resize",
        {
            "spec": {
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "500m"}}},
                ]
            }
        },
        STRATEGIC,
        ["spec.containers.0.resources"],
    ),
    Step(
        "POST",
        BUDGETS,
        {
            "metadata": {"name": "b"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
        },
        pick=[GENERATION],
    ),
    Step(
        "POST",
        f"{PODS}/p/eviction",
        {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "p"}},
    ),
    Step("GET", f"{PODS}/p"),
    Step(
        "POST",
        f"{PODS}/none/eviction",
        {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "none"}},
    ),
    # Leases keep six digits.
    Step(
        "POST",
        LEASES,
        {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00.120000Z"}},
        pick=["spec.renewTime"],
    ),
    # Who may.
    Step(
        "POST",
        "/apis/authentication.k8s.io/v1/tokenreviews",
        {"spec": {"token": "nonsense"}},
        pick=["kind", "status.authenticated"],
    ),
    Step(
        "POST",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "spec": {
                "user": "nobody",
                "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "NS"},
            }
        },
        pick=["kind", "status.allowed"],
    ),
)
