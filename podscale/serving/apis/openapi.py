"""OpenAPI v2 and v3 of the served groups, put together from what the groups declare.

kube-aggregator merges ``/openapi/v2`` and routes ``/openapi/v3/apis/<group>/<version>``;
both want stable bytes: the hash in a v3 URL, and the ETag of v2, are the content's.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from podscale.serving.apis.api import ApiGroup

_V3_REFERENCE = "#/components/schemas/"
_V2_REFERENCE = "#/definitions/"


class OpenApi(Struct, frozen=True):
    """Every document, encoded once: what groups declare does not change while we run."""

    v2: bytes
    v2_etag: str
    index: bytes  # of /openapi/v3
    v3: Mapping[str, bytes]  # "apis/<group>/<version>" → document


def build(groups: Sequence[ApiGroup], release: str) -> OpenApi:
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
            "definitions": _referring(definitions, _V3_REFERENCE, _V2_REFERENCE),
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
    swagger: dict[str, Any] = {}
    for key, value in item.items():
        if key == "parameters":
            swagger[key] = [_parameter(one) for one in value]
        elif isinstance(value, Mapping):
            swagger[key] = _operation(value)
        else:
            swagger[key] = value
    return swagger


def _operation(operation: Mapping[str, Any]) -> dict[str, Any]:
    swagger = {key: value for key, value in operation.items() if key != "requestBody"}
    if "parameters" in swagger:
        swagger["parameters"] = [_parameter(one) for one in swagger["parameters"]]
    produces: set[str] = set()
    responses = {}
    for code, response in operation.get("responses", {}).items():
        content = response.get("content", {})
        produces |= set(content)
        responses[code] = {"description": response.get("description", "")}
        for body in content.values():
            schema = _referring(body.get("schema", {}), _V3_REFERENCE, _V2_REFERENCE)
            responses[code]["schema"] = schema
    swagger["responses"] = responses
    if produces:
        swagger["produces"] = sorted(produces)
    return swagger


def _parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in parameter.items() if key not in ("schema", "content")}
    schema = parameter.get("schema", {"type": "string"})
    return {**flat, **{key: value for key, value in schema.items() if key != "default"}}


def _referring(value: Any, old: str, new: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: item.replace(old, new)
            if key == "$ref" and isinstance(item, str)
            else _referring(item, old, new)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_referring(item, old, new) for item in value]
    return value
