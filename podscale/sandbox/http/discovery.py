"""What there is: legacy discovery documents and the aggregated ones (v2, v2beta1)."""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from podscale.sandbox.http.aggregator import Aggregator
from podscale.sandbox.objects.resources import SandboxResource, SandboxResources
from podscale.sandbox.objects.storage import Object

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_V2 = _AGGREGATED.format(version="v2")
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}


class SandboxDiscovery:
    """Builds the documents from the registry and the aggregated APIServices."""

    def __init__(self, registry: SandboxResources, aggregator: Aggregator) -> None:
        self._registry = registry
        self._aggregator = aggregator

    def wants_aggregated(self, accept: str) -> str:
        """Return the aggregated version the client prefers, or ""."""
        first = accept.split(",")[0]
        if "as=APIGroupDiscoveryList" not in first:
            return ""
        return "v2beta1" if "v=v2beta1" in first else "v2"

    async def aggregated(self, *, core: bool, version: str) -> tuple[bytes, str, str]:
        """Return body, content type and ETag of the aggregated document of /api or /apis."""
        items = [self._group(group, resources) for group, resources in self._groups(core=core)]
        if not core:
            items += [await self._foreign(group) for group in self._foreign_groups()]
        body = msgspec.json.encode(
            {
                "kind": "APIGroupDiscoveryList",
                "apiVersion": f"apidiscovery.k8s.io/{version}",
                "metadata": {},
                "items": items,
            }
        )
        tag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'
        return body, _AGGREGATED.format(version=version), tag

    def legacy_core(self) -> Object:
        """Return /api."""
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}

    def legacy_groups(self) -> Object:
        """Return /apis."""
        groups = [
            self._legacy_group(name, self._versions(resources))
            for name, resources in self._groups(core=False)
        ]
        for name, versions in self._foreign_groups().items():
            groups.append(self._legacy_group(name, versions))
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def legacy_group(self, group: str) -> Object | None:
        """Return /apis/GROUP."""
        found = next((g for g in self.legacy_groups()["groups"] if g["name"] == group), None)
        return None if found is None else {"kind": "APIGroup", "apiVersion": "v1", **found}

    def legacy_resources(self, group: str, version: str) -> Object | None:
        """Return /api/v1 or /apis/GROUP/VERSION; None where nothing is served."""
        entries: list[dict[str, Any]] = []
        for resource in self._registry:
            if resource.group == group and version in resource.served_versions:
                entries += _legacy_entries(resource)
        if not entries:
            return None
        name = f"{group}/{version}" if group else version
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": name,
            "resources": entries,
        }

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

    def _legacy_group(self, name: str, versions: Sequence[str]) -> Object:
        entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
        return {"name": name, "versions": entries, "preferredVersion": entries[0]}

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
        body = await self._aggregator.fetch(service, "/apis", f"{_V2},application/json")
        document = _decoded(body)
        if document.get("kind") == "APIGroupDiscoveryList":
            for item in document.get("items") or ():
                for found in item.get("versions") or ():
                    if (item["metadata"].get("name"), found["version"]) == (group, version):
                        return {**found, "freshness": "Current"}
            return {"version": version, "resources": [], "freshness": "Current"}
        body = await self._aggregator.fetch(service, f"/apis/{group}/{version}", "application/json")
        listed = _decoded(body).get("resources")
        if listed is None:
            return None
        entries = [
            {
                "resource": found["name"],
                "responseKind": {"group": group, "version": version, "kind": found["kind"]},
                "scope": "Namespaced" if found.get("namespaced") else "Cluster",
                "singularResource": found.get("singularName", ""),
                "verbs": found.get("verbs", []),
            }
            for found in listed
            if "/" not in found["name"] or group == "custom.metrics.k8s.io"
        ]
        return {"version": version, "resources": entries, "freshness": "Current"}


def _decoded(body: bytes | None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body) if body else {}
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
        found.append(("binding", {"group": "", "version": "v1", "kind": "Binding"}, ["create"]))
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


def _legacy_entries(resource: SandboxResource) -> list[dict[str, Any]]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return [
        entry,
        *(
            {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind["kind"],
                "group": kind["group"],
                "version": kind["version"],
                "verbs": verbs,
            }
            for name, kind, verbs in _subresources(resource)
        ),
    ]
