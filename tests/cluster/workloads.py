"""Objects that the cluster tests apply again and again."""

from collections.abc import Mapping
from typing import Any


def deployment(
    name: str,
    namespace: str,
    *,
    replicas: int = 1,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    containers: tuple[str, ...] = ("app",),
) -> dict[str, Any]:
    """Return a Deployment whose pods carry ``app=<name>``; each container has the same resources.

    ``replicas=0`` leaves the field out, as one does when an autoscaler owns it.
    """
    resources = {"requests": dict(requests or {"cpu": "100m", "memory": "64Mi"})}
    if limits:
        resources["limits"] = dict(limits)
    labels = {"app": name}
    spec: dict[str, Any] = {
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                # kwok answers no probe and keeps no grace: pods go as soon as they are deleted.
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {"name": container, "image": "pretend", "resources": resources}
                    for container in containers
                ],
            },
        },
    }
    if replicas:
        spec["replicas"] = replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    }


def horizontal_pod_autoscaler(
    name: str,
    namespace: str,
    *metrics: Mapping[str, Any],
    least: int = 1,
    most: int = 10,
    behavior: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return an autoscaling/v2 HPA for the Deployment of the same name."""
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [dict(metric) for metric in metrics],
    }
    if behavior:
        spec["behavior"] = dict(behavior)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
