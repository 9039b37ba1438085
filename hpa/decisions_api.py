"""The API group of decisions, served by the leader; everybody else answers 503 NotLeader."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime

from hpa import decisions
from hpa.catalog import Entry
from hpa.controller import Controller
from hpa.decide.decision import Trace
from hpa.decisions import Known
from podscale.core import selector as selectors
from podscale.core.duration import DurationError, parse_go
from podscale.kube.wire import format_time
from podscale.serving import status
from podscale.serving.api import Answered, ApiRequest, ApiResource, ApiResponse
from podscale.serving.leader_api import RETRY_S, LeaderApi
from podscale.serving.status import Cause, Status

_AHEAD_S = 60.0  # as far as clocks may differ
_PAGE = 10  # explanations between two looks of the loop at others


class DecisionsApi(LeaderApi):
    """The group over the traces of a controller; ``?at=`` asks for an earlier decision."""

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
        entry = self._controller.catalog.get((info.namespace, info.name))
        if entry is None:
            return status.object_not_found(decisions.PLURAL, info.name, group=decisions.GROUP)
        trace = self._controller.traces.last(entry.key)
        if trace is None:
            return _undecided(entry)
        text = request.parameter("at")
        if text:
            found = self._at(entry, text)
            if isinstance(found, Status):
                return found
            trace = found
        known = self._known(entry, trace)
        if request.media.as_table:
            return ApiResponse(value=decisions.table([known], self._wall()))
        return ApiResponse(value=decisions.body(known))

    async def _several(self, request: ApiRequest) -> Answered:
        try:
            entries = list(self._selected(request))
        except selectors.SelectorError as error:
            return status.bad_request(str(error))
        found = []
        for index, entry in enumerate(entries):
            if index % _PAGE == _PAGE - 1:
                await asyncio.sleep(0)
            trace = self._controller.traces.last(entry.key)
            if trace is not None:
                found.append(self._known(entry, trace))
        if request.media.as_table:
            return ApiResponse(value=decisions.table(found, self._wall()))
        items = []
        for index, known in enumerate(found):
            if index % _PAGE == _PAGE - 1:
                await asyncio.sleep(0)
            items.append(decisions.body(known))
        return ApiResponse(value=decisions.listing(items))

    def _selected(self, request: ApiRequest) -> Iterable[Entry]:
        namespace, name = request.info.namespace, request.info.name
        catalog = self._controller.catalog
        wanted = selectors.parse(request.parameter("labelSelector"))
        entries = catalog.in_namespace(namespace) if namespace else list(catalog)
        for entry in sorted(entries, key=lambda entry: entry.key):
            if name and entry.key[1] != name:
                continue
            if wanted.matches(entry.written.metadata.labels or {}):
                yield entry

    def _known(self, entry: Entry, trace: Trace) -> Known:
        traces = self._controller.traces
        return Known(
            *entry.key,
            trace,
            traces.reason(entry.key),
            traces.known_since(entry.key) or trace.now,
            traces.changes(entry.key),
            self._controller.foreign_controller(entry.key),
        )

    def _at(self, entry: Entry, text: str) -> Trace | Status:
        now = self._wall()
        time_s = read_time(text, now)
        if time_s is None:
            return status.bad_request(
                f"at={text} is neither a time (2026-11-21T10:00:00Z) nor an age (5m)"
            )
        if time_s > now + _AHEAD_S:
            return status.bad_request(f"at={text} lies ahead: it is {format_time(now)}")
        trace = self._controller.traces.at(entry.key, time_s)
        if trace is not None:
            return trace
        since = self._controller.traces.known_since(entry.key)
        text = (
            f"decisions about {entry.key[1]} are known from {format_time(since or 0)} on: the "
            "last changes are kept that fit into 8 KB, and none over a restart or a new leader; "
            "ask for a later time"
        )
        return status.not_found(text, name=entry.key[1], group=decisions.GROUP)


def read_time(text: str, now: float) -> float | None:
    """Return unix seconds of an RFC 3339 time, or of an age in Go's notation."""
    try:
        return now - parse_go(text)
    except DurationError:
        pass
    try:
        found = datetime.fromisoformat(text.replace(" ", "+"))
    except ValueError:
        return None
    return found.timestamp() if found.tzinfo is not None else None


def _undecided(entry: Entry) -> Status:
    if entry.problem:
        text = f"{entry.key[1]} cannot be read: {entry.problem}"
        return status.unavailable(
            text, causes=(Cause(reason="SpecInvalid", message=entry.problem),)
        )
    return status.unavailable(
        f"{entry.key[1]} has not been decided on yet, wait for one sync period",
        causes=(Cause(reason="NotDecidedYet", message="the leader has just begun"),),
        retry_after_s=RETRY_S,
    )
