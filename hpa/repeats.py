"""Decisions that come again: most autoscalers of ten thousand stay as they are most of the time.

What was decided last is kept with the object it was decided on. While the next pass looks at the
same, only the totals of its metrics are compared with the bounds of that decision, a page of
autoscalers at once; everything else is decided in full.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from hpa import statuses
from hpa.asking import Given
from hpa.catalog import Entry, Key
from hpa.decide import Conclusion, Decision, Settings
from hpa.decide.steady import Steady, are_within, steady, totals_of
from hpa.memory import Memory
from hpa.moments import Moments
from hpa.observe import Look
from hpa.rest import Rested
from hpa.selfmetrics import HpaMetrics
from hpa.traces import Traces


class Repeat(Struct, frozen=True, eq=False, gc=False):
    """One decision, and what it was made on."""

    look: Look
    settings: Settings
    steady: Steady

    @classmethod
    def of(
        cls, look: Look, decision: Decision, conclusion: Conclusion, *, deadband: float
    ) -> "Repeat | None":
        """Return what may come again, of a decision after which nothing had to be written."""
        settings = decision.trace.settings
        margins = None
        if settings.mode != "shadow":
            margins = statuses.margins(look.hpa, conclusion.status, deadband)
            if margins is None:
                return None
        found = steady(decision, margins)
        return None if found is None else cls(look, settings, found)


class _Found(Struct, gc=False):
    """An autoscaler that is looked at as it was when it was decided on last."""

    place: int  # in the page
    look: Look
    answers: Given
    repeat: Repeat
    totals: list[int]


class Repeats:
    """Repeats decisions for one term of leadership."""

    def __init__(
        self,
        *,
        memory: Memory,
        traces: Traces,
        moments: Moments,
        metrics: HpaMetrics,
        settings: Callable[[Key, float], Settings],
        release: Callable[[Entry], None],
        fail: Callable[[Entry], None],
    ) -> None:
        """``settings`` returns those that hold for an object at a time. ``release`` is told that
        a pass has ended, ``fail`` (which releases as well) from within an exception."""
        self._memory = memory
        self._traces = traces
        self._moments = moments
        self._metrics = metrics
        self._settings = settings
        self._release = release
        self._fail = fail

    def of(
        self, page: Sequence[tuple[Look, Given]], now: float, seconds: float
    ) -> list[tuple[Look, Given]]:
        """Finish the passes whose decision is the one before it but for its numbers; returns the
        others, in order. ``seconds`` is for how long these passes have gone on."""
        if self._traces.is_followed:
            return list(page)  # who follows is told of every step
        found = [
            each
            for place, (look, answers) in enumerate(page)
            if (each := self._found(place, look, answers, now)) is not None
        ]
        if not found:
            return list(page)
        totals = [each.totals for each in found]
        decides = are_within(totals, [each.repeat.steady.bounds for each in found])
        shows = are_within(
            totals, [each.repeat.steady.unmoved or each.repeat.steady.bounds for each in found]
        )
        done: set[int] = set()
        repeated: list[tuple[_Found, str, float]] = []
        for each, is_within, is_same in zip(found, decides, shows, strict=True):
            entry, looked_at = each.look.entry, each.look.entry.looked_at
            try:
                reason = self._repeated(each, now, is_same=is_same) if is_within else None
            except Exception:  # noqa: BLE001 - a bug met by one object must not stop the others
                entry.repeat = None
                self._fail(entry)
                done.add(each.place)
                continue
            if reason is None:
                continue
            self._metrics.saved += not is_same
            repeated.append((each, reason, looked_at))
            done.add(each.place)
            self._release(entry)
        self._count(repeated, now, seconds)
        return [each for place, each in enumerate(page) if place not in done]

    def _count(
        self, repeated: Sequence[tuple[_Found, str, float]], now: float, seconds: float
    ) -> None:
        """Count passes with their reasons and when their objects were decided on before."""
        self._metrics.repeated += len(repeated)
        # By identity: equal ones are one object, and a hash of one costs more than all the rest.
        labels = [each.repeat.steady.labels for each, _, _ in repeated]
        named = {id(each): each for each in labels}
        for key, times in Counter(map(id, labels)).items():
            self._metrics.passed(named[key], seconds, times)
        for reason, times in Counter(reason for _, reason, _ in repeated).items():
            self._metrics.decided(reason, times)
        for looked_at, times in Counter(looked_at for _, _, looked_at in repeated).items():
            self._metrics.gap.add((), max(now - looked_at, 0.0), times)

    def _found(self, place: int, look: Look, answers: Given, now: float) -> _Found | None:
        repeat = look.entry.repeat
        if not isinstance(repeat, Repeat) or repeat.look is not look:
            return None
        if repeat.settings is not self._settings(look.entry.key, now):
            return None
        totals = totals_of(look.hpa.metrics, answers, look.pods)
        return None if totals is None else _Found(place, look, answers, repeat, totals)

    def _repeated(self, found: _Found, now: float, *, is_same: bool) -> str | None:
        """Keep the decision once more; returns its reason. None: it has to be decided anew."""
        entry = found.look.entry
        if not is_same and self._moments.is_refresh_due(entry.key, now):
            return None
        settings = found.repeat.settings
        is_stored = settings.mode != "shadow"
        rest = self._memory.rest(entry, found.repeat.steady, now, is_stored=is_stored)
        if rest is None:
            return None
        rested = Rested(found.look, found.answers, rest, len(rest.added), settings)
        reason = self._traces.repeat(entry.key, rested, now)
        entry.looked_at = now
        return reason
