"""Which groups, versions and resources there are: discovery in all its forms, and OpenAPI.

Documents are encoded when a group's revision changes, in pages so that the loop is not held, and
served as bytes with an ETag (the content's hash, so replicas agree). An empty group lists a
placeholder: client-go complains about empty lists on every command, and the aggregator drops a
version that a v2 document does not mention. kube-aggregator merges ``/openapi/v2`` and routes
``/openapi/v3/apis/<group>/<version>``; both want stable bytes.
"""

import asyncio
import gzip
import hashlib
import heapq
from collections.abc import Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from podscale.serving.apis.api import ApiGroup, ApiResource
from podscale.serving.singleflight import SingleFlight

PLACEHOLDER = ApiResource("podscale-placeholder", "", True, "Placeholder", ("get",))
_PAGE = 1_000
_SORTED_AT_ONCE = 10_000  # 4 ms
_NAME = attrgetter("name")
_COMPRESSED_FROM = 128 * 1024

# Of a document that may have 100 MB: what is copied as a whole holds everybody up.
Pieces = Sequence[bytes]


class Document(Struct, frozen=True):
    """Encoded discovery. ``gzipped`` is empty for small documents."""

    body: bytes
    etag: str
    gzipped: bytes = b""


class _Sorted(Struct, frozen=True):
    revision: Hashable
    lists: dict[str, Pieces]  # version → the encoded entries of its APIResourceList
    aggregated: dict[str, Pieces]  # version → the encoded entries of its discovery v2


