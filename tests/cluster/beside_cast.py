"""Who plays beside the in-tree controller: workloads and HPAs of every metric and target type.

Names say what an HPA measures and which behavior it has (``pods-average-brisk``). Targets
are such that a load of 1.0 is exactly on target, whatever is measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Role:
    """One HPA and its target."""

    name: str
    objects: tuple[Mapping[str, Any], ...]  # the workload; none: the target does not exist
    hpa: Mapping[str, Any]
    plural: str = "deployments"


def cast(namespace: str) -> list[Role]:
    """Return the HPAs, at least forty, each with a target of its own."""
    found = []
    behaviors = list(BEHAVIORS)
    turn = 0
    for form in FORMS:
        for _ in range(3):
            behavior = behaviors[turn % len(behaviors)]
            turn += 1
            found.append(role(namespace, f"{form}-{behavior}", (form,), behavior))
    for number, forms in enumerate(
        (
            ("cpu-utilization", "memory-average", "pods-average"),
            ("external-average", "pods-average"),
            ("object-value", "external-value", "cpu-average"),
        )
    ):
        found.append(role(namespace, f"several-{number}", forms, behaviors[number]))
    # "empty" and "none" are reached less often by the turns: these go down to zero as well.
    found.append(role(namespace, "zero-external", ("external-average",), "tolerant", least=0))
    found.append(role(namespace, "zero-legacy", ("object-average",), "none", least=0))
    found.append(role(namespace, "set-cpu", ("cpu-utilization",), "brisk", kind="StatefulSet"))
    absent = role(namespace, "absent", ("cpu-utilization",), "none")
    found.append(Role(absent.name, (), absent.hpa))
    return found


def role(
    namespace: str,
    name: str,
    forms: tuple[str, ...],
    behavior: str,
    *,
    least: int = 1,
    kind: str = "Deployment",
) -> Role:
    """Return one HPA over a workload of the same name."""
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
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
    plural = "statefulsets" if kind == "StatefulSet" else "deployments"
    return Role(name, (workload(namespace, name, kind),), hpa, plural)


def workload(namespace: str, name: str, kind: str) -> dict[str, Any]:
    """Return a workload of two pods."""
    labels = {"app": name}
    spec: dict[str, Any] = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


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
