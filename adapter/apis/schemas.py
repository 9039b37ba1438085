"""OpenAPI v3 of the metrics APIs: definitions and paths."""

from collections.abc import Mapping
from functools import cache
from typing import Any

Schema = Mapping[str, Any]

_STRING: Schema = {"type": "string", "default": ""}
_TIME: Schema = {"type": "string", "format": "date-time"}
_QUANTITY: Schema = {"type": "string"}
_OBJECT: Schema = {"type": "object"}
_SELECTOR: Schema = {"type": "object", "description": "a LabelSelector, or null"}
_WINDOW: Schema = {"type": "integer", "format": "int64"}
_REFERENCE: Schema = {
    "type": "object",
    "properties": dict.fromkeys(("kind", "namespace", "name", "apiVersion"), _STRING),
}


def _kinds(prefix: str, kinds: Mapping[str, Schema], group: str, version: str) -> dict[str, Schema]:
    out: dict[str, Schema] = {}
    for kind, properties in kinds.items():
        item = {"$ref": f"#/components/schemas/{prefix}.{kind}"}
        for name, body in (
            (kind, properties),
            (f"{kind}List", {
                "metadata": _OBJECT,
                "items": {"type": "array", "items": item},
            }),
        ):  # fmt: skip
            out[f"{prefix}.{name}"] = {
                "type": "object",
                "properties": {"apiVersion": _STRING, "kind": _STRING, **body},
                "x-kubernetes-group-version-kind": [
                    {"group": group, "kind": name, "version": version}
                ],
            }
    return out


@cache
def custom(version: str) -> dict[str, Schema]:
    """Return the definitions of custom.metrics.k8s.io."""
    named: Schema = (
        {"metricName": _STRING, "selector": _SELECTOR}
        if version == "v1beta1"
        else {"metric": {"type": "object", "properties": {"name": _STRING, "selector": _SELECTOR}}}
    )
    value = {
        "describedObject": _REFERENCE,
        **named,
        "timestamp": _TIME,
        "windowSeconds": _WINDOW,
        "value": _QUANTITY,
    }
    prefix = f"io.k8s.metrics.pkg.apis.custom_metrics.{version}"
    return _kinds(prefix, {"MetricValue": value}, "custom.metrics.k8s.io", version)


@cache
def external() -> dict[str, Schema]:
    """Return the definitions of external.metrics.k8s.io."""
    value = {
        "metricName": _STRING,
        "metricLabels": {"type": "object", "additionalProperties": _STRING},
        "timestamp": _TIME,
        "window": _WINDOW,
        "value": _QUANTITY,
    }
    prefix = "io.k8s.metrics.pkg.apis.external_metrics.v1beta1"
    kinds = {"ExternalMetricValue": value}
    return _kinds(prefix, kinds, "external.metrics.k8s.io", "v1beta1")


@cache
def resource() -> dict[str, Schema]:
    """Return the definitions of metrics.k8s.io."""
    usage = {"type": "object", "additionalProperties": _QUANTITY}
    container = {"type": "object", "properties": {"name": _STRING, "usage": usage}}
    common = {"metadata": _OBJECT, "timestamp": _TIME, "window": _STRING}
    kinds: Mapping[str, Schema] = {
        "PodMetrics": {**common, "containers": {"type": "array", "items": container}},
        "NodeMetrics": {**common, "usage": usage},
    }
    return _kinds("io.k8s.metrics.pkg.apis.metrics.v1beta1", kinds, "metrics.k8s.io", "v1beta1")


def _get(summary: str, prefix: str, kind: str, *parameters: str) -> Schema:
    reference = {"$ref": f"#/components/schemas/{prefix}.{kind}"}
    *_, package, version = prefix.split(".")
    shown = {"group": f"{package.replace('_metrics', '.metrics')}.k8s.io", "version": version}
    return {
        "get": {
            "description": summary,
            "x-kubernetes-action": "list" if kind.endswith("List") else "get",
            # By this `kubectl explain` finds the definition of a resource.
            "x-kubernetes-group-version-kind": {**shown, "kind": kind.removesuffix("List")},
            "responses": {
                "200": {
                    "description": "OK",
                    "content": {"application/json": {"schema": reference}},
                }
            },
        },
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in parameters
        ],
    }


@cache
def custom_paths(version: str) -> dict[str, Schema]:
    """Return the paths of custom.metrics.k8s.io."""
    prefix = f"io.k8s.metrics.pkg.apis.custom_metrics.{version}"
    one = ("MetricValueList",)
    return {
        "/namespaces/{namespace}/{resource}/{name}/{metric}": _get(
            "metric of one object, or of all of a namespace (name *)",
            prefix, *one, "namespace", "resource", "name", "metric",
        ),
        "/namespaces/{namespace}/metrics/{metric}": _get(
            "metric of a namespace", prefix, *one, "namespace", "metric"
        ),
        "/{resource}/{name}/{metric}": _get(
            "metric of an object without namespace", prefix, *one, "resource", "name", "metric"
        ),
    }  # fmt: skip


@cache
def external_paths() -> dict[str, Schema]:
    """Return the paths of external.metrics.k8s.io."""
    prefix = "io.k8s.metrics.pkg.apis.external_metrics.v1beta1"
    return {
        "/namespaces/{namespace}/{metric}": _get(
            "values of an external metric", prefix, "ExternalMetricValueList", "namespace", "metric"
        )
    }


@cache
def resource_paths() -> dict[str, Schema]:
    """Return the paths of metrics.k8s.io."""
    prefix = "io.k8s.metrics.pkg.apis.metrics.v1beta1"
    return {
        "/nodes": _get("usage of nodes", prefix, "NodeMetricsList"),
        "/nodes/{name}": _get("usage of a node", prefix, "NodeMetrics", "name"),
        "/pods": _get("usage of pods", prefix, "PodMetricsList"),
        "/namespaces/{namespace}/pods": _get(
            "usage of pods", prefix, "PodMetricsList", "namespace"
        ),
        "/namespaces/{namespace}/pods/{name}": _get(
            "usage of a pod", prefix, "PodMetrics", "namespace", "name"
        ),
    }
