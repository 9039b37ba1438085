"""``hpa.podscale.io``: decisions as objects, read from traces, explained when asked for.

Served by the leader; everybody else answers 503 NotLeader.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, structs

from hpa.cluster.record import AutoscalerRecord, Key
from hpa.decide.decision import Trace
from hpa.decide.observation import Scale
from hpa.explain.explanation import explain, first_reason
from hpa.loop.controller import Controller
from podscale.core.times.rfc3339 import rfc3339
from podscale.explain.decision_api import (
    DecisionApi,
    DecisionKind,
    ListSelection,
    decision_metadata,
    not_decided_yet,
)
from podscale.kube.client.wire import UNREADABLE_MANAGER, builtins
from podscale.serving import status
from podscale.serving.apis.api import ApiResource
from podscale.serving.status import Cause, Status

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
        "scaleTargetRef": builtins(hpa.target),
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


class DecisionsApi(DecisionApi[KnownDecisions]):
    """The group over the traces of a controller; ``?at=`` asks for an earlier decision."""

    def __init__(
        self,
        controller: Controller,
        is_leader: Callable[[], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        refusal = "this replica does not decide: ask the leader"
        super().__init__(KIND, is_leader, refusal=refusal, wall=wall)
        self._controller = controller

    def _decided(self, wanted: ListSelection) -> Sequence[Key] | Status:
        catalog, traces = self._controller.catalog, self._controller.traces
        records = [
            record
            for record in (catalog.in_namespace(wanted.namespace) if wanted.namespace else catalog)
            if wanted.takes(record.key, record.written.metadata.labels)
        ]
        decided = [record.key for record in records if traces.known_since(record.key) is not None]
        undecided = (record for record in records if not record.problem)
        if not decided and (first := next(undecided, None)) is not None:
            return _undecided(first)  # a leader that has just begun never lists nothing
        return decided

    def _known(self, key: Key) -> KnownDecisions | Status:
        traces, record = self._controller.traces, self._controller.catalog.get(key)
        if record is None:
            return status.object_not_found(KIND.resource.name, key[1], group=KIND.group)
        trace = traces.last(key)
        if trace is None:
            return _undecided(record)
        return KnownDecisions(
            *key,
            trace,
            traces.reason(key),
            traces.known_since(key) or trace.now,
            traces.changes(key),
            self._controller.foreign_controller(key),
            problem=record.problem,
        )

    def _known_since(self, key: Key) -> float | None:
        return self._controller.traces.known_since(key)

    def _earlier(self, known: KnownDecisions, time_s: float) -> KnownDecisions | None:
        trace = self._controller.traces.at((known.namespace, known.name), time_s)
        if trace is None or trace.now == known.trace.now:
            return None if trace is None else known
        # Who else acts, and whether the object can be read, is known of now only.
        return structs.replace(
            known, trace=trace, reason=first_reason(trace), foreign=None, problem=""
        )

    def _body(self, known: KnownDecisions) -> dict[str, Any]:
        return body(known)

    def _cells(self, known: KnownDecisions) -> list[str]:
        return cells(known, self._wall())


def _undecided(record: AutoscalerRecord) -> Status:
    if record.problem:
        text = f"{record.key[1]} cannot be read: {record.problem}"
        return status.unavailable(
            text, causes=(Cause(reason="SpecInvalid", message=record.problem),)
        )
    return not_decided_yet(f"{record.key[1]} has not been decided on yet, wait for one sync period")
