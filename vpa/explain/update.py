"""Why a pod is updated, or why not: the updater's own decision, as an explanation."""

from vpa.explain.explanation import SizingExplanation, explanation
from vpa.updater.decide.decision import UpdateDecision


def explain_update(decision: UpdateDecision) -> SizingExplanation:
    """Return the reasons and facts behind a decision about one pod."""
    return explanation(decision.reasons, [decision.facts], {"action": decision.action})
