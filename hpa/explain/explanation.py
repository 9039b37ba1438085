"""``explain``: one trace as reasons, facts and plain words, and as its JSON form."""

from typing import Any

from msgspec import Struct

from hpa.decide import Trace
from hpa.decide.steps import ForecastApplied, Paused
from hpa.explain.change import PUT_OFF, change
from hpa.explain.facts import Fact, facts
from hpa.explain.reading import ReadTrace, step_of, tell
from hpa.explain.reason_order import is_ineffective, is_put_off, reasons
from hpa.explain.sentences import sentence_of, sentences


class Explanation(Struct, frozen=True):
    """Why a decision came out as it did. Reasons are tokens of ``cases/explain.yaml``."""

    first_reason: str
    also: tuple[str, ...]
    facts: dict[str, Fact]
    why: str  # the sentence that belongs to the first reason
    sentences: tuple[str, ...]  # in the order of the decision
    change: str  # what would have to change for it to scale
    replicas: int | None  # size of the target after the pass; None: it cannot be read
    decided: int | None  # a size that could not or must not be written
    proposals: tuple[int | None, ...] | None  # per metric of the spec; None: not read
    forecast: int | None = None  # the size that a forecast asks for, where it is the larger

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form; what is not known is absent."""
        found: dict[str, Any] = {
            "first_reason": self.first_reason,
            "also": list(self.also),
            "facts": self.facts,
            "why": self.why,
            "sentences": list(self.sentences),
            "change": self.change,
        }
        if self.replicas is not None:
            found["replicas"] = self.replicas
        if self.decided is not None:
            found["decided"] = self.decided
        if self.proposals is not None:
            found["proposals"] = list(self.proposals)
        if self.forecast is not None:
            found["forecast"] = self.forecast
        return found


def explain(trace: Trace) -> Explanation:
    """Return the explanation of ``trace``. Costs a few decisions: it asks "what if"."""
    told = tell(trace)
    first, *also = reasons(told)
    known = facts(told, [first, *also])
    waits = is_put_off(told)
    forecast = step_of(trace, ForecastApplied)
    is_vain = waits or is_ineffective(told)
    return Explanation(
        first,
        tuple(also),
        known,
        sentence_of(told, first),
        tuple(sentences(told, [first, *also])),
        PUT_OFF if waits else change(told, first, known),
        _after(told, is_vain=is_vain),
        trace.decided if is_vain else None,
        tuple(each.replicas for each in told.measured) or None,
        None if forecast is None else forecast.replicas,
    )


def first_reason(trace: Trace) -> str:
    """Return the reason named first, for metrics and for what traces to keep."""
    return reasons(tell(trace))[0]


def _after(told: ReadTrace, *, is_vain: bool) -> int | None:
    decided = told.trace.decided
    if is_vain or decided is None or step_of(told.trace, Paused) is not None:
        return told.current
    return decided