class ServedDiscovery:
    """The documents of a server's groups."""

    def __init__(self, groups: Sequence[ApiGroup]) -> None:
        self._groups = sorted(groups, key=lambda group: group.name)
        self._by_name = {group.name: group for group in self._groups}
        self._sorted: dict[str, _Sorted] = {}
        self._documents: dict[str, tuple[Hashable, Document]] = {}
        self._building: SingleFlight[str, Document] = SingleFlight()

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
            pieces = await self._resource_list(self._by_name[name], version)
        else:
            pieces = await self._aggregated(name)
        document = await asyncio.to_thread(_document, pieces)
        self._documents[key] = (revision, document)
        return document

    async def _resource_list(self, group: ApiGroup, version: str) -> Pieces:
        # Handed over, not shared: the document is kept from now on, and 35 MB once is enough.
        entries = (await self._encode(group, version)).lists.pop(version)
        name = msgspec.json.encode(f"{group.name}/{version}")
        head = b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%s,"resources":['
        return [head % name, *entries, b"]}\n"]

    async def _aggregated(self, form: str) -> Pieces:
        head = b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/%s",'
        pieces = [head % form.encode() + b'"metadata":{},"items":[']
        for place, group in enumerate(self._groups):
            encoded = (await self._encode(group)).aggregated
            name = msgspec.json.encode(group.name)
            start = b'{"metadata":{"name":%s,"creationTimestamp":null},"versions":[' % name
            pieces.append(b"," + start if place else start)
            for number, version in enumerate(group.versions):
                start = b'{"version":%s,"resources":[' % msgspec.json.encode(version)
                pieces += (b"," + start if number else start, *encoded[version])
                pieces.append(b'],"freshness":"Current"}')
            pieces.append(b"]}")
        return [*pieces, b"]}\n"]

    async def _encode(self, group: ApiGroup, version: str = "") -> _Sorted:
        revision = group.revision()
        found = self._sorted.get(group.name)
        is_current = found is not None and found.revision == revision
        if found is not None and is_current and (not version or version in found.lists):
            return found
        lists: dict[str, Pieces] = {}
        aggregated: dict[str, Pieces] = {}
        before: tuple[Sequence[ApiResource] | None, str] = (None, "")
        for version in group.versions:
            resources = await asyncio.to_thread(group.resources, version)
            if resources is before[0]:  # most versions list the same
                lists[version], aggregated[version] = lists[before[1]], aggregated[before[1]]
                continue
            before = resources, version
            listed = await asyncio.to_thread(_by_name, resources) or [PLACEHOLDER]
            lists[version], aggregated[version] = await _joined(listed), await _nested(listed)
        encoded = _Sorted(revision, lists, aggregated)
        self._sorted[group.name] = encoded
        return encoded


def _by_name(resources: Sequence[ApiResource]) -> list[ApiResource]:
    # Sorted at once, 400,000 would keep every other thread waiting for some 0.2 s.
    pages = [
        sorted(resources[start : start + _SORTED_AT_ONCE], key=_NAME)
        for start in range(0, len(resources), _SORTED_AT_ONCE)
    ]
    return list(heapq.merge(*pages, key=_NAME))


def _document(pieces: Pieces) -> Document:
    body = b"".join(pieces)
    etag = f'"{hashlib.sha256(body).hexdigest().upper()}"'
    gzipped = gzip.compress(body, 5, mtime=0) if len(body) >= _COMPRESSED_FROM else b""
    return Document(body, etag, gzipped)


async def _joined(entries: Sequence[Any]) -> Pieces:
    pieces = []
    for start in range(0, len(entries), _PAGE):
        encoded = msgspec.json.encode(entries[start : start + _PAGE])[1:-1]
        pieces.append(b"," + encoded if start else encoded)
        await asyncio.sleep(0)
    return pieces


class _Kind(Struct, frozen=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _Subresource(Struct, frozen=True, gc=False, rename="camel"):
    subresource: str
    response_kind: _Kind
    verbs: tuple[str, ...]


async def _nested(resources: Sequence[ApiResource]) -> Pieces:
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
            more = {"shortNames": resource.short_names, "categories": resource.categories}
            parents[parent] = {
                "resource": parent,
                "responseKind": kind,
                "scope": _scope(resource),
                "singularResource": resource.singular_name,
                "verbs": resource.verbs,
                **{key: value for key, value in more.items() if value},
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
    pieces: list[bytes] = []
    for name, entry in parents.items():
        encoded = msgspec.json.encode(entry)
        pieces.append(b"," + encoded if pieces else encoded)
        if name in below:
            pieces[-1] = pieces[-1][:-1] + b',"subresources":['
            pieces += (*await _joined(below[name]), b"]}")
    return pieces


def _scope(resource: ApiResource) -> str:
    return "Namespaced" if resource.namespaced else "Cluster"


def _group(group: ApiGroup) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{group.name}/{version}", "version": version}
        for version in group.versions
    ]
    return {"name": group.name, "versions": versions, "preferredVersion": versions[0]}


_V3_REFERENCE = "#/components/schemas/"
_V2_REFERENCE = "#/definitions/"


class OpenApi(Struct, frozen=True):
    """Every document, encoded once: what groups declare does not change while we run."""

    v2: bytes
    v2_etag: str
    index: bytes  # of /openapi/v3
    v3: Mapping[str, bytes]  # "apis/<group>/<version>" → document


def openapi_documents(groups: Sequence[ApiGroup], release: str) -> OpenApi:
    """Return the documents of ``groups``; ``release`` is podscale's version."""
    documents: dict[str, bytes] = {}
    definitions: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    info = {"title": "podscale", "version": release}
    for group in sorted(groups, key=lambda one: one.name):
        for version in group.versions:
            prefix = f"/apis/{group.name}/{version}"
            schemas = dict(group.schemas(version))
            here = {prefix + path: item for path, item in group.paths(version).items()}
            here[f"{prefix}/"] = _listing(group.name, version)
            documents[prefix[1:]] = _encode(
                {
                    "openapi": "3.0.0",
                    "info": info,
                    "paths": here,
                    "components": {"schemas": schemas},
                }
            )
            definitions.update(schemas)
            paths.update({path: _swagger(item) for path, item in here.items()})
    v2 = _encode(
        {
            "swagger": "2.0",
            "info": info,
            "paths": paths,
            "definitions": _in_v2(definitions),
        }
    )
    index = {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(body)}"}
            for path, body in documents.items()
        }
    }
    return OpenApi(v2, f'"{_hash(v2)}"', _encode(index), documents)


def _encode(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _listing(group: str, version: str) -> dict[str, Any]:
    return {
        "get": {
            "tags": [f"{group}_{version}"],
            "description": "get available resources",
            "operationId": f"getResources_{group}_{version}".replace(".", "_"),
            "responses": {"200": {"description": "OK"}, "401": {"description": "Unauthorized"}},
        }
    }


def _swagger(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return a v3 path item in v2's form: schemas move out of ``content`` and parameters."""
    swagger: dict[str, Any] = {
        method: _operation(value) for method, value in item.items() if method != "parameters"
    }
    if "parameters" in item:
        swagger["parameters"] = [
            {**{key: value for key, value in one.items() if key != "schema"}, **one["schema"]}
            for one in item["parameters"]
        ]
    return swagger


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    produces: dict[str, list[str]] = {}
    responses = {}
    for code, response in operation["responses"].items():
        responses[code] = {"description": response["description"]}
        for form, body in response.get("content", {}).items():
            produces = {"produces": [form]}
            responses[code]["schema"] = _in_v2(body["schema"])
    return {**operation, "responses": responses, **produces}


def _in_v2(value: Any) -> Any:
    """Return a schema with its references as v2 writes them."""
    if isinstance(value, Mapping):
        return {
            key: item.replace(_V3_REFERENCE, _V2_REFERENCE) if key == "$ref" else _in_v2(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_in_v2(item) for item in value]
    return value
