"""The page's questions and answers: JSON below ``/page/api/``, nothing but reading.

Decisions come from the HPA's traces when somebody asks, as marks on a timeline and in words.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from hpa.cluster.record import Key
from hpa.decide.decision import Trace
from hpa.explain.explanation import explain
from hpa.explain.reading import amount
from hpa.history.decision_log import DecisionLog
from podscale.core.ascii_text import whole_number
from podscale.core.boundedcache import BoundedCache
from podscale.explain.explanation import Explanation, Fact, Facts
from podscale.page.board import ShownWorkload, WorkloadBoard
from podscale.page.health import FeedHealth, shown_nodes
from podscale.page.listing import Query, WorkloadList, points, row
from podscale.page.sampler import PageSources
from podscale.page.shown import hpa_and_time_of, scaling_facts, scaling_mark
from podscale.page.values import STATES, Detail, Scaling, ShownDecision, ShownWords, Sizing
from podscale.page.what_if import ReplayInputs, WhatIf, load_csv, replayed_spec
from podscale.serving.http.request import Reply

_MOST_BYTES = 4 << 20  # of marks of scaling
_MARK_BYTES = 1024  # with its key
_UNIX_TIME = re.compile(r"[0-9]{1,12}(?:\.[0-9]*)?")
_JSON = "application/json"
_encoder = msgspec.json.Encoder()


class DecisionTrail:
    """Reads decisions. ``traces`` None: no HPA runs in this process."""

    def __init__(self, traces: DecisionLog | None) -> None:
        self._traces = traces
        # A page left open asks every two seconds, and a mark takes a decision made again.
        self._marks: BoundedCache[tuple[Key, float], ShownDecision] = BoundedCache(_MOST_BYTES)

    def decisions(self, workload: ShownWorkload) -> list[ShownDecision]:
        """Return the marks of one workload, the newest first."""
        found = [shown for shown, _ in workload.marks]
        if self._traces is not None:
            for hpa in workload.scalings:
                key = (workload.id[0], hpa)
                for at, reason in self._traces.changes(key):
                    mark = self._marks.get((key, at))
                    if mark is None and (trace := self._traces.at(key, at)) is not None:
                        mark = scaling_mark(hpa, scaling_facts(trace, reason))
                        self._marks.put((key, at), mark, _MARK_BYTES)
                    if mark is not None:
                        found.append(mark)
        return sorted(found, key=lambda each: each.at, reverse=True)

    def latest(self, workload: ShownWorkload) -> tuple[str, str]:
        """Return the newest decision in one sentence, and what would change it."""
        if (trace := self._last(workload)) is not None:
            explained = explain(trace)
            return explained.why, explained.change
        return ("", "") if workload.vpa is None else (workload.vpa.why, workload.vpa.change)

    def inputs(self, workload: ShownWorkload) -> ReplayInputs | None:
        """Return what a replay of the load that was drawn is given; None: it is too little."""
        last, ring = self._last(workload), workload.scaling_ring
        if last is None or ring is None:
            return None
        hpa = last.observation.hpa
        found = load_csv(ring, hpa.max_replicas, last.settings.period_of(hpa))
        if found is None:
            return None
        load, replicas = found
        return ReplayInputs(load, msgspec.json.encode(replayed_spec(hpa)), replicas)

    def told(self, workload: ShownWorkload, key: str) -> ShownWords | None:
        """Return one decision in words; None: it is not known any more."""
        for shown, explained in workload.marks:
            if shown.key == key:
                return _words(shown, explained)
        hpa, at = hpa_and_time_of(key)
        if self._traces is None or hpa not in workload.scalings:
            return None
        trace = self._traces.at((workload.id[0], hpa), at)
        if trace is None:
            return None
        explained = explain(trace)
        return _words(scaling_mark(hpa, scaling_facts(trace, explained.first_reason)), explained)

    def _last(self, workload: ShownWorkload) -> Trace | None:
        if self._traces is None or not workload.hpa:
            return None
        return self._traces.last((workload.id[0], workload.hpa))


def _words(shown: ShownDecision, explained: Explanation) -> ShownWords:
    return ShownWords(
        shown.key,
        shown.at,
        shown.title,
        shown.reason,
        explained.also,
        explained.sentences,
        explained.change,
        {name: _plain(name, fact, explained.facts) for name, fact in explained.facts.items()},
    )


_MILLI = ("target_average_value", "target_value", "average_value", "value", "values")


def _plain(name: str, fact: Fact, facts: Facts) -> str | int | float | bool | None:
    # As people read it: no braces, and no thousandths.
    if isinstance(fact, Mapping):
        return " ".join(f"{key} {_plain('', each, {})}" for key, each in fact.items())
    if isinstance(fact, Sequence) and not isinstance(fact, str):
        return ", ".join(str(_plain(name, each, facts)) for each in fact)
    if isinstance(fact, int) and name in _MILLI:
        return amount(fact, str(facts.get("resource")))
    if isinstance(fact, float):
        return int(fact) if fact.is_integer() else round(fact, 3)
    return fact


class PageRefusal(Exception):
    """What was asked for cannot be shown, with the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(eq=False)
