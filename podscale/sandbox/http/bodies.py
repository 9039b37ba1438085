"""Bodies: reading what a client sent; writing objects, lists, metadata alone and kubectl's tables.

Objects are written whole, or reduced to their metadata (``as=PartialObjectMetadata``), which
cheap watches ask for. A table has one list of columns a kind, as a CRD's
additionalPrinterColumns.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import yaml
from aiohttp import web
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.sandbox.errors import bad_request, unsupported_media
from podscale.sandbox.objects import patch
from podscale.sandbox.objects.objects import is_true
from podscale.sandbox.objects.resources import Column, SandboxResource
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


def as_json(
    body: object,
    content_type: str = _JSON,
    status: int = 200,
    headers: Iterable[tuple[str, str]] = (),
) -> web.Response:
    response = as_bytes(_encode(body), status, content_type)
    response.headers.extend(headers)
    return response


def as_bytes(body: bytes, status: int = 200, content_type: str = _JSON) -> web.Response:
    return web.Response(body=body, status=status, headers={"Content-Type": content_type})


TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_TARGETS = {"averageUtilization": "%", "averageValue": " (avg)", "value": ""}  # and their units
_STEPS = re.compile(r"\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]|\[(\d+)\]|\['([^']+)'\]|([^.\[\]]+)")
_NAME = Column("Name", "string", ".metadata.name")
_AGE = Column("Age", "date", ".metadata.creationTimestamp")


def wants_table(accept: str) -> bool:
    """Return whether the first form the client takes is a Table."""
    return "as=Table" in accept.split(",")[0] and "g=meta.k8s.io" in accept


def table_of(
    resource: SandboxResource,
    version: str,
    listed: Sequence[Stored],
    metadata: Mapping[str, Any],
    query: Mapping[str, str],
    now: float,
) -> Object:
    """Return the Table of stored objects; ages are those at ``now`` (unix seconds)."""
    columns = (_NAME, *_columns(resource, version))
    include = query.get("includeObject", "Metadata")
    rows = []
    for stored in listed:
        row: dict[str, Any] = {"cells": [_cell(stored.object, each, now) for each in columns]}
        if include == "Object":
            row["object"] = {**stored.object, "apiVersion": resource.api_version(version)}
        elif include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": stored.object["metadata"],
            }
        rows.append(row)
    definitions = [
        {
            "name": column.name,
            "type": "string" if column.type == "date" else column.type,
            "format": "name" if column is _NAME else "",
            "description": column.name,
            "priority": column.priority,
        }
        for column in columns
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    }


def table_renderer(
    resource: SandboxResource, version: str, query: Mapping[str, str], wall: Callable[[], float]
) -> Callable[[str, Stored], bytes]:
    """Return what writes a watch event with a Table of one row."""

    def render(kind: str, stored: Stored) -> bytes:
        metadata = {"resourceVersion": str(stored.revision)}
        content = table_of(resource, version, [stored], metadata, query, wall())
        return _encode({"type": kind, "object": content}) + b"\n"

    return render


def follow(content: Any, path: str) -> Any:
    """Return what a simple JSONPath selects: fields, indexes, ``[?(@.type=="X")]``."""
    for field, value, index, quoted, name in _STEPS.findall(path):
        if field:
            items = content if isinstance(content, list) else []
            content = next((i for i in items if str(i.get(field)) == value), None)
        elif index:
            is_there = isinstance(content, list) and int(index) < len(content)
            content = content[int(index)] if is_there else None
        else:
            content = content.get(quoted or name) if isinstance(content, dict) else None
    return content


def duration_text(seconds: float) -> str:
    """Return an age as kubectl writes it: ``45s``, ``3m12s``, ``5h``, ``2d``."""
    s = max(int(seconds), 0)
    if s < 120:
        return f"{s}s"
    minutes = s // 60
    if minutes < 10:
        return f"{minutes}m{s % 60}s" if s % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def _columns(resource: SandboxResource, version: str) -> Sequence[Column]:
    if resource.is_custom:
        return resource.columns.get(version) or (_AGE,)
    own = _BUILTIN.get(resource.name, {})
    # "+" marks a column of `-o wide`; Age stands before those.
    return (
        *(Column(name, "string", path) for name, path in own.items() if name[0] != "+"),
        _AGE,
        *(Column(name[1:], "string", path, 1) for name, path in own.items() if name[0] == "+"),
    )


def _cell(content: Object, column: Column, now: float) -> Any:
    if callable(column.json_path):
        return column.json_path(content)
    value = _value(content, column.json_path)
    if column.type == "date" and isinstance(value, str):
        try:
            return duration_text(now - datetime.fromisoformat(value).timestamp())
        except ValueError:
            return "<unknown>"
    return _encode(value).decode() if isinstance(value, dict | list) else value


def _value(content: Object, path: str) -> Any:
    """Return what ``path`` selects, or what stands behind its ``|``; ``{path}`` fills a text."""
    if path.startswith("{"):
        return re.sub(r"\{(.+?)\}", lambda match: str(_value(content, match[1])), path)
    path, _, absent = path.partition("|")
    value = follow(content, path)
    return (absent or None) if value is None else value


def _statuses(pod: Object) -> Sequence[Mapping[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or ()


def _pod_ready(pod: Object) -> str:
    ready = sum(bool(each.get("ready")) for each in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Object) -> Any:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    states = [each.get("state") or {} for each in _statuses(pod)]
    ends = [state.get("waiting") or state.get("terminated") or {} for state in states]
    reasons = [end["reason"] for end in ends if end.get("reason")]
    return reasons[-1] if reasons else _value(pod, ".status.phase|Unknown")


def _hpa_targets(hpa: Object) -> str:
    texts = []
    current = (hpa.get("status") or {}).get("currentMetrics") or ()
    for place, spec in enumerate(hpa["spec"].get("metrics") or ()):
        source: dict[str, Any] = next((v for k, v in spec.items() if k != "type"), {})
        target = source.get("target") or {}
        metric: dict[str, Any] = current[place] if place < len(current) else {}
        state: dict[str, Any] = next((v for k, v in metric.items() if k != "type"), {})
        field = next((name for name in _TARGETS if name in target), "value")
        unit = _TARGETS[field]
        value = (state.get("current") or {}).get(field, "<unknown>")
        shown = f"{value}%" if isinstance(value, int) else value
        label = f"{source['name']}: " if source.get("name") else ""
        texts.append(f"{label}{shown}/{target.get(field)}{unit}")
    return ", ".join(texts) or "<none>"


_REPLICAS = {
    "Desired": ".spec.replicas|0",
    "Current": ".status.replicas|0",
    "Ready": ".status.readyReplicas|0",
}
_READY = "{.status.readyReplicas|0}/{.spec.replicas|0}"
_BUILTIN: Mapping[str, Mapping[str, str | Callable[[Object], Any]]] = {
    "pods": {
        "Ready": _pod_ready,
        "Status": _pod_status,
        "Restarts": lambda pod: sum(each.get("restartCount", 0) for each in _statuses(pod)),
        "+IP": ".status.podIP|<none>",
        "+Node": ".spec.nodeName|<none>",
    },
    "deployments.apps": {
        "Ready": _READY,
        "Up-to-date": ".status.updatedReplicas|0",
        "Available": ".status.availableReplicas|0",
    },
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "statefulsets.apps": {"Ready": _READY},
    "horizontalpodautoscalers.autoscaling": {
        "Reference": "{.spec.scaleTargetRef.kind}/{.spec.scaleTargetRef.name}",
        "Targets": _hpa_targets,
        "MinPods": ".spec.minReplicas|<unset>",
        "MaxPods": ".spec.maxReplicas",
        "Replicas": ".status.currentReplicas|0",
    },
    "nodes": {
        "Status": lambda node: "Ready" if is_true(node, "Ready") else "NotReady",
        "Version": ".status.nodeInfo.kubeletVersion",
    },
    "namespaces": {"Status": ".status.phase"},
    "leases.coordination.k8s.io": {"Holder": ".spec.holderIdentity"},
    "events": {
        "Type": ".type",
        "Reason": ".reason",
        "Object": "{.involvedObject.kind}/{.involvedObject.name}",
        "Message": ".message",
    },
    "poddisruptionbudgets.policy": {
        "Min Available": ".spec.minAvailable|N/A",
        "Max Unavailable": ".spec.maxUnavailable|N/A",
        "Allowed Disruptions": ".status.disruptionsAllowed|0",
    },
    "apiservices.apiregistration.k8s.io": {
        "Service": "{.spec.service.namespace}/{.spec.service.name}",
        "Available": '.status.conditions[?(@.type=="Available")].status|Unknown',
    },
}
