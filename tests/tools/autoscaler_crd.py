"""Writes the CRD of PodAutoscaler: the API server's own schema of HPA v2, without references.

    python -m tests.tools.autoscaler_crd

starts a control plane, reads ``/openapi/v3/apis/autoscaling/v2`` and writes
``config/crds/podautoscaler.yaml``. Run it when the Kubernetes version of the tools changes.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.plane import Plane

ROOT = Path(__file__).parent.parent.parent
TARGET = ROOT / "config/crds/podautoscaler.yaml"
_ROOT_SCHEMA = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
# What a structural schema may carry over.
_KEPT = (
    "type", "format", "description", "required", "enum", "minimum", "maximum",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
)  # fmt: skip
_HEADER = """\
# Written by `python -m tests.tools.autoscaler_crd` from the API server's schema of HPA v2.
"""


def flattened(name: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema ``name`` with every reference replaced by what it refers to."""
    if name == _QUANTITY:
        return {
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
            r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        }
    return _inlined(schemas[name], schemas)


def _inlined(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    references = [each["$ref"] for each in (schema, *schema.get("allOf", ())) if "$ref" in each]
    if references:
        found = flattened(references[0].rpartition("/")[2], schemas)
        if "description" in schema:
            found["description"] = schema["description"]
        return found
    found = {key: schema[key] for key in _KEPT if key in schema}
    if "properties" in schema:
        found["properties"] = {
            key: _inlined(each, schemas) for key, each in schema["properties"].items()
        }
    if "items" in schema:
        found["items"] = _inlined(schema["items"], schemas)
    if isinstance(schema.get("additionalProperties"), Mapping):
        found["additionalProperties"] = _inlined(schema["additionalProperties"], schemas)
    return found


def crd(schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the CustomResourceDefinition."""
    properties = schemas[_ROOT_SCHEMA]["properties"]
    spec, status = (_inlined(properties[part], schemas) for part in ("spec", "status"))
    # A CRD's status is validated whole at every write; the in-tree type asks for two
    # fields that a merge patch of the first status may come without.
    status.pop("required", None)
    spec["properties"]["minReplicas"]["minimum"] = 0
    spec["properties"]["maxReplicas"]["minimum"] = 1
    schema = {
        "type": "object",
        "description": "Scales like a HorizontalPodAutoscaler, by podscale in mode `own`.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    columns = [
        ("Target", ".spec.scaleTargetRef.name", "string"),
        ("MinPods", ".spec.minReplicas", "integer"),
        ("MaxPods", ".spec.maxReplicas", "integer"),
        ("Replicas", ".status.currentReplicas", "integer"),
        ("Age", ".metadata.creationTimestamp", "date"),
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podautoscalers.autoscaling.podscale.io"},
        "spec": {
            "group": "autoscaling.podscale.io",
            "scope": "Namespaced",
            "names": {
                "kind": "PodAutoscaler",
                "listKind": "PodAutoscalerList",
                "plural": "podautoscalers",
                "singular": "podautoscaler",
                "shortNames": ["pa"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "jsonPath": path, "type": kind}
                        for name, path, kind in columns
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def text_of(plane: Plane) -> str:
    """Return what the file holds for the schema that this API server publishes."""
    document = plane.admin.get("/openapi/v3/apis/autoscaling/v2")
    found = crd(document["components"]["schemas"])
    return _HEADER + yaml.safe_dump(found, sort_keys=False, width=120)


def main() -> int:
    with tempfile.TemporaryDirectory() as directory, Plane(Path(directory)) as plane:
        text = text_of(plane)
    TARGET.write_text(text)
    print(f"{TARGET.relative_to(ROOT)}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
