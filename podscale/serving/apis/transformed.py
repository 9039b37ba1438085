"""Answers as ``meta.k8s.io`` kinds: mere metadata, and tables as they were asked for.

Follows ``transformResponseObject`` of k8s.io/apiserver ``handlers/response.go``. Handlers
answer objects, lists, or tables of version v1 whose rows hold metadata; few clients ask for
anything else, so what they ask for is made of those bytes.
"""

from typing import Any

import msgspec

from podscale.core.goquote import quote
from podscale.core.json_decoder import decode_json
from podscale.serving import status
from podscale.serving.apis.api import Media
from podscale.serving.status import Status

_MOST_BYTES = 128 * 1024  # five milliseconds of the event loop
_INCLUDED = ("", "Metadata", "Object", "None")


def transformed(body: bytes, wanted: Media, include: str) -> bytes | Status:
    """Return JSON ``body`` as ``wanted`` says, or the 400 or 406.

    ``include`` is the query parameter includeObject; rows that hold whole objects
    ("Object") are the handler's work.
    """
    if len(body) > _MOST_BYTES and (wanted.as_metadata or include == "None"):
        return status.not_as_asked("the answer is too large to be given as mere metadata")
    if wanted.as_metadata:
        return _metadata(decode_json(body), wanted)
    if include not in _INCLUDED:
        return status.bad_request(
            f"Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{quote(include)}: must be 'Metadata', 'Object', 'None', or empty"
        )
    if include != "None" and wanted.meta_version == "v1":
        return body
    table = decode_json(body)
    table["apiVersion"] = f"meta.k8s.io/{wanted.meta_version}"
    for row in table["rows"]:
        if include == "None":
            row["object"] = None
        elif row.get("object", {}).get("kind") == "PartialObjectMetadata":
            row["object"]["apiVersion"] = table["apiVersion"]
    return msgspec.json.encode(table) + b"\n"


def _metadata(answer: dict[str, Any], wanted: Media) -> bytes | Status:
    is_list = isinstance(answer.get("items"), list)
    if is_list != wanted.as_metadata.endswith("List"):
        what = "a list" if is_list else "not a list"
        return status.not_as_asked(
            f"you requested {wanted.as_metadata}, but the requested object is {what} "
            f"({answer.get('kind', '')})"
        )
    made = _partial(answer, wanted.meta_version)
    if is_list:
        made["kind"] = wanted.as_metadata
        made["items"] = [_partial(item, wanted.meta_version) for item in answer["items"]]
    return msgspec.json.encode(made) + b"\n"


def _partial(one: dict[str, Any], version: str) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": one.get("metadata", {}),
    }
