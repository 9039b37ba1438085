"""Kubernetes' protobuf for the few kinds that kubectl's own commands send in it.

``create namespace|configmap|secret|serviceaccount|token``, ``auth can-i``, ``drain`` and
``autoscale`` encode what they send as protobuf and take JSON for an answer. Field numbers
are those of the ``generated.proto`` files of k8s.io/api; an unknown kind is refused.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Union

from msgspec import Struct

from podscale.sandbox.errors import unsupported_media
from podscale.sandbox.objects.storage import Object

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


class _Field(Struct, frozen=True):
    name: str
    # text, int, bool, bytes, map (of texts), bytes-map, or the fields of a message
    kind: Union[str, "_Message"] = "text"
    is_list: bool = False


_Message = Mapping[int, _Field]

_META: _Message = {
    1: _Field("name"),
    2: _Field("generateName"),
    3: _Field("namespace"),
    5: _Field("uid"),
    6: _Field("resourceVersion"),
    11: _Field("labels", "map"),
    12: _Field("annotations", "map"),
    14: _Field("finalizers", is_list=True),
}
_OPTIONS: _Message = {
    1: _Field("gracePeriodSeconds", "int"),
    2: _Field("preconditions", {1: _Field("uid"), 2: _Field("resourceVersion")}),
    4: _Field("propagationPolicy"),
    5: _Field("dryRun", is_list=True),
}
_TARGET: _Message = {
    1: _Field("type"),
    2: _Field("value", {1: _Field("string")}),
    3: _Field("averageValue", {1: _Field("string")}),
    4: _Field("averageUtilization", "int"),
}
_HPA_SPEC: _Message = {
    1: _Field("scaleTargetRef", {1: _Field("kind"), 2: _Field("name"), 3: _Field("apiVersion")}),
    2: _Field("minReplicas", "int"),
    3: _Field("maxReplicas", "int"),
    4: _Field(
        "metrics",
        {
            1: _Field("type"),
            4: _Field("resource", {1: _Field("name"), 2: _Field("target", _TARGET)}),
        },
        is_list=True,
    ),
}
_ACCESS: _Message = {
    1: _Field(
        "resourceAttributes",
        {
            1: _Field("namespace"),
            2: _Field("verb"),
            3: _Field("group"),
            4: _Field("version"),
            5: _Field("resource"),
            6: _Field("subresource"),
            7: _Field("name"),
        },
    ),
    2: _Field("nonResourceAttributes", {1: _Field("path"), 2: _Field("verb")}),
}
_TOKEN: _Message = {1: _Field("audiences", is_list=True), 4: _Field("expirationSeconds", "int")}
_KINDS: dict[tuple[str, str], _Message] = {
    ("v1", "Namespace"): {1: _Field("metadata", _META)},
    ("v1", "ServiceAccount"): {1: _Field("metadata", _META)},
    ("v1", "ConfigMap"): {
        1: _Field("metadata", _META),
        2: _Field("data", "map"),
        3: _Field("binaryData", "bytes-map"),
        4: _Field("immutable", "bool"),
    },
    ("v1", "Secret"): {
        1: _Field("metadata", _META),
        2: _Field("data", "bytes-map"),
        3: _Field("type"),
        4: _Field("stringData", "map"),
        5: _Field("immutable", "bool"),
    },
    ("v1", "DeleteOptions"): _OPTIONS,
    ("policy/v1", "Eviction"): {
        1: _Field("metadata", _META),
        2: _Field("deleteOptions", _OPTIONS),
    },
    ("authentication.k8s.io/v1", "TokenRequest"): {
        1: _Field("metadata", _META),
        2: _Field("spec", _TOKEN),
    },
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"): {2: _Field("spec", _ACCESS)},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        1: _Field("metadata", _META),
        2: _Field("spec", _HPA_SPEC),
    },
}
_UNKNOWN: _Message = {
    1: _Field("typeMeta", {1: _Field("apiVersion"), 2: _Field("kind")}),
    2: _Field("raw", "bytes"),
}
_QUANTITIES = ("value", "averageValue")


def decode(body: bytes) -> Object:
    """Return the object of a request's body; raises ``StatusError`` 415 for other kinds."""
    refusal = unsupported_media("application/json, application/yaml")
    if not body.startswith(_MAGIC):
        raise refusal
    try:
        envelope = _message(body[len(_MAGIC) :], _UNKNOWN)
        meta = envelope["typeMeta"]
        fields = _KINDS[meta["apiVersion"], meta["kind"]]
        return {**meta, **_message(envelope.get("raw", b""), fields)}
    except (KeyError, IndexError, ValueError):
        raise refusal from None


def _message(data: bytes, fields: _Message) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _values(data):
        field = fields.get(number)
        if field is None:
            continue
        if isinstance(value, int) != (field.kind in ("int", "bool")):
            raise ValueError(f"{field.name} has another type")
        if field.kind in ("map", "bytes-map"):
            key, item = _entry(value)
            text = base64.b64encode(item).decode() if field.kind == "bytes-map" else item.decode()
            found.setdefault(field.name, {})[key] = text
        elif field.is_list:
            found.setdefault(field.name, []).append(_one(value, field))
        else:
            found[field.name] = _one(value, field)
    # The encoder writes empty texts where JSON leaves fields out.
    return {name: value for name, value in found.items() if value != ""}


def _one(value: Any, field: _Field) -> Any:
    match field.kind:
        case "text":
            return value.decode()
        case "int":
            return value - (1 << 64) if value >= 1 << 63 else value
        case "bool":
            return bool(value)
        case "bytes":
            return value
        case str():
            raise ValueError(field.kind)
        case fields:
            inner = _message(value, fields)
            return inner.get("string", "0") if field.name in _QUANTITIES else inner


def _entry(data: bytes) -> tuple[str, bytes]:
    parts = dict(_values(data))
    if any(isinstance(part, int) for part in parts.values()):
        raise ValueError("a map of texts holds a number")
    return parts.get(1, b"").decode(), parts.get(2, b"")


def _values(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield field numbers with integers (varint) or bytes (length-delimited)."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("the message is cut off")
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise ValueError("fixed-size fields are not used by these kinds")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("the number is too long")
