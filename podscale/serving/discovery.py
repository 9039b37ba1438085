"""Which groups, versions and resources there are: discovery in all its forms.

Documents are encoded when a group's revision changes, in pages so that the loop is not
held, and served as bytes with an ETag (the content's hash, so replicas agree). An empty
group lists a placeholder: client-go complains about empty lists on every command, and
the aggregator drops a version that a v2 document does not mention.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from podscale.serving.api import ApiGroup, ApiResource
from podscale.serving.singleflight import Flights

PLACEHOLDER = ApiResource("podscale-placeholder", "", True, "Placeholder", ("get",))
_PAGE = 1_000
_NAME = attrgetter("name")
_COMPRESSED_FROM = 128 * 1024


class Document(Struct, frozen=True):
    """Encoded discovery. ``gzipped`` is empty for small documents."""

    body: bytes
    etag: str
    gzipped: bytes = b""


class _Sorted(Struct, frozen=True):
    revision: Hashable
    lists: dict[str, bytes]  # version → the encoded entries of its APIResourceList
    aggregated: dict[str, bytes]  # version → the encoded entries of its discovery v2


class Discovery:
    """The documents of a server's groups."""

    def __init__(self, groups: Sequence[ApiGroup]) -> None:
        self._groups = sorted(groups, key=lambda group: group.name)
        self._by_name = {group.name: group for group in self._groups}
        self._sorted: dict[str, _Sorted] = {}
        self._documents: dict[str, tuple[Hashable, Document]] = {}
        self._building: Flights[str, Document] = Flights()

    def group_list(self, port: int) -> bytes:
        """Return the body of ``/apis``. Like upstream's it has no apiVersion."""
        cidrs = [{"clientCIDR": "0.0.0.0/0", "serverAddress": f":{port}"}]
        groups = [{**_group(group), "serverAddressByClientCIDRs": cidrs} for group in self._groups]
        return msgspec.json.encode({"kind": "APIGroupList", "groups": groups}) + b"\n"

    def group(self, name: str) -> bytes | None:
        """Return the body of ``/apis/<group>``."""
        group = self._by_name.get(name)
        if group is None:
            return None
        return (
            msgspec.json.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group)}) + b"\n"
        )

    def cached(self, key: str) -> Document | None:
        """Return the document ``key`` when it is current.

        Keys are ``<group>/<version>`` for an APIResourceList, ``v2`` and ``v2beta1`` for
        the aggregated document.
        """
        found = self._documents.get(key)
        if found is None or found[0] != self._revision(key):
            return None
        return found[1]

    async def document(self, key: str) -> Document:
        """Return the document ``key``, building it if a revision has changed."""
        return self.cached(key) or await self._building.run(key, lambda: self._build(key))

    def _revision(self, key: str) -> Hashable:
        group, _, version = key.partition("/")
        if version:
            return self._by_name[group].revision()
        return tuple(group.revision() for group in self._groups)

    async def _build(self, key: str) -> Document:
        revision = self._revision(key)
        name, _, version = key.partition("/")
        if version:
            body = await self._resource_list(self._by_name[name], version)
        else:
            body = await self._aggregated(name)
        etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
        gzipped = b""
        if len(body) >= _COMPRESSED_FROM:
            gzipped = await asyncio.to_thread(gzip.compress, body, 5, mtime=0)
        document = Document(body, etag, gzipped)
        self._documents[key] = (revision, document)
        return document

    async def _resource_list(self, group: ApiGroup, version: str) -> bytes:
        # Handed over, not shared: the document is kept from now on, and 35 MB once is enough.
        entries = (await self._encode(group, version)).lists.pop(version)
        return (
            b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%s,"resources":[%s]}\n'
            % (
                msgspec.json.encode(f"{group.name}/{version}"),
                entries,
            )
        )

    async def _aggregated(self, form: str) -> bytes:
        items = []
        for group in self._groups:
            encoded = (await self._encode(group)).aggregated
            versions = b",".join(
                b'{"version":%s,"resources":[%s],"freshness":"Current"}'
                % (msgspec.json.encode(version), encoded[version])
                for version in group.versions
            )
            items.append(
                b'{"metadata":{"name":%s,"creationTimestamp":null},"versions":[%s]}'
                % (msgspec.json.encode(group.name), versions)
            )
        head = b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/%s",'
        return head % form.encode() + b'"metadata":{},"items":[%s]}\n' % b",".join(items)

    async def _encode(self, group: ApiGroup, version: str = "") -> _Sorted:
        revision = group.revision()
        found = self._sorted.get(group.name)
        is_current = found is not None and found.revision == revision
        if found is not None and is_current and (not version or version in found.lists):
            return found
        lists: dict[str, bytes] = {}
        aggregated: dict[str, bytes] = {}
        for version in group.versions:
            resources = await _by_name(group.resources(version)) or [PLACEHOLDER]
            lists[version] = _shared(await _joined(resources), lists)
            aggregated[version] = _shared(await _nested(resources), aggregated)
        encoded = _Sorted(revision, lists, aggregated)
        self._sorted[group.name] = encoded
        return encoded


