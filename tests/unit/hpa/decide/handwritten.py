"""Hand-written HPAs, of any version."""

from typing import Any

from hpa.decide.api.reading import read, to_v2
from hpa.decide.api.spec import HPA

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def written(spec: dict[str, Any], version: str = "autoscaling/v2", **rest: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", **rest.pop("metadata", {})},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 10, **spec},
        **rest,
    }


def hpa(spec: dict[str, Any], version: str = "autoscaling/v2", **rest: Any) -> HPA:
    return read(to_v2(written(spec, version, **rest)))


def resource(**target: Any) -> dict[str, Any]:
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}
