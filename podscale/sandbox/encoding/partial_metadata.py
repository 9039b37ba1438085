"""Objects reduced to their metadata (``as=PartialObjectMetadata``): what cheap watches ask for."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from podscale.sandbox.objects.storage import Stored

_encode = msgspec.json.Encoder().encode
_HEAD = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
_LIST_HEAD = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'


def is_wanted(accept: str) -> bool:
    """Return whether the first form the client takes is metadata alone."""
    return "as=PartialObjectMetadata" in accept.split(",")[0]


def encoded(stored: Stored) -> bytes:
    """Return one object's metadata."""
    return b"%b%b}" % (_HEAD, _encode(stored.object["metadata"]))


def of_list(found: Sequence[Stored], metadata: Mapping[str, Any]) -> bytes:
    items = b",".join(map(encoded, found))
    return b'%b%b,"items":[%b]}' % (_LIST_HEAD, _encode(metadata), items)


def line(kind: str, stored: Stored) -> bytes:
    """Return a watch event."""
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), encoded(stored))
