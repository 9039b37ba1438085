"""Why a decision came out as it did: pure, from a trace to reasons, facts and sentences."""

from hpa.explain.explanation import Explanation, explain, first_reason

__all__ = ["Explanation", "explain", "first_reason"]
