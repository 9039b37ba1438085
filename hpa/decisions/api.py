"""The API group of decisions, served by the leader; everybody else answers 503 NotLeader.

``?at=`` asks for an earlier decision; ``?story=true`` for what the autoscaler's machine was
told and made of it, beside the decision.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs, to_builtins

from hpa.decide.decision import Trace
from hpa.decisions import decisions
from hpa.decisions.decisions import KnownDecisions
from hpa.explain import first_reason
from hpa.loop.controller import Controller
from hpa.machine.record import AutoscalerRecord, Key
from podscale.kube.client.wire import format_time
from podscale.serving import status
from podscale.serving.apis.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.apis.leader_api import RETRY_S, LeaderApi, asked_time
from podscale.serving.apis.list_selection import listed, made
from podscale.serving.status import Cause, Status


class DecisionsApi(LeaderApi):
    """The group over the traces of a controller."""

    def __init__(
        self,
        controller: Controller,
        is_leader: Callable[[], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(
            decisions.GROUP,
            decisions.VERSION,
            ApiResource(
                decisions.PLURAL,
                decisions.SINGULAR,
                True,
                decisions.KIND,
                ("get", "list"),
                short_names=("sd",),
            ),
            is_leader=is_leader,
            refusal="this replica does not decide: ask the leader",
            answer=self._answered,
        )
        self._controller = controller
        self._wall = wall

    def _answered(self, request: ApiRequest) -> Answered | Awaitable[Answered]:
        if request.info.verb == "get":
            return self._one(request)
        return self._several(request)

    def _one(self, request: ApiRequest) -> Answered:
        info = request.info
        record = self._controller.catalog.get((info.namespace, info.name))
        if record is None:
            return status.object_not_found(decisions.PLURAL, info.name, group=decisions.GROUP)
        trace = self._controller.traces.last(record.key)
        if trace is None:
            return _undecided(record)
        known = self._known(record, trace)
        text = request.parameter("at")
        if text:
            found = self._at(record, text)
            if isinstance(found, Status):
                return found
            if found.now != trace.now:
                # Who else acts, and whether the object can be read, is known of now only.
                known = structs.replace(
                    known, trace=found, reason=first_reason(found), foreign=None, problem=""
                )
        if request.media.as_table:
            return ApiResponse(value=decisions.table([self._row(known, request)], {}))
        body = decisions.body(known)
        if request.parameter("story") == "true":
            body["status"]["story"] = to_builtins(self._controller.story(record))
        return ApiResponse(value=body)

    async def _several(self, request: ApiRequest) -> Answered:
        wanted = listed(request)
        if isinstance(wanted, Status):
            return wanted
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
        page = wanted.page(decided)
        as_table = request.media.as_table

        def make(key: Key) -> dict[str, Any] | None:
            record, trace = catalog.get(key), traces.last(key)
            if record is None or trace is None:
                return None
            known = self._known(record, trace)
            return self._row(known, request) if as_table else decisions.body(known)

        put_together = decisions.table if as_table else decisions.listing
        return ApiResponse(value=put_together(await made(page.keys, make), page.metadata))

    def _row(self, known: KnownDecisions, request: ApiRequest) -> dict[str, Any]:
        is_whole = request.parameter("includeObject") == "Object"
        return decisions.row(known, self._wall(), is_whole=is_whole)

    def _known(self, record: AutoscalerRecord, trace: Trace) -> KnownDecisions:
        traces = self._controller.traces
        return KnownDecisions(
            *record.key,
            trace,
            traces.reason(record.key),
            traces.known_since(record.key) or trace.now,
            traces.changes(record.key),
            self._controller.foreign_controller(record.key),
            problem=record.problem,
        )

    def _at(self, record: AutoscalerRecord, text: str) -> Trace | Status:
        time_s = asked_time(text, self._wall())
        if isinstance(time_s, Status):
            return time_s
        trace = self._controller.traces.at(record.key, time_s)
        if trace is not None:
            return trace
        since = self._controller.traces.known_since(record.key)
        text = (
            f"decisions about {record.key[1]} are known from {format_time(since or 0)} on: the "
            "last changes are kept that fit into 8 KB, and none over a restart or a new leader; "
            "ask for a later time"
        )
        return status.not_found(text, name=record.key[1], group=decisions.GROUP)


def _undecided(record: AutoscalerRecord) -> Status:
    if record.problem:
        text = f"{record.key[1]} cannot be read: {record.problem}"
        return status.unavailable(
            text, causes=(Cause(reason="SpecInvalid", message=record.problem),)
        )
    return status.unavailable(
        f"{record.key[1]} has not been decided on yet, wait for one sync period",
        causes=(Cause(reason="NotDecidedYet", message="the leader has just begun"),),
        retry_after_s=RETRY_S,
    )
