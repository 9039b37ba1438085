"""The decisions behind one workload, as marks on its timeline and in words.

Marks of scaling are made from the HPA's traces when somebody asks; what has been read once
is kept as one small value, so that a page left open does not unpack traces again and again.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from hpa.cluster.record import Key
from hpa.explain import explain
from hpa.history.decision_log import DecisionLog
from podscale.explain.explanation import Explanation, Fact
from podscale.page.state.board import ShownWorkload
from podscale.page.state.what_if import ReplayInputs, spec, trace
from podscale.page.values.json_values import ShownDecision, ShownWords
from podscale.page.values.scaling import facts, hpa_and_time_of, mark

_REMEMBERED = 4096


class LatestDecision(Struct, frozen=True):
    """The newest decision of an HPA in words."""

    sentences: Sequence[str] = ()
    change: str = ""


class DecisionTrail:
    """Reads decisions. ``traces`` None: no HPA runs in this process."""

    def __init__(self, traces: Callable[[], DecisionLog | None]) -> None:
        self._traces = traces
        self._read: dict[tuple[Key, float], ShownDecision] = {}

    def decisions(self, workload: ShownWorkload) -> list[ShownDecision]:
        """Return the marks of one workload, the newest first."""
        found = {each.key: each.shown for each in workload.marks}
        found |= {each.key: each for each in workload.rescales}
        traces = self._traces()
        if traces is None:
            return _newest_first(found.values())
        for hpa in workload.scalings:
            key = (workload.id[0], hpa)
            for at, reason in traces.changes(key):
                decision = self._read.get((key, at)) or self._decision(traces, key, at, reason)
                if decision is not None:
                    found.setdefault(decision.key, decision)
        return _newest_first(found.values())

    def known_since(self, workload: ShownWorkload) -> float | None:
        """Return since when decisions of the HPA are known."""
        traces = self._traces()
        if traces is None or not workload.hpa:
            return None
        return traces.known_since((workload.id[0], workload.hpa))

    def latest(self, workload: ShownWorkload) -> LatestDecision:
        """Return the newest decision in words."""
        traces = self._traces()
        trace = None
        if traces is not None and workload.hpa:
            trace = traces.last((workload.id[0], workload.hpa))
        if trace is not None:
            explained = explain(trace)
            return LatestDecision(explained.sentences, explained.change)
        if workload.vpa is not None:
            return LatestDecision(workload.vpa.sentences, workload.vpa.change)
        return LatestDecision()

    def inputs(self, workload: ShownWorkload) -> ReplayInputs | None:
        """Return what a replay of the load that was drawn is given; None: it is too little."""
        traces, ring = self._traces(), workload.scaling_ring
        last = None if traces is None else traces.last((workload.id[0], workload.hpa))
        if last is None or ring is None:
            return None
        hpa = last.observation.hpa
        period_s = hpa.options.sync_period_s or last.settings.sync_period_s
        found = trace(ring, hpa.max_replicas, period_s)
        if found is None:
            return None
        load, replicas = found
        return ReplayInputs(load, msgspec.json.encode(spec(hpa)), replicas)

    def told(self, workload: ShownWorkload, key: str) -> ShownWords | None:
        """Return one decision in words; None: it is not known any more."""
        for each in workload.marks:
            if each.key == key:
                return _words(each.shown, each.explained)
        traces = self._traces()
        hpa, at = hpa_and_time_of(key)
        is_its = traces is not None and hpa in workload.scalings
        trace = traces.at((workload.id[0], hpa), at) if traces is not None and is_its else None
        if trace is not None:
            explained = explain(trace)
            return _words(mark(hpa, facts(trace, explained.first_reason)), explained)
        text = "How it came about is not known any more: only the last traces are kept."
        for rescale in workload.rescales:
            if rescale.key == key:
                return _words(rescale, Explanation((rescale.reason,), {}, {}, (text,), text, ""))
        return None

    def _decision(
        self, traces: DecisionLog, key: Key, at: float, reason: str
    ) -> ShownDecision | None:
        trace = traces.at(key, at)
        if trace is None:
            return None
        shown = mark(key[1], facts(trace, reason))
        if len(self._read) >= _REMEMBERED:
            self._read.clear()
        # A mark is read at a time when the same shape may still be the newest: what it
        # says about sizes does not change with the passes that follow.
        self._read[key, at] = shown
        return shown


def _newest_first(found: Iterable[ShownDecision]) -> list[ShownDecision]:
    return sorted(found, key=lambda each: each.at, reverse=True)


def _words(shown: ShownDecision, explained: Explanation) -> ShownWords:
    return ShownWords(
        shown.key,
        shown.at,
        shown.title,
        shown.reason,
        explained.also,
        explained.sentences,
        explained.change,
        {name: _plain(fact) for name, fact in explained.facts.items()},
    )


def _plain(fact: Fact) -> str | int | float | bool | None:
    if isinstance(fact, str | int | float | bool) or fact is None:
        return fact
    if isinstance(fact, list | tuple):
        return ", ".join(str(each) for each in fact)
    return str(fact)
