"""Custom resources: what a CustomResourceDefinition makes of its objects.

Structural schemas are followed as far as clients notice: defaults are filled in,
unknown fields are dropped, wrong types, enums and missing required fields refused.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from podscale.core.goquote import quote
from podscale.sandbox.errors import invalid
from podscale.sandbox.objects.resources import Column, SandboxResource, SandboxResources, ScalePaths
from podscale.sandbox.objects.storage import Object

_TYPE_META = ("apiVersion", "kind", "metadata")
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


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
    """Return the object pruned and with defaults; raises ``StatusError`` 422."""
    schema = resource.schemas.get(resource.version)
    if not schema:
        return content
    shaped = {key: deepcopy(value) for key, value in content.items() if key not in _TYPE_META}
    properties = (schema.get("properties") or {}).items()
    inner = {**schema, "properties": {k: v for k, v in properties if k not in _TYPE_META}}
    shaped = _shape(shaped, inner)
    causes = list(_problems(shaped, inner, ""))
    if causes:
        name = content["metadata"].get("name", "")
        raise invalid(resource.kind, resource.group, name, causes)
    kept = {key: content[key] for key in _TYPE_META}
    return {**kept, **shaped}


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


def _problems(value: Any, schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    if value is None:
        return
    wanted = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield path, f"Invalid value: {_shown(value)}: must be an integer or a string"
        return
    if wanted in _TYPES and not _is_a(value, wanted):
        kind = next(name for name, types in _TYPES.items() if isinstance(value, types))
        kind = "boolean" if isinstance(value, bool) else kind
        shown = f"{path} in body must be of type {wanted}: {quote(kind)}"
        yield path, f"Invalid value: {quote(kind)}: {shown}"
        return
    yield from _limits(value, schema, path)
    if isinstance(value, dict):
        for name in schema.get("required") or ():
            if name not in value:
                yield f"{path}.{name}".lstrip("."), "Required value"
        for name, part in (schema.get("properties") or {}).items():
            if name in value:
                yield from _problems(value[name], part, f"{path}.{name}".lstrip("."))
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            for name, item in value.items():
                yield from _problems(item, extra, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            yield from _problems(item, schema["items"], f"{path}[{index}]")


def _limits(value: Any, schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    allowed = schema.get("enum")
    if allowed and value not in allowed:
        supported = ", ".join(_shown(choice) for choice in allowed)
        yield path, f"Unsupported value: {_shown(value)}: supported values: {supported}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        low, high = schema.get("minimum"), schema.get("maximum")
        if low is not None and value < low:
            shown = f"{path} in body should be greater than or equal to {low}"
            yield path, f"Invalid value: {value}: {shown}"
        if high is not None and value > high:
            shown = f"{path} in body should be less than or equal to {high}"
            yield path, f"Invalid value: {value}: {shown}"


def _is_a(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _shown(value: Any) -> str:
    return quote(value) if isinstance(value, str) else str(value)
