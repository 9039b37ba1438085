"""OpenAPI v3 of the metrics APIs: definitions and paths."""

import re
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
_METRIC: Schema = {"type": "object", "properties": {"name": _STRING, "selector": _SELECTOR}}
_USAGE: Schema = {"type": "object", "additionalProperties": _QUANTITY}
_CONTAINER: Schema = {"type": "object", "properties": {"name": _STRING, "usage": _USAGE}}
_SAMPLE: Schema = {"metadata": _OBJECT, "timestamp": _TIME, "window": _STRING}


def _metric_value(named: Schema) -> Schema:
    at: Schema = {"timestamp": _TIME, "windowSeconds": _WINDOW, "value": _QUANTITY}
    return {"describedObject": _REFERENCE, **named, **at}


# By group and version: the properties of each kind, beside apiVersion and kind.
_KINDS: Mapping[tuple[str, str], Mapping[str, Schema]] = {
    ("custom.metrics.k8s.io", "v1beta1"): {
        "MetricValue": _metric_value({"metricName": _STRING, "selector": _SELECTOR})
    },
    ("custom.metrics.k8s.io", "v1beta2"): {"MetricValue": _metric_value({"metric": _METRIC})},
    ("external.metrics.k8s.io", "v1beta1"): {
        "ExternalMetricValue": {
            "metricName": _STRING,
            "metricLabels": {"type": "object", "additionalProperties": _STRING},
            "timestamp": _TIME,
            "window": _WINDOW,
            "value": _QUANTITY,
        }
    },
    ("metrics.k8s.io", "v1beta1"): {
        "PodMetrics": {**_SAMPLE, "containers": {"type": "array", "items": _CONTAINER}},
        "NodeMetrics": {**_SAMPLE, "usage": _USAGE},
    },
}
# By group: what each path returns, and of which kind that is.
_PATHS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "custom.metrics.k8s.io": {
        "/namespaces/{namespace}/{resource}/{name}/{metric}": (
            "metric of one object, or of all of a namespace (name *)", "MetricValueList",
        ),
        "/namespaces/{namespace}/metrics/{metric}": ("metric of a namespace", "MetricValueList"),
        "/{resource}/{name}/{metric}": (
            "metric of an object without namespace", "MetricValueList",
        ),
    },
    "external.metrics.k8s.io": {
        "/namespaces/{namespace}/{metric}": (
            "values of an external metric", "ExternalMetricValueList",
        ),
    },
    "metrics.k8s.io": {
        "/nodes": ("usage of nodes", "NodeMetricsList"),
        "/nodes/{name}": ("usage of a node", "NodeMetrics"),
        "/pods": ("usage of pods", "PodMetricsList"),
        "/namespaces/{namespace}/pods": ("usage of pods", "PodMetricsList"),
        "/namespaces/{namespace}/pods/{name}": ("usage of a pod", "PodMetrics"),
    },
}  # fmt: skip


class Documented:
    """The part of an ``ApiGroup`` that describes it."""

    name: str

    def schemas(self, version: str) -> Mapping[str, Schema]:
        return definitions(self.name, version)

    def paths(self, version: str) -> Mapping[str, Schema]:
        return paths(self.name, version)


@cache
def definitions(group: str, version: str) -> dict[str, Schema]:
    """Return the definitions of a group: of each kind, and of the list of it."""
    out: dict[str, Schema] = {}
    for kind, properties in _KINDS[group, version].items():
        item = {"$ref": f"#/components/schemas/{_definition(group, version, kind)}"}
        listed = {"metadata": _OBJECT, "items": {"type": "array", "items": item}}
        for name, body in ((kind, properties), (f"{kind}List", listed)):
            out[_definition(group, version, name)] = {
                "type": "object",
                "properties": {"apiVersion": _STRING, "kind": _STRING, **body},
                "x-kubernetes-group-version-kind": [
                    {"group": group, "kind": name, "version": version}
                ],
            }
    return out


@cache
def paths(group: str, version: str) -> dict[str, Schema]:
    """Return the paths of a group, below its version."""
    return {path: _get(path, group, version, *returned) for path, returned in _PATHS[group].items()}


def _get(path: str, group: str, version: str, summary: str, kind: str) -> Schema:
    reference = {"$ref": f"#/components/schemas/{_definition(group, version, kind)}"}
    shown = {"group": group, "version": version, "kind": kind.removesuffix("List")}
    return {
        "get": {
            "description": summary,
            "x-kubernetes-action": "list" if kind.endswith("List") else "get",
            # By this `kubectl explain` finds the definition of a resource.
            "x-kubernetes-group-version-kind": shown,
            "responses": {
                "200": {"description": "OK", "content": {"application/json": {"schema": reference}}}
            },
        },
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", path)
        ],
    }


def _definition(group: str, version: str, kind: str) -> str:
    package = group.removesuffix(".k8s.io").replace(".", "_")
    return f"io.k8s.metrics.pkg.apis.{package}.{version}.{kind}"
