"""Who plays beside the in-tree controller: workloads and HPAs of every metric and target type.

Names say what an HPA measures and which behavior it has (``pods-average-brisk``). Targets
are such that a load of 1.0 is exactly on target, whatever is measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

REQUESTS = {"cpu": "100m", "memory": "64Mi"}
CONTAINERS = ("app", "side")
TOTAL_OVER_PODS = 3  # a total that is measured at load 1.0 feeds so many pods

# Not multiples of the sync period: an entry that lies on the edge of a window would be in or
# out by a millisecond that no log tells.
BEHAVIORS: Mapping[str, Mapping[str, Any] | None] = {
    "none": None,
    "empty": {},
    "brisk": {
        "scaleUp": {
            "stabilizationWindowSeconds": 7,
            "selectPolicy": "Min",
            "policies": [
                {"type": "Pods", "value": 2, "periodSeconds": 10},
                {"type": "Percent", "value": 60, "periodSeconds": 20},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 10,
            "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 10},
                {"type": "Percent", "value": 30, "periodSeconds": 25},
            ],
        },
    },
    "tolerant": {
        "scaleUp": {"tolerance": "0.3", "policies": [{
            "type": "Percent", "value": 200, "periodSeconds": 5,
        }]},
        "scaleDown": {"tolerance": "0.02", "stabilizationWindowSeconds": 0},
    },
    "upwards": {"scaleUp": {"stabilizationWindowSeconds": 0},
                "scaleDown": {"selectPolicy": "Disabled"}},
}  # fmt: skip


# The custom resource that has a scale; what its selector says is the script's to choose.
GIZMO_CRD: Mapping[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "gizmos.shop.example"},
    "spec": {
        "group": "shop.example",
        "scope": "Namespaced",
        "names": {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"},
        "versions": [{
            "name": "v1", "served": True, "storage": True,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": True,
            }},
            "subresources": {"status": {}, "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            }},
        }],
    },
}  # fmt: skip
# The API version and the plural of each kind that is scaled here.
KINDS: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "ReplicationController": ("v1", "replicationcontrollers"),
    "Gizmo": ("shop.example/v1", "gizmos"),
    "Sprocket": ("shop.example/v1", ""),  # nobody knows it
}

SCALES = (  # as the audit policy names them
    *(f"{each}/scale.apps" for each in ("deployments", "statefulsets", "replicasets")),
    *("replicationcontrollers/scale", "gizmos/scale.shop.example"),
)


@dataclass(frozen=True)
class Role:
    """One HPA and its target."""

    name: str
    objects: tuple[Mapping[str, Any], ...]  # the workload; none: another's, or none exists
    hpa: Mapping[str, Any]
    kind: str
    labels: Mapping[str, str]  # of the pods
    is_shared: bool = False  # another HPA scales the same workload

    @property
    def target(self) -> tuple[str, str]:
        """The plural and the name of what is scaled."""
        return KINDS[self.kind][1], self.hpa["spec"]["scaleTargetRef"]["name"]

    def path(self, namespace: str) -> str:
        """Return the path of what is scaled."""
        prefix = "/api" if self.kind == "ReplicationController" else "/apis"
        plural, name = self.target
        return f"{prefix}/{KINDS[self.kind][0]}/namespaces/{namespace}/{plural}/{name}"


def cast(namespace: str) -> list[Role]:
    """Return the HPAs, at least sixty; most have a target of their own."""
    found = []
    behaviors = list(BEHAVIORS)
    others = ("StatefulSet", "ReplicaSet", "ReplicationController", "Gizmo")
    for number, form in enumerate(form for form in FORMS for _ in range(3)):
        kind = others[number // 4 % 4] if number % 4 == 3 else "Deployment"
        behavior = behaviors[number % len(behaviors)]
        found.append(
            role(namespace, f"{form}-{behavior}", (form,), behavior, kind=kind, style=number)
        )
    for number, forms in enumerate(
        (
            ("cpu-utilization", "memory-average", "pods-average"),
            ("external-average", "pods-average"),
            ("object-value", "external-value", "cpu-average"),
        )
    ):
        found.append(
            role(namespace, f"several-{number}", forms, behaviors[number], style=number + 1)
        )
    # "empty" and "none" are reached less often by the turns: these go down to zero as well.
    found.append(role(namespace, "zero-external", ("external-average",), "tolerant", least=0))
    found.append(role(namespace, "zero-legacy", ("object-average",), "none", least=0))
    # Two workloads with one label, two HPAs on one workload, and a selector with a wide mesh,
    # under which a pod of another one comes and goes.
    shared = {"app": "shared"}
    found += [
        role(namespace, f"overlap-{each}", ("cpu-average",), "none", labels=shared)
        for each in ("a", "b")
    ]
    twin = role(namespace, "twin-a", ("pods-average",), "none")
    other = role(namespace, "twin-b", ("pods-average",), "none", target=twin)
    found += [replace(twin, is_shared=True), replace(other, is_shared=True)]
    mesh = {"app": "mesh", "mesh": "wide"}
    found.append(role(namespace, MESH, ("external-value",), "none", labels=mesh, style=4))
    absent = role(namespace, "absent", ("cpu-utilization",), "none")
    unknown = role(namespace, "unknown-kind", ("cpu-utilization",), "none", kind="Sprocket")
    return [*found, replace(absent, objects=()), replace(unknown, objects=())]


MESH = "mesh"  # selects every pod that is labelled mesh=wide


def role(
    namespace: str,
    name: str,
    forms: tuple[str, ...],
    behavior: str,
    *,
    least: int = 1,
    kind: str = "Deployment",
    labels: Mapping[str, str] | None = None,
    style: int = 0,
    target: Role | None = None,
) -> Role:
    """Return one HPA over a workload of the same name, or over another role's."""
    aim = target.name if target else name
    labels = labels or {"app": aim, "tier": "web", "track": "stable"}
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": KINDS[kind][0], "kind": kind, "name": aim},
        "minReplicas": least,
        "maxReplicas": 7,
        "metrics": [FORMS[form](namespace, name) for form in forms],
    }
    rules = BEHAVIORS[behavior]
    if rules is not None:
        spec["behavior"] = rules
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    objects = () if target else (workload(namespace, name, kind, labels, style),)
    return Role(name, objects, hpa, kind, labels)


