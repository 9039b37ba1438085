"""The decisions behind one workload, as marks on its timeline and in words.

Marks of scaling are made from the HPA's traces when somebody asks; what has been read once
is kept as one small value, so that a page left open does not unpack traces again and again.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from hpa.cluster.record import Key
from hpa.decide.decision import Trace
from hpa.explain import explain
from hpa.explain.reading import tell
from hpa.history.decision_log import DecisionLog
from podscale.page.state.board import Rescale, ShownWorkload
from podscale.page.state.drawn_load import spec, trace
from podscale.page.state.what_if import ReplayInputs
from podscale.page.values.json_values import Direction, ShownDecision, ShownWords, State
from podscale.page.values.scaling import facts, size_after
from podscale.page.values.sizing import SizingMark

_REMEMBERED = 4096
_SCALE = "scale-"


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
        found = {mark.key: _of_mark(mark) for mark in workload.marks}
        for rescale in workload.rescales:
            made = _of_rescale(rescale)
            found[made.key] = made
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
        for mark in workload.marks:
            if mark.key == key:
                return ShownWords(
                    key, mark.at, mark.title, mark.reason, mark.also, mark.sentences,
                    mark.change, {name: _plain(fact) for name, fact in mark.facts.items()},
                )  # fmt: skip
        traces = self._traces()
        hpa, at = _hpa_and_time_of(key)
        is_its = traces is not None and hpa in workload.scalings
        trace = traces.at((workload.id[0], hpa), at) if traces is not None and is_its else None
        if trace is None:
            return _without_trace(workload, key)
        explained = explain(trace)
        return ShownWords(
            key,
            trace.now,
            _title(trace),
            explained.first_reason,
            explained.also,
            explained.sentences,
            explained.change,
            {name: _plain(fact) for name, fact in explained.facts.items()},
        )

    def _decision(
        self, traces: DecisionLog, key: Key, at: float, reason: str
    ) -> ShownDecision | None:
        trace = traces.at(key, at)
        if trace is None:
            return None
        state = facts(trace, reason).state
        made = ShownDecision(
            _key(key[1], at), at, "scale", _title(trace), reason, _direction(trace, state)
        )
        if len(self._read) >= _REMEMBERED:
            self._read.clear()
        # A mark is read at a time when the same shape may still be the newest: what it
        # says about sizes does not change with the passes that follow.
        self._read[key, at] = made
        return made


def _newest_first(found: Iterable[ShownDecision]) -> list[ShownDecision]:
    return sorted(found, key=lambda each: each.at, reverse=True)


def _title(trace: Trace) -> str:
    told = tell(trace)
    before, after = told.current, size_after(told)
    if before is None or after is None:
        return "size not known"
    if before != after:
        return f"{before} → {after} replicas"
    wants = told.chosen.replicas if told.chosen is not None else None
    if wants is not None and wants != after:
        return f"stays at {after}, metrics ask for {wants}"
    return f"stays at {after}"


def _direction(trace: Trace, state: State) -> Direction:
    if state == "failing":
        return "failed"
    told = tell(trace)
    before, after = told.current, size_after(told)
    if before is None or after is None or before == after:
        return "held"
    return "up" if after > before else "down"


def _without_trace(workload: ShownWorkload, key: str) -> ShownWords | None:
    for rescale in workload.rescales:
        if _key(rescale.hpa, rescale.at) == key:
            text = "How it came about is not known any more: only the last traces are kept."
            return ShownWords(
                key, rescale.at, rescale.title, rescale.reason, (), (text,), "", {}
            )  # fmt: skip
    return None


def _of_rescale(rescale: Rescale) -> ShownDecision:
    direction: Direction = "up" if rescale.after > rescale.before else "down"
    return ShownDecision(
        _key(rescale.hpa, rescale.at),
        rescale.at,
        "scale",
        rescale.title,
        rescale.reason,
        direction,
    )


def _key(hpa: str, at: float) -> str:
    return f"{_SCALE}{at!r}-{hpa}"


def _of_mark(mark: SizingMark) -> ShownDecision:
    return ShownDecision(mark.key, mark.at, mark.kind, mark.title, mark.reason, mark.direction)


def _hpa_and_time_of(key: str) -> tuple[str, float]:
    # Of a key of scaling; no HPA where it is none.
    at, _, hpa = key.removeprefix(_SCALE).partition("-")
    try:
        return hpa, float(at)
    except ValueError:
        return "", 0.0


def _plain(fact: object) -> str | int | float | bool | None:
    if isinstance(fact, str | int | float | bool) or fact is None:
        return fact
    if isinstance(fact, list | tuple):
        return ", ".join(str(each) for each in fact)
    return str(fact)
