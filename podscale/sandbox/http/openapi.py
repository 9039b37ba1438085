"""As much OpenAPI as kubectl needs to apply without ``--validate=false``.

kubectl asks v3 whether a kind's PATCH takes ``fieldValidation``, leaves checking to the server
then, and falls back to the types it knows for merging. A list of objects has no PATCH: kubectl
checks it by v2, where what has no schema passes, and sends its items one by one.
"""

from collections.abc import Iterator

from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Object

_INFO = {"title": "Kubernetes", "version": "v1.37.0"}
_PARAMETERS = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
# The v2 document that describes nothing, as kubectl reads it: a protobuf message whose first
# field is the version.
V2_PROTOBUF = b"\x0a\x032.0"
V2_JSON: Object = {"swagger": "2.0", "info": _INFO, "paths": {}}


def index(registry: SandboxResources) -> Object:
    """Return /openapi/v3: the documents by group and version."""
    prefixes = {prefix for resource in registry for prefix, _ in _versions(resource)}
    return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in prefixes}}


def document(registry: SandboxResources, prefix: str) -> Object | None:
    """Return /openapi/v3/PREFIX (``apis/apps/v1``); None where nothing is served."""
    paths = {
        f"/{prefix}/{resource.plural}/{{name}}": {
            "patch": {
                "operationId": f"patch{resource.kind}",
                "parameters": _PARAMETERS,
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": resource.group, "version": version, "kind": resource.kind,
                },
            }
        }
        for resource in registry
        for each, version in _versions(resource)
        if each == prefix
    }  # fmt: skip
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths} if paths else None


def _versions(resource: SandboxResource) -> Iterator[tuple[str, str]]:
    for version in resource.served_versions:
        group = resource.group
        yield (f"apis/{group}/{version}" if group else f"api/{version}"), version
