"""Bodies: reading what a client sent, writing lists, pages and answers.

Objects are written whole, or reduced to their metadata (``as=PartialObjectMetadata``), which
cheap watches ask for.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml
from aiohttp import web
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.sandbox.errors import bad_request, unsupported_media
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.resources import SandboxResource
from podscale.sandbox.objects.storage import Object, Stored

_JSON = "application/json"
_YAML = ("application/yaml", "application/x-yaml")
_PATCHES = (patch.JSON, patch.MERGE, patch.STRATEGIC)
_encode = msgspec.json.Encoder().encode
_METADATA = b'{"kind":"PartialObjectMetadata%b","apiVersion":"meta.k8s.io/v1","metadata":%b'


class SandboxPage(Struct, frozen=True):
    """A continue token: where the next page starts, and what revision the list has."""

    rv: int
    namespace: str
    name: str


async def read_object(request: web.BaseRequest) -> Object:
    sent = await request.read()
    if not sent:
        return {}
    # As upstream: nothing said is JSON, and anything else is refused, so that no web page can
    # send an object without asking first.
    kind = request.content_type if request.headers.get("Content-Type") else _JSON
    if kind not in (_JSON, *_YAML):
        raise unsupported_media(", ".join((_JSON, _YAML[0])))
    try:
        decoded = yaml.safe_load(sent) if kind in _YAML else decode_json(sent)
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise bad_request(f"the object provided is unrecognized: {error}") from None
    if not isinstance(decoded, dict):
        raise bad_request("the body must be an object")
    return decoded


async def read_patch(request: web.BaseRequest) -> Any:
    """Return what was sent; raises ``StatusError`` for a type that is not served."""
    if request.content_type not in _PATCHES:
        raise unsupported_media(", ".join(_PATCHES))
    try:
        return decode_json(await request.read())
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from None


def encode_list(
    resource: SandboxResource, version: str, found: Sequence[Stored], metadata: Mapping[str, Any]
) -> bytes:
    api_version = resource.api_version(version)
    head = (
        f'{{"kind":"{resource.kind}List","apiVersion":"{api_version}","metadata":'.encode()
        + _encode(metadata)
        + b',"items":['
    )
    if resource.is_custom:
        items = b",".join([stored.encoded(api_version, resource.kind) for stored in found])
    else:
        items = b",".join([stored.tail for stored in found])
    return b"%b%b]}" % (head, items)


def wants_metadata(accept: str) -> bool:
    """Return whether the first form the client takes is metadata alone."""
    return "as=PartialObjectMetadata" in accept.split(",")[0]


def encode_metadata(stored: Stored) -> bytes:
    """Return one object's metadata."""
    return _METADATA % (b"", _encode(stored.object["metadata"])) + b"}"


def encode_metadata_list(listed: Sequence[Stored], metadata: Mapping[str, Any]) -> bytes:
    items = b",".join(map(encode_metadata, listed))
    return _METADATA % (b"List", _encode(metadata)) + b',"items":[%b]}' % items


def metadata_line(kind: str, stored: Stored) -> bytes:
    """Return a watch event."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), encode_metadata(stored))


def write_page(page: SandboxPage) -> str:
    return base64.urlsafe_b64encode(_encode(page)).decode()


def read_page(token: str) -> SandboxPage:
    try:
        return decode_json(base64.urlsafe_b64decode(token), SandboxPage)
    except (ValueError, msgspec.DecodeError):
        raise bad_request(f"invalid continue token: continue key is not valid: {token!r}") from None


def as_json(body: object, content_type: str = _JSON, status: int = 200) -> web.Response:
    return as_bytes(_encode(body), status, content_type)


def as_bytes(body: bytes, status: int = 200, content_type: str = _JSON) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})