async def _by_name(resources: Sequence[ApiResource]) -> list[ApiResource]:
    if len(resources) <= _PAGE:
        return sorted(resources, key=_NAME)
    # 50,000 take 25 ms, too long for the loop.
    return await asyncio.to_thread(sorted, resources, key=_NAME)


async def _joined(entries: Sequence[Any]) -> bytes:
    parts = []
    for start in range(0, len(entries), _PAGE):
        parts.append(msgspec.json.encode(entries[start : start + _PAGE])[1:-1])
        await asyncio.sleep(0)
    return b",".join(parts)


class _Kind(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(Struct, frozen=True, gc=False, rename="camel"):
    subresource: str
    response_kind: _Kind
    verbs: tuple[str, ...]


def _shared(entries: bytes, others: Mapping[str, bytes]) -> bytes:
    """Return the equal bytes of another version, where there are: most versions list the same."""
    return next((other for other in others.values() if other == entries), entries)


async def _nested(resources: Sequence[ApiResource]) -> bytes:
    """Return the entries of discovery v2: "pods/m" becomes a subresource of "pods".

    Follows ``ConvertGroupVersionIntoToDiscovery``: a parent that is not listed itself is
    made up, without verbs.
    """
    parents: dict[str, dict[str, Any]] = {}
    below: dict[str, list[_Subresource]] = {}
    kinds: dict[str, _Kind] = {}
    for count, resource in enumerate(resources):
        parent, _, subresource = resource.name.partition("/")
        kind = kinds.setdefault(resource.kind, _Kind(kind=resource.kind))
        if not subresource:
            parents[parent] = {
                "resource": parent,
                "responseKind": kind,
                "scope": _scope(resource),
                "singularResource": resource.singular_name,
                "verbs": resource.verbs,
                **_optional(resource),
            }
            continue
        if parent not in parents:
            parents[parent] = {
                "resource": parent,
                "responseKind": _Kind(),
                "scope": _scope(resource),
                "singularResource": "",
                "verbs": [],
            }
        below.setdefault(parent, []).append(_Subresource(subresource, kind, resource.verbs))
        if count % _PAGE == _PAGE - 1:
            await asyncio.sleep(0)
    entries = []
    for name, entry in parents.items():
        encoded = msgspec.json.encode(entry)
        if name in below:
            encoded = b'%b,"subresources":[%b]}' % (encoded[:-1], await _joined(below[name]))
        entries.append(encoded)
    return b",".join(entries)


def _optional(resource: ApiResource) -> dict[str, Any]:
    named = {"shortNames": resource.short_names, "categories": resource.categories}
    return {key: value for key, value in named.items() if value}


def _scope(resource: ApiResource) -> str:
    return "Namespaced" if resource.namespaced else "Cluster"


def _group(group: ApiGroup) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group.name}/{version}", "version": version}
        for version in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}
