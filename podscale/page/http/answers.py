"""The page's questions and answers: JSON below ``/page/api/``, nothing but reading."""

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from podscale.core.ascii_text import whole_number
from podscale.nodes.rounds import DecidedNodes
from podscale.page.http.decision_trail import DecisionTrail
from podscale.page.http.listing import Query, WorkloadList
from podscale.page.http.nodes import shown_nodes
from podscale.page.http.rows import points, row
from podscale.page.state.board import ShownWorkload, WorkloadBoard
from podscale.page.state.feed_health import FeedHealth
from podscale.page.state.what_if import WhatIf
from podscale.page.values.json_values import STATES, Detail, Scaling, Sizing

_UNIX_TIME = re.compile(r"[0-9]{1,12}(?:\.[0-9]*)?")
_encoder = msgspec.json.Encoder()


class PageAnswer(Struct, frozen=True):
    """A status and a JSON body."""

    status: int
    body: bytes


class PageAnswers:
    """Answers by path and query."""

    def __init__(
        self,
        board: WorkloadBoard,
        trail: DecisionTrail,
        feed: FeedHealth,
        *,
        wall: Callable[[], float],
        is_leader: Callable[[], bool],
        what_if: WhatIf,
        nodes: Callable[[], DecidedNodes | None],
    ) -> None:
        self._board = board
        self._what_if = what_if
        self._trail = trail
        self._feed = feed
        self._nodes = nodes
        self._wall = wall
        self._is_leader = is_leader
        self._lister = WorkloadList(board)

    def answer(self, what: str, query: Mapping[str, Sequence[str]]) -> PageAnswer:
        """Return the answer to ``/page/api/WHAT?QUERY``."""
        match what:
            case "workloads":
                return self._listing(query)
            case "workload":
                return self._detail(query)
            case "decision":
                return self._decision(query)
            case "whatif":
                return self._replayed(query)
            case "nodes":
                return _found(shown_nodes(self._nodes()))
            case "feed":
                return _found(self._feed.answer(self._wall()))
        return _refused(
            404,
            f"/page/api/{what} is not there: ask for workloads, workload, decision, whatif, nodes "
            "or feed",
        )

    def _listing(self, query: Mapping[str, Sequence[str]]) -> PageAnswer:
        state = _first(query, "state")
        if state and state not in STATES:
            return _refused(400, f"state={state} is none of {', '.join(STATES)}")
        offset = whole_number(_first(query, "offset") or "0")
        limit = whole_number(_first(query, "limit") or "25")
        if offset is None or limit is None:
            return _refused(400, "offset and limit are numbers")
        asked = Query(_first(query, "q")[:200], _first(query, "namespace"), state, offset, limit)
        return _found(self._lister.answer(asked, now=self._wall(), is_leader=self._is_leader()))

    def _detail(self, query: Mapping[str, Sequence[str]]) -> PageAnswer:
        workload = self._workload(query)
        if isinstance(workload, PageAnswer):
            return workload
        asked = _first(query, "since") or "0"
        if not _UNIX_TIME.fullmatch(asked):
            return _refused(400, "since is a unix time")
        since = float(asked)
        now = workload.looked_at = self._wall()
        latest = self._trail.latest(workload)
        scaling, cpu, memory = workload.scaling_ring, workload.cpu, workload.memory
        return _found(
            Detail(
                now,
                row(workload),
                None if scaling is None else Scaling(*points(scaling, since)),
                None if cpu is None else Sizing(*points(cpu, since)),
                None if memory is None else Sizing(*points(memory, since)),
                self._trail.decisions(workload),
                self._trail.known_since(workload),
                latest.sentences,
                latest.change,
                workload.vpa.mode if workload.vpa is not None else "",
                workload.sizing_note,
            )
        )

    def _decision(self, query: Mapping[str, Sequence[str]]) -> PageAnswer:
        workload = self._workload(query)
        if isinstance(workload, PageAnswer):
            return workload
        told = self._trail.told(workload, _first(query, "key"))
        if told is None:
            return _refused(404, "this decision is not known any more: only the last ones are kept")
        return _found(told)

    def _replayed(self, query: Mapping[str, Sequence[str]]) -> PageAnswer:
        workload = self._workload(query)
        if isinstance(workload, PageAnswer):
            return workload
        if not workload.hpa:
            return _refused(404, "no HPA scales it: there is nothing to replay")
        return _found(self._what_if.answer(workload.id, lambda: self._trail.inputs(workload)))

    def _workload(self, query: Mapping[str, Sequence[str]]) -> ShownWorkload | PageAnswer:
        parts = _first(query, "id").split("/")
        if len(parts) != 3:
            return _refused(400, "id is NAMESPACE/KIND/NAME")
        found = self._board.get((parts[0], parts[1], parts[2]))
        if found is None:
            other = "" if self._is_leader() else ": another replica holds the Lease and decides"
            return _refused(404, f"{'/'.join(parts)} is not scaled or sized here{other}")
        return found


def _found(value: Struct) -> PageAnswer:
    return PageAnswer(200, _encoder.encode(value))


def _refused(status: int, message: str) -> PageAnswer:
    return PageAnswer(status, _encoder.encode({"message": message}))


def _first(query: Mapping[str, Sequence[str]], name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""
