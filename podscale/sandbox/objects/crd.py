"""Custom resources: what a CustomResourceDefinition makes of its objects.

Structural schemas are followed in part: defaults are filled in and unknown fields dropped;
values are not checked.
"""

from copy import deepcopy
from typing import Any

from podscale.sandbox.objects.resources import Column, SandboxResource, SandboxResources, ScalePaths
from podscale.sandbox.objects.storage import Object

_TYPE_META = ("apiVersion", "kind", "metadata")


def accept(registry: SandboxResources, definition: Object, now: str) -> Object:
    """Serve what ``definition`` describes, and return it with the status of an accepted CRD."""
    spec = definition["spec"]
    names = spec["names"]
    registry.add(_resource(spec))
    status = {
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": now,
            }
            for kind, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
        "acceptedNames": names,
        "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
    }
    return {**definition, "status": definition.get("status") or status}


def _resource(spec: dict[str, Any]) -> SandboxResource:
    names = spec["names"]
    served = [version for version in spec["versions"] if version.get("served", True)]
    stored = next((v for v in spec["versions"] if v.get("storage")), served[0])
    subresources = stored.get("subresources") or {}
    scale = subresources.get("scale")
    return SandboxResource(
        spec["group"],
        stored["name"],
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        has_generation=True,
        scale=ScalePaths(
            scale["specReplicasPath"].lstrip("."),
            scale["statusReplicasPath"].lstrip("."),
            scale.get("labelSelectorPath", "").lstrip("."),
        )
        if scale
        else None,
        is_custom=True,
        versions=tuple(version["name"] for version in served),
        schemas={
            version["name"]: (version.get("schema") or {}).get("openAPIV3Schema") or {}
            for version in served
        },
        columns={
            version["name"]: tuple(
                Column(c["name"], c["type"], c["jsonPath"], c.get("priority", 0))
                for c in version.get("additionalPrinterColumns") or ()
            )
            for version in served
        },
    )


def conform(resource: SandboxResource, content: Object) -> Object:
    """Return the object pruned and with defaults."""
    schema = resource.schemas.get(resource.version)
    if not schema:
        return content
    shaped = {key: deepcopy(value) for key, value in content.items() if key not in _TYPE_META}
    properties = (schema.get("properties") or {}).items()
    inner = {**schema, "properties": {k: v for k, v in properties if k not in _TYPE_META}}
    return {**{key: content[key] for key in _TYPE_META}, **_shape(shaped, inner)}


def _shape(value: Any, schema: dict[str, Any]) -> Any:
    properties = schema.get("properties") or {}
    if isinstance(value, dict) and not schema.get("x-kubernetes-embedded-resource"):
        for name, part in properties.items():
            if "default" in part and value.get(name) is None and not part.get("nullable"):
                value[name] = deepcopy(part["default"])
        extra = schema.get("additionalProperties")
        keeps = schema.get("x-kubernetes-preserve-unknown-fields") or extra is True
        if properties or isinstance(extra, dict):
            shaped = {}
            for name, part in value.items():
                if name in properties:
                    shaped[name] = _shape(part, properties[name])
                elif isinstance(extra, dict):
                    shaped[name] = _shape(part, extra)
                elif keeps:
                    shaped[name] = part
            return shaped
        return value
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_shape(item, schema["items"]) for item in value]
    return value
