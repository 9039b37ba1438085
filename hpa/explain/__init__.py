"""Why a decision came out as it did: pure, from a trace to reasons, facts and sentences."""

from hpa.explain.explanation import explain, first_reason

__all__ = ["explain", "first_reason"]