def _selector(labels: Mapping[str, str], style: int) -> dict[str, Any]:
    """Return one of the ways in which a selector can be written."""
    app = labels["app"]
    among = {"key": "app", "operator": "In", "values": [app, f"{app}-old"]}
    return (
        {"matchLabels": {"app": app}},
        {"matchLabels": dict(labels)},
        {
            "matchLabels": {"app": app},
            "matchExpressions": [{"key": "track", "operator": "NotIn", "values": ["x", "canary"]}],
        },
        {"matchExpressions": [among, {"key": "app", "operator": "Exists"}]},
        {"matchLabels": {key: value for key, value in labels.items() if key != "app"}},
    )[style if "mesh" in labels else style % 4]


def workload(
    namespace: str, name: str, kind: str, labels: Mapping[str, str], style: int = 0
) -> dict[str, Any]:
    """Return a workload of two pods; a custom resource has whatever pods there are."""
    spec: dict[str, Any] = {"replicas": 2}
    made = {
        "apiVersion": KINDS[kind][0],
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    if kind == "Gizmo":
        return made
    spec["template"] = {"metadata": {"labels": dict(labels)}, "spec": pod_spec()}
    spec["selector"] = _selector(labels, style)
    if kind == "ReplicationController":
        spec["selector"] = dict(labels)
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return made


def pod_spec(*, requests: Mapping[str, str] = REQUESTS) -> dict[str, Any]:
    """Return the spec of every pod here."""
    return {
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": each, "image": "pretend", "resources": {"requests": dict(requests)}}
            for each in CONTAINERS
        ],
    }


def _resource(resource: str, container: str, **target: Any) -> Any:
    kind = "ContainerResource" if container else "Resource"
    source: dict[str, Any] = {"name": resource, "target": target}
    if container:
        source["container"] = container
    return lambda _ns, _name: {"type": kind, kind[0].lower() + kind[1:]: source}


def _utilization(resource: str, container: str = "") -> Any:
    return _resource(resource, container, type="Utilization", averageUtilization=50)


def _average(resource: str, amount: str, container: str = "") -> Any:
    return _resource(resource, container, type="AverageValue", averageValue=amount)


def _pods(selector: Mapping[str, Any] | None) -> Any:
    metric: dict[str, Any] = {"name": "load"}
    if selector is not None:
        metric["selector"] = selector
    target = {"type": "AverageValue", "averageValue": "1"}
    return lambda _ns, _name: {"type": "Pods", "pods": {"metric": metric, "target": target}}


def _object(target: Mapping[str, str], *, of_namespace: bool = False) -> Any:
    def spec(namespace: str, name: str) -> Any:
        if of_namespace:
            about = {"apiVersion": "v1", "kind": "Namespace", "name": namespace}
            metric: dict[str, Any] = {"name": f"depth-{name}", "selector": {}}
        else:
            about = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
            metric = {"name": "depth"}
        source = {"describedObject": about, "metric": metric, "target": dict(target)}
        return {"type": "Object", "object": source}

    return spec


def _external(target: Mapping[str, str], selector: Mapping[str, Any] | None = None) -> Any:
    def spec(_namespace: str, name: str) -> Any:
        metric: dict[str, Any] = {"name": f"queue-{name}"}
        if selector is not None:
            metric["selector"] = selector
        return {"type": "External", "external": {"metric": metric, "target": dict(target)}}

    return spec


_VALUE = {"type": "Value", "value": "10"}
_AVERAGE = {"type": "AverageValue", "averageValue": "10"}
_LABELS = {"matchLabels": {"shop": "north"}}
_LABELLED = {
    **_LABELS,
    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}],
}

FORMS: Mapping[str, Any] = {
    "cpu-utilization": _utilization("cpu"),
    "cpu-average": _average("cpu", "100m"),
    "memory-utilization": _utilization("memory"),
    "memory-average": _average("memory", "64Mi"),
    "container-cpu-utilization": _utilization("cpu", "app"),
    "container-cpu-average": _average("cpu", "50m", "app"),
    "container-memory-utilization": _utilization("memory", "app"),
    "pods-average": _pods(None),
    "pods-selected": _pods(_LABELS),
    "object-value": _object(_VALUE),
    "object-average": _object(_AVERAGE),
    "object-namespace": _object(_VALUE, of_namespace=True),
    "external-value": _external(_VALUE, _LABELLED),
    "external-average": _external(_AVERAGE),
}


def kinds(roles: list[Role]) -> Iterator[tuple[str, str]]:
    """Yield metric type and target type of every metric of the cast."""
    for each in roles:
        for metric in each.hpa["spec"]["metrics"]:
            source = metric[metric["type"][0].lower() + metric["type"][1:]]
            yield metric["type"], source["target"]["type"]
