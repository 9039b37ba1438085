"""What there is: aggregated discovery (v2), the one form that clients ask for since 1.30, and
as much OpenAPI as kubectl needs to apply without ``--validate=false``.

kubectl asks v3 whether a kind's PATCH takes ``fieldValidation``, leaves checking to the server
then, and falls back to the types it knows for merging. A list of objects has no PATCH: kubectl
checks it by v2, where what has no schema passes, and sends its items one by one.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from podscale.core.json_decoder import decode_json
from podscale.sandbox.http.aggregator import Aggregator
from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Object

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_INFO = {"title": "Kubernetes", "version": "v1.37.0"}
_PARAMETERS = [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}]
# The v2 document that describes nothing, as kubectl reads it: a protobuf message whose first
# field is the version.
V2_PROTOBUF = b"\x0a\x032.0"
V2_JSON: Object = {"swagger": "2.0", "info": _INFO, "paths": {}}
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


class SandboxDiscovery:
    """Builds the documents from the registry and the aggregated APIServices."""

    def __init__(self, registry: SandboxResources, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator

    async def document(self, *, core: bool) -> bytes:
        """Return the aggregated document of /api or /apis."""
        items = [self._group(group, resources) for group, resources in self._groups(core=core)]
        if not core:
            items += [await self._foreign(group) for group in self._foreign_groups()]
        return msgspec.json.encode(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": items,
            }
        )

    def _groups(self, *, core: bool) -> list[tuple[str, list[SandboxResource]]]:
        groups: dict[str, list[SandboxResource]] = {}
        for resource in self._registry:
            if (resource.group == "") == core:
                groups.setdefault(resource.group, []).append(resource)
        return list(groups.items())

    def _foreign_groups(self) -> dict[str, list[str]]:
        groups: dict[str, list[tuple[int, str]]] = {}
        for service in self._aggregator.services():
            spec = service["spec"]
            entry = (-spec.get("versionPriority", 0), spec["version"])
            groups.setdefault(spec["group"], []).append(entry)
        return {group: [version for _, version in sorted(found)] for group, found in groups.items()}

    def _versions(self, resources: Sequence[SandboxResource]) -> list[str]:
        served = [version for resource in resources for version in resource.served_versions]
        return list(dict.fromkeys(served))

    def _group(self, group: str, resources: Sequence[SandboxResource]) -> Object:
        versions = []
        for version in self._versions(resources):
            entries = [_entry(r, version) for r in resources if version in r.served_versions]
            versions.append({"version": version, "resources": entries, "freshness": "Current"})
        return {"metadata": {"name": group} if group else {}, "versions": versions}

    async def _foreign(self, group: str) -> Object:
        versions = []
        for version in self._foreign_groups()[group]:
            entry: dict[str, Any] = {"version": version, "resources": [], "freshness": "Stale"}
            service = self._aggregator.find(group, version)
            if service is not None:
                entry = await self._foreign_version(service, group, version) or entry
            versions.append(entry)
        return {"metadata": {"name": group}, "versions": versions}

    async def _foreign_version(
        self, service: Object, group: str, version: str
    ) -> dict[str, Any] | None:
        body = await self._aggregator.fetch(service, "/apis", AGGREGATED)
        document = _decoded(body)
        if document.get("kind") == "APIGroupDiscoveryList":
            for item in document.get("items") or ():
                for found in item.get("versions") or ():
                    if (item["metadata"].get("name"), found["version"]) == (group, version):
                        return {**found, "freshness": "Current"}
            return {"version": version, "resources": [], "freshness": "Current"}
        return None


def _decoded(body: bytes | None) -> dict[str, Any]:
    try:
        found = decode_json(body) if body else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _subresources(resource: SandboxResource) -> list[tuple[str, dict[str, str], list[str]]]:
    own = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    found = []
    if resource.has_status:
        found.append(("status", own, ["get", "patch", "update"]))
    if resource.scale is not None:
        found.append(("scale", _SCALE, ["get", "patch", "update"]))
    if resource.name == "pods":
        eviction = {"group": "policy", "version": "v1", "kind": "Eviction"}
        found.append(("eviction", eviction, ["create"]))
        found.append(("resize", own, ["get", "patch", "update"]))
    if resource.name == "serviceaccounts":
        token = {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
        found.append(("token", token, ["create"]))
    return found


def _entry(resource: SandboxResource, version: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if below := _subresources(resource):
        entry["subresources"] = [
            {"subresource": name, "responseKind": kind, "verbs": verbs}
            for name, kind, verbs in below
        ]
    return entry


def openapi_index(registry: SandboxResources) -> Object:
    """Return /openapi/v3: the documents by group and version."""
    prefixes = {prefix for resource in registry for prefix, _ in _versions(resource)}
    return {"paths": {each: {"serverRelativeURL": f"/openapi/v3/{each}"} for each in prefixes}}


def openapi_document(registry: SandboxResources, prefix: str) -> Object | None:
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
