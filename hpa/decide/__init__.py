"""Replica counts, decided: pure, from frozen values to a frozen value and its reason."""

from hpa.decide.conclusion import conclude
from hpa.decide.decision import Conclusion, Decision, Outcome, Trace
from hpa.decide.observation import Observation, Past, Scale, ScaleUnreadable
from hpa.decide.reconcile import decide, replay
from hpa.decide.settings import Gates, Settings

__all__ = [
    "Conclusion",
    "Decision",
    "Gates",
    "Observation",
    "Outcome",
    "Past",
    "Scale",
    "ScaleUnreadable",
    "Settings",
    "Trace",
    "conclude",
    "decide",
    "replay",
]
