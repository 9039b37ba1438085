"""Decisions that come again: most autoscalers of ten thousand stay as they are most of the time.

What was decided last is kept with the object it was decided on. While the next pass looks at the
same, only the totals of its metrics are compared with the bounds of that decision; everything
else is decided in full.
"""

from collections.abc import Sequence

from msgspec import Struct

from hpa import statuses
from hpa.decide import Conclusion, Decision, Scale, Settings
from hpa.decide.decision import Labels
from hpa.decide.observation import MetricAnswer, Past
from hpa.decide.steady import Steady, steady, totals_of
from hpa.observe import Look


class Again(Struct, frozen=True, gc=False):
    """The same decision once more."""

    past: Past  # after it
    labels: Labels
    is_status_changed: bool


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

    def again(
        self,
        look: Look,
        answers: Sequence[MetricAnswer | None],
        past: Past,
        settings: Settings,
        now: float,
    ) -> Again | None:
        """Return the decision on ``look``; None: it has to be decided anew."""
        if look is not self.look or settings is not self.settings:
            return None
        totals = totals_of(look.hpa.metrics, answers, look.pods)
        scale = look.seen.scale
        if totals is None or not isinstance(scale, Scale):
            return None
        known = self.steady
        after = known.past(look.hpa, scale.spec_replicas, totals, past, settings, now)
        if after is None:
            return None
        is_changed = settings.mode != "shadow" and known.has_moved(totals)
        return Again(after, known.labels, is_changed)
