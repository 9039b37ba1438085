"""Tables for ``kubectl get``: the columns that kube-apiserver prints."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from podscale.sandbox.objects.field_values import at
from podscale.sandbox.objects.resources import Column, SandboxResource
from podscale.sandbox.objects.storage import Object, Stored

CONTENT_TYPE = "application/json;as=Table;g=meta.k8s.io;v=v1"
Cells = Callable[[Object], list[Any]]
_encode = msgspec.json.Encoder().encode
_TARGETS = ("averageUtilization", "averageValue", "value")
_INDEX = re.compile(r"\[\?\(@\.(\w+)==[\"']([^\"']*)[\"']\)\]|\[(\d+)\]|\['([^']+)'\]|([^.\[\]]+)")


def is_wanted(accept: str) -> bool:
    """Return whether the first form the client takes is a Table."""
    return "as=Table" in accept.split(",")[0] and "g=meta.k8s.io" in accept


def of_list(
    resource: SandboxResource,
    version: str,
    found: Sequence[Stored],
    metadata: Mapping[str, Any],
    query: Mapping[str, str],
    now: float,
) -> Object:
    """Return the Table of stored objects; ages are those at ``now`` (unix seconds)."""
    columns, cells = _printer(resource, version)
    include = query.get("includeObject", "Metadata")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns],
        "rows": [_row(resource, version, stored, cells, include, now) for stored in found],
    }


def renderer(
    resource: SandboxResource, version: str, query: Mapping[str, str], wall: Callable[[], float]
) -> Callable[[str, Stored], bytes]:
    """Return what writes a watch event with a Table of one row."""

    def render(kind: str, stored: Stored) -> bytes:
        metadata = {"resourceVersion": str(stored.revision)}
        content = of_list(resource, version, [stored], metadata, query, wall())
        return _encode({"type": kind, "object": content}) + b"\n"

    return render


def _row(
    resource: SandboxResource, version: str, stored: Stored, cells: Cells, include: str, now: float
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cells": [
            cell.before(now) if isinstance(cell, _Since) else cell for cell in cells(stored.object)
        ]
    }
    if include == "Object":
        row["object"] = {**stored.object, "apiVersion": resource.api_version(version)}
    elif include == "Metadata":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": stored.object["metadata"],
        }
    return row


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": "string" if column.type == "date" else column.type,
        "format": "name" if column.name == "Name" else "",
        "description": column.name,
        "priority": column.priority,
    }


def _printer(resource: SandboxResource, version: str) -> tuple[Sequence[Column], Cells]:
    if resource.is_custom:
        custom = resource.columns.get(version) or (
            Column("Age", "date", ".metadata.creationTimestamp"),
        )
        return (
            (Column("Name", "string", ""), *custom),
            lambda content: [content["metadata"]["name"], *(_custom(content, c) for c in custom)],
        )
    names, cells = _PRINTERS.get(resource.name, ((), lambda _: []))
    columns = [Column("Name", "string", "")]
    columns += [Column(name.lstrip("+"), "string", "", int(name[0] == "+")) for name in names]
    columns.append(Column("Age", "string", ""))
    # "+" marks a column of `-o wide`; Age stands before those.
    ordered = [column for column in columns if not column.priority]
    ordered += [column for column in columns if column.priority]

    def row(content: Object) -> list[Any]:
        values = [content["metadata"]["name"], *cells(content), _age(content)]
        pairs = list(zip(columns, values, strict=True))
        plain = [value for column, value in pairs if not column.priority]
        return plain + [value for column, value in pairs if column.priority]

    return ordered, row


def _custom(content: Object, column: Column) -> Any:
    value = follow(content, column.json_path)
    if column.type == "date" and isinstance(value, str):
        return _Since(value)
    if isinstance(value, dict | list):
        return _encode(value).decode()
    return value


def follow(content: Any, path: str) -> Any:
    """Return what a simple JSONPath finds: fields, indexes, ``[?(@.type=="X")]``."""
    for field, wanted, index, quoted, name in _INDEX.findall(path):
        if field:
            items = content if isinstance(content, list) else []
            content = next((i for i in items if str(i.get(field)) == wanted), None)
        elif index:
            is_there = isinstance(content, list) and int(index) < len(content)
            content = content[int(index)] if is_there else None
        else:
            content = content.get(quoted or name) if isinstance(content, dict) else None
    return content


class _Since(Struct, frozen=True):
    """A time in a cell, to be shown as how long ago it was."""

    text: str

    def before(self, now: float) -> str:
        try:
            then = datetime.fromisoformat(self.text)
        except ValueError:
            return "<unknown>"
        return duration_text(now - then.timestamp())


def _age(content: Object) -> _Since:
    return _Since(content["metadata"].get("creationTimestamp", ""))


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


def _pods(pod: Object) -> list[Any]:
    status = pod.get("status") or {}
    containers = pod["spec"].get("containers") or ()
    held = status.get("containerStatuses") or ()
    ready = sum(bool(container.get("ready")) for container in held)
    restarts = sum(container.get("restartCount", 0) for container in held)
    phase = status.get("reason") or status.get("phase", "Unknown")
    for container in held:
        state = container.get("state") or {}
        phase = (state.get("waiting") or state.get("terminated") or {}).get("reason") or phase
    if pod["metadata"].get("deletionTimestamp"):
        phase = "Terminating"
    return [
        f"{ready}/{len(containers)}",
        phase,
        restarts,
        status.get("podIP") or "<none>",
        pod["spec"].get("nodeName") or "<none>",
    ]


def _deployments(content: Object) -> list[Any]:
    return [
        *_statefulsets(content),
        *_fields("status.updatedReplicas", "status.availableReplicas")(content),
    ]


def _fields(*paths: str, absent: Any = 0) -> Cells:
    return lambda content: [
        absent if (value := at(content, path)) is None else value for path in paths
    ]


def _statefulsets(content: Object) -> list[Any]:
    status = content.get("status") or {}
    return [f"{status.get('readyReplicas', 0)}/{content['spec'].get('replicas', 0)}"]


def _hpas(hpa: Object) -> list[Any]:
    spec, status = hpa["spec"], hpa.get("status") or {}
    reference = spec["scaleTargetRef"]
    return [
        f"{reference['kind']}/{reference['name']}",
        _hpa_targets(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        str(spec.get("minReplicas", "<unset>")),
        spec["maxReplicas"],
        status.get("currentReplicas", 0),
    ]


def _hpa_targets(specs: Sequence[Any], current: Sequence[Any]) -> str:
    shown = []
    for place, spec in enumerate(specs[:2]):
        source: dict[str, Any] = next((v for k, v in spec.items() if k != "type"), {})
        target = source.get("target") or {}
        held: dict[str, Any] = current[place] if place < len(current) else {}
        state: dict[str, Any] = next((v for k, v in held.items() if k != "type"), {})
        now = state.get("current") or {}
        field = next((name for name in _TARGETS if name in target), "value")
        unit = "%" if field == "averageUtilization" else " (avg)" if field != "value" else ""
        value = now.get(field, "<unknown>")
        name = source.get("name") or ""
        label = f"{name}: " if spec.get("type") in ("Resource", "ContainerResource") else ""
        if unit == "%":
            value = f"{value}%" if field in now else value
            shown.append(f"{label}{value}/{target.get(field)}%")
        else:
            shown.append(f"{label}{value}/{target.get(field)}{unit}")
    more = f" + {len(specs) - 2} more..." if len(specs) > 2 else ""
    return ", ".join(shown) + more or "<none>"


def _nodes(node: Object) -> list[Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((c.get("status") for c in conditions if c.get("type") == "Ready"), "Unknown")
    state = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    if node["spec"].get("unschedulable") if node.get("spec") else False:
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = ",".join(sorted(key[len(prefix) :] for key in labels if key.startswith(prefix)))
    return [state, roles or "<none>", at(node, "status.nodeInfo.kubeletVersion") or ""]


def _services(service: Object) -> list[Any]:
    spec = service["spec"]
    ports = [f"{port['port']}/{port.get('protocol', 'TCP')}" for port in spec.get("ports") or ()]
    external = spec.get("externalName") or "<none>"
    return [spec.get("type"), spec.get("clusterIP") or "<none>", external, ",".join(ports)]


def _events(event: Object) -> list[Any]:
    about = event.get("involvedObject") or event.get("regarding") or {}
    seen = event.get("lastTimestamp") or event.get("eventTime") or ""
    return [
        _Since(seen),
        event.get("type"),
        event.get("reason"),
        f"{about.get('kind', '').lower()}/{about.get('name', '')}",
        (event.get("message") or event.get("note") or "").strip(),
    ]


def _apiservices(service: Object) -> list[Any]:
    reference = service["spec"].get("service")
    where = f"{reference['namespace']}/{reference['name']}" if reference else "Local"
    conditions = (service.get("status") or {}).get("conditions") or ()
    available: dict[str, Any] = next((c for c in conditions if c.get("type") == "Available"), {})
    text = available.get("status", "Unknown")
    if text == "False":
        text += f" ({available.get('reason')})"
    return [where, text]


_REPLICAS = (
    ("Desired", "Current", "Ready"),
    _fields("spec.replicas", "status.replicas", "status.readyReplicas"),
)
_PRINTERS: dict[str, tuple[Sequence[str], Cells]] = {
    "pods": (("Ready", "Status", "Restarts", "+IP", "+Node"), _pods),
    "deployments.apps": (("Ready", "Up-to-date", "Available"), _deployments),
    "replicasets.apps": _REPLICAS,
    "replicationcontrollers": _REPLICAS,
    "statefulsets.apps": (("Ready",), _statefulsets),
    "horizontalpodautoscalers.autoscaling": (
        ("Reference", "Targets", "MinPods", "MaxPods", "Replicas"),
        _hpas,
    ),
    "nodes": (("Status", "Roles", "Version"), _nodes),
    "services": (("Type", "Cluster-IP", "External-IP", "Port(s)"), _services),
    "namespaces": (("Status",), lambda ns: [at(ns, "status.phase")]),
    "configmaps": (("Data",), lambda cm: [len(cm.get("data") or {})]),
    "secrets": (("Type", "Data"), lambda s: [s.get("type"), len(s.get("data") or {})]),
    "leases.coordination.k8s.io": (("Holder",), lambda le: [at(le, "spec.holderIdentity")]),
    "events": (("Last Seen", "Type", "Reason", "Object", "Message"), _events),
    "poddisruptionbudgets.policy": (
        ("Min Available", "Max Unavailable", "Allowed Disruptions"),
        lambda pdb: [
            *map(str, _fields("spec.minAvailable", "spec.maxUnavailable", absent="N/A")(pdb)),
            *_fields("status.disruptionsAllowed")(pdb),
        ],
    ),
    "apiservices.apiregistration.k8s.io": (("Service", "Available"), _apiservices),
    "customresourcedefinitions.apiextensions.k8s.io": (
        ("Created At",),
        lambda crd: [crd["metadata"]["creationTimestamp"]],
    ),
}
