"""``hpa.podscale.io``: decisions as objects. Read from the traces, explained when asked for.

The body of one, its list, and kubectl's table. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from hpa.decide.decision import Trace
from hpa.decide.observation import Scale
from hpa.explain import explain
from podscale.kube.client.wire import format_time

GROUP, VERSION = "hpa.podscale.io", "v1alpha1"
PLURAL, SINGULAR, KIND = "scalingdecisions", "scalingdecision", "ScalingDecision"
API_VERSION = f"{GROUP}/{VERSION}"


class KnownDecisions(Struct, frozen=True):
    """One decision and what is known around it."""

    namespace: str
    name: str
    trace: Trace
    reason: str
    known_since: float
    changes: Sequence[tuple[float, str]] = ()  # when, first reason
    foreign: str | None = None  # the controller that acts instead of us
    problem: str = ""  # why the object cannot be read any more; the trace is older


def body(known: KnownDecisions) -> dict[str, Any]:
    """Return the object."""
    trace = known.trace
    hpa = trace.observation.hpa
    explanation = explain(trace).to_json()
    return {
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": _metadata(known),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": hpa.target.api_version,
                "kind": hpa.target.kind,
                "name": hpa.target.name,
            },
            "minReplicas": hpa.min_replicas,
            "maxReplicas": hpa.max_replicas,
            "mode": trace.settings.mode,
        },
        "status": {
            "time": format_time(trace.now),
            "knownSince": format_time(known.known_since),
            "conditions": _conditions(known),
            **explanation,
            "history": [{"time": format_time(at), "reason": why} for at, why in known.changes],
        },
    }


def listing(items: Sequence[Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the list of bodies."""
    return {"kind": f"{KIND}List", "apiVersion": API_VERSION, "metadata": metadata,
            "items": items}  # fmt: skip


def table(rows: Sequence[Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a meta.k8s.io/v1 Table."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            _column("Name", "string", "Name of the autoscaler", 0, "name"),
            _column("Reference", "string", "What is scaled", 0),
            _column("Replicas", "string", "Size when it was decided", 0),
            _column("Decided", "string", "Size decided on", 0),
            _column("Reason", "string", "The reason that counts first", 0),
            _column("Age", "string", "How long ago it was decided", 0),
            _column("Mode", "string", "replace, or shadow: nothing is written", 1),
        ],
        "rows": rows,
    }


def row(known: KnownDecisions, now: float, *, is_whole: bool = False) -> dict[str, Any]:
    """Return the table's row; ``is_whole`` with the object, by which clients sort."""
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": _metadata(known),
    }
    return {"cells": _cells(known, now), "object": body(known) if is_whole else partial}


def _cells(known: KnownDecisions, now: float) -> list[str]:
    trace = known.trace
    hpa, scale = trace.observation.hpa, trace.observation.scale
    return [
        known.name,
        f"{hpa.target.kind}/{hpa.target.name}",
        str(scale.spec_replicas) if isinstance(scale, Scale) else "<unknown>",
        "<none>" if trace.decided is None else str(trace.decided),
        known.reason,
        f"{max(int(now - trace.now), 0)}s",
        trace.settings.mode,
    ]


def _conditions(known: KnownDecisions) -> list[dict[str, str]]:
    found = []
    if known.foreign is not None:
        found.append(
            _condition(
                "ForeignController",
                f"{known.foreign} scales this object's target: podscale only watches. "
                "Change: switch that controller off, or run podscale in shadow mode.",
            )
        )
    if known.problem:
        found.append(
            _condition(
                "SpecInvalid",
                f"{known.name} cannot be read as it is now ({known.problem}) and is not decided "
                "on any more; what follows is the last decision before. Change: correct it.",
            )
        )
    return found


def _condition(kind: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": kind, "message": message}


def _metadata(known: KnownDecisions) -> dict[str, str]:
    return {
        "name": known.name,
        "namespace": known.namespace,
        "creationTimestamp": format_time(known.trace.now),
    }


def _column(name: str, kind: str, about: str, priority: int, form: str = "") -> dict[str, Any]:
    return {
        "name": name, "type": kind, "format": form, "description": about, "priority": priority,
    }  # fmt: skip
