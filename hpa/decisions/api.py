"""The API group of decisions, served by the leader; everybody else answers 503 NotLeader.

``?at=`` asks for an earlier decision.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from hpa.cluster.record import AutoscalerRecord, Key
from hpa.decisions import decisions
from hpa.decisions.decisions import KIND, KnownDecisions
from hpa.explain import first_reason
from hpa.loop.controller import Controller
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResponse
from podscale.serving.apis.decision_api import DecisionApi, not_decided_yet
from podscale.serving.apis.list_selection import ListSelection
from podscale.serving.status import Cause, Status


class DecisionsApi(DecisionApi[KnownDecisions]):
    """The group over the traces of a controller."""

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

    def _one(self, request: ApiRequest) -> Answered:
        key = (request.info.namespace, request.info.name)
        record = self._controller.catalog.get(key)
        if record is None:
            return status.object_not_found(KIND.resource.name, key[1], group=KIND.group)
        known = self._known(key)
        if known is None:
            return _undecided(record)
        text, traces = request.parameter("at"), self._controller.traces
        if text:
            since = traces.known_since(key)
            found = self._at(record.key[1], text, partial(traces.at, key), since)
            if isinstance(found, Status):
                return found
            if found.now != known.trace.now:
                # Who else acts, and whether the object can be read, is known of now only.
                known = structs.replace(
                    known, trace=found, reason=first_reason(found), foreign=None, problem=""
                )
        if request.media.as_table:
            return ApiResponse(value=KIND.table([self._row(known, request)], {}))
        return ApiResponse(value=self._body(known))

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

    def _known(self, key: Key) -> KnownDecisions | None:
        traces, record = self._controller.traces, self._controller.catalog.get(key)
        trace = traces.last(key)
        if record is None or trace is None:
            return None
        return KnownDecisions(
            *key,
            trace,
            traces.reason(key),
            traces.known_since(key) or trace.now,
            traces.changes(key),
            self._controller.foreign_controller(key),
            problem=record.problem,
        )

    def _body(self, known: KnownDecisions) -> dict[str, Any]:
        return decisions.body(known)

    def _cells(self, known: KnownDecisions) -> list[str]:
        return decisions.cells(known, self._wall())


def _undecided(record: AutoscalerRecord) -> Status:
    if record.problem:
        text = f"{record.key[1]} cannot be read: {record.problem}"
        return status.unavailable(
            text, causes=(Cause(reason="SpecInvalid", message=record.problem),)
        )
    return not_decided_yet(f"{record.key[1]} has not been decided on yet, wait for one sync period")
