"""What is left of a pass that changed nothing: its time, and the answers it was decided on.

The past and the trace of it are made when somebody asks for them, which of ten thousand
autoscalers hardly anybody does.
"""

from msgspec import Struct, structs

from hpa.decide import Settings, decide
from hpa.decide.decision import DONE, Trace
from hpa.decide.observation import MetricAnswer, Past, Recommendation
from hpa.decide.steady import repeated
from hpa.observe import Look


class Rest(Struct, eq=False, gc=False):
    """A past to which one number is added again and again."""

    before: Past
    window_s: float  # for how long a recommendation may count
    added: list[Recommendation]  # in order of time, the same number each; not empty

    def past(self, count: int | None = None) -> Past:
        """Return the past with the first ``count`` of those added; None: with all."""
        return repeated(self.before, self.added[:count], self.window_s)


class Rested(Struct, frozen=True, eq=False, gc=False):
    """One decision that was made again, in place of its trace."""

    look: Look
    answers: tuple[MetricAnswer | None, ...]
    rest: Rest
    count: int  # of those added to ``rest``, this one included
    settings: Settings

    def trace(self) -> Trace:
        """Return the trace."""
        past, now = self.rest.past(self.count - 1), self.rest.added[self.count - 1].at
        made = decide(self.look.observation(self.answers), past, self.settings, now).trace
        return structs.replace(made, outcome=DONE, outcome_at=now)
