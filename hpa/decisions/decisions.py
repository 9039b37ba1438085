"""``hpa.podscale.io``: decisions as objects, read from traces, explained when asked for. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hpa.decide.decision import Trace
from hpa.decide.observation import Scale
from hpa.explain import explain
from podscale.core.times.rfc3339 import rfc3339
from podscale.kube.client.wire import UNREADABLE_MANAGER
from podscale.serving.apis.api import ApiResource
from podscale.serving.apis.decision_api import DecisionKind, decision_metadata

_UNREADABLE = (
    "Who writes this object or its target cannot be read, because metadata.managedFields nest too "
    "deep, and counts as another controller: podscale only watches. Change: empty the field by "
    """kubectl patch --type=merge -p '{"metadata":{"managedFields":[{}]}}'."""
)

KIND = DecisionKind(
    "hpa.podscale.io",
    "v1alpha1",
    ApiResource(
        "scalingdecisions", "scalingdecision", True, "ScalingDecision", ("get", "list"),
        short_names=("sd",),
    ),
    (
        ("Name", "Name of the autoscaler", 0),
        ("Reference", "What is scaled", 0),
        ("Replicas", "Size when it was decided", 0),
        ("Decided", "Size decided on", 0),
        ("Reason", "The reason that counts first", 0),
        ("Age", "How long ago it was decided", 0),
        ("Mode", "replace, or shadow: nothing is written", 1),
    ),
)  # fmt: skip


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

    @property
    def metadata(self) -> dict[str, str]:
        return decision_metadata(self.name, self.namespace, self.trace.now)


def body(known: KnownDecisions) -> dict[str, Any]:
    trace = known.trace
    hpa = trace.observation.hpa
    spec = {
        "scaleTargetRef": {
            "apiVersion": hpa.target.api_version,
            "kind": hpa.target.kind,
            "name": hpa.target.name,
        },
        "minReplicas": hpa.min_replicas,
        "maxReplicas": hpa.max_replicas,
        "mode": trace.settings.mode,
    }
    explained = explain(trace)
    told = {
        "time": rfc3339(trace.now),
        "knownSince": rfc3339(known.known_since),
        "conditions": _conditions(known),
        **explained.to_json(),
        "why": explained.why,
        "sentences": explained.sentences,
        **explained.decision,
        "history": [{"time": rfc3339(at), "reason": why} for at, why in known.changes],
    }
    return KIND.object(known.metadata, spec, told)


def cells(known: KnownDecisions, now: float) -> list[str]:
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
                _UNREADABLE
                if known.foreign == UNREADABLE_MANAGER
                else f"{known.foreign} scales this object's target: podscale only watches. "
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