class PageAnswers:
    """Answers by path and query."""

    board: WorkloadBoard
    feed: FeedHealth
    what_if: WhatIf
    sources: PageSources
    wall: Callable[[], float]

    def __post_init__(self) -> None:
        self._trail = DecisionTrail(self.sources.traces)
        self._lister = WorkloadList(self.board)

    def answer(self, what: str, query: Mapping[str, Sequence[str]]) -> Reply:
        """Return the answer to ``/page/api/WHAT?QUERY``."""
        try:
            return Reply(200, _JSON, _encoder.encode(self._shown(what, query)))
        except PageRefusal as refused:
            return Reply(refused.status, _JSON, _encoder.encode({"message": str(refused)}))

    def _shown(self, what: str, query: Mapping[str, Sequence[str]]) -> Struct:
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
                return shown_nodes(self.sources.nodes())
            case "feed":
                return self.feed.answer(self.wall())
        raise PageRefusal(
            404,
            f"/page/api/{what} is not there: ask for workloads, workload, decision, whatif, nodes "
            "or feed",
        )

    def _listing(self, query: Mapping[str, Sequence[str]]) -> Struct:
        state = _first(query, "state")
        if state and state not in STATES:
            raise PageRefusal(400, f"state={state} is none of {', '.join(STATES)}")
        offset = whole_number(_first(query, "offset") or "0")
        limit = whole_number(_first(query, "limit") or "25")
        if offset is None or limit is None:
            raise PageRefusal(400, "offset and limit are numbers")
        asked = Query(_first(query, "q")[:200], state, offset, limit)
        return self._lister.answer(asked, now=self.wall(), is_leader=self.sources.is_leader())

    def _detail(self, query: Mapping[str, Sequence[str]]) -> Detail:
        workload = self._workload(query)
        asked = _first(query, "since") or "0"
        if not _UNIX_TIME.fullmatch(asked):
            raise PageRefusal(400, "since is a unix time")
        since = float(asked)
        now = workload.looked_at = self.wall()
        why, change = self._trail.latest(workload)
        scaling, cpu, memory = workload.scaling_ring, workload.cpu, workload.memory
        return Detail(
            now,
            row(workload),
            None if scaling is None else Scaling(*points(scaling, since)),
            None if cpu is None else Sizing(*points(cpu, since)),
            None if memory is None else Sizing(*points(memory, since)),
            self._trail.decisions(workload),
            why,
            change,
            workload.vpa.mode if workload.vpa is not None else "",
            workload.sizing_note,
        )

    def _decision(self, query: Mapping[str, Sequence[str]]) -> ShownWords:
        workload = self._workload(query)
        told = self._trail.told(workload, _first(query, "key"))
        if told is None:
            raise PageRefusal(
                404, "this decision is not known any more: only the last ones are kept"
            )
        return told

    def _replayed(self, query: Mapping[str, Sequence[str]]) -> Struct:
        workload = self._workload(query)
        if not workload.hpa:
            raise PageRefusal(404, "no HPA scales it: there is nothing to replay")
        return self.what_if.answer(workload.id, lambda: self._trail.inputs(workload))

    def _workload(self, query: Mapping[str, Sequence[str]]) -> ShownWorkload:
        parts = _first(query, "id").split("/")
        if len(parts) != 3:
            raise PageRefusal(400, "id is NAMESPACE/KIND/NAME")
        found = self.board.get((parts[0], parts[1], parts[2]))
        if found is None:
            text = f"{'/'.join(parts)} is not scaled or sized here"
            if not self.sources.is_leader():
                text += ": another replica holds the Lease and decides"
            raise PageRefusal(404, text)
        return found


def _first(query: Mapping[str, Sequence[str]], name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""
