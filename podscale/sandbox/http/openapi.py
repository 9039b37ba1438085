"""As much OpenAPI as kubectl needs to apply without ``--validate=false``.

kubectl asks v3 whether a kind's PATCH takes ``fieldValidation`` and then leaves checking to
the server; it looks for schemas only to merge, and falls back to the types it knows. A list
of objects has no PATCH: kubectl checks it by v2, where what has no schema passes, and sends
its items one by one.
"""

from typing import Any

from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Object

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]
# The v2 document that describes nothing, as kubectl reads it: a protobuf message whose first
# field is the version.
V2_PROTOBUF = b"\x0a\x032.0"
V2_JSON: Object = {
    "swagger": "2.0",
    "info": {"title": "Kubernetes", "version": "v1.37.0"},
    "paths": {},
}


def index(registry: SandboxResources) -> Object:
    """Return /openapi/v3: the documents by group and version."""
    paths = {
        _prefix(resource.group, version): {
            "serverRelativeURL": f"/openapi/v3/{_prefix(resource.group, version)}"
        }
        for resource in registry
        for version in resource.served_versions
    }
    return {"paths": paths}


def document(registry: SandboxResources, prefix: str) -> Object | None:
    """Return /openapi/v3/PREFIX (``apis/apps/v1``); None where nothing is served."""
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    for resource in registry:
        for version in resource.served_versions:
            if _prefix(resource.group, version) == prefix:
                paths.update(_paths(resource, version))
                if resource.is_custom:
                    name = f"{_reversed(resource.group)}.{version}.{resource.kind}"
                    schemas[name] = {
                        **resource.schemas.get(version, {}),
                        "x-kubernetes-group-version-kind": [_kind(resource, version)],
                    }
    if not paths:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.37.0"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _paths(resource: SandboxResource, version: str) -> dict[str, Any]:
    prefix = f"/{_prefix(resource.group, version)}"
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"{prefix}{middle}/{resource.plural}"
    kind = _kind(resource, version)
    answers = {"200": {"description": "OK"}}

    def operation(action: str) -> dict[str, Any]:
        return {
            "operationId": f"{action}{resource.kind}",
            "parameters": _PARAMETERS,
            "responses": answers,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind,
        }

    return {
        collection: {"get": operation("list"), "post": operation("post")},
        f"{collection}/{{name}}": {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }


def _kind(resource: SandboxResource, version: str) -> dict[str, str]:
    return {"group": resource.group, "version": version, "kind": resource.kind}


def _prefix(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _reversed(group: str) -> str:
    return ".".join(reversed(group.split(".")))
