"""Why the size of a workload stays, waits or has moved: tokens in words. Pure."""

from collections.abc import Mapping
from typing import Literal

SizeReason = Literal[
    "AnchorAdopted",
    "HorizontalIdle",
    "HorizontalMoving",
    "EstimatesSettling",
    "DayNotSeen",
    "SizedLately",
    "WithinBounds",
    "EnergyWouldRise",
    "PodsMissing",
    "OutsideBounds",
    "OutsideComfort",
]

REASONS: Mapping[SizeReason, str] = {
    "AnchorAdopted": "it has just been written, as what pods request",
    "HorizontalIdle": "it stays: the HPA is paused, has no metrics, or has not seen it yet",
    "HorizontalMoving": "it stays: the HPA has rescaled lately",
    "EstimatesSettling": "it stays: what is known is still of pods of another size",
    "DayNotSeen": "it stays: the load has not been watched for long enough",
    "SizedLately": "it stays: the size has changed lately",
    "WithinBounds": "it stays: the size lies within the bounds of the VPA",
    "EnergyWouldRise": "it stays: another size would reserve more, or lack more",
    "PodsMissing": "it waits: there are not as many pods yet as that size needs",
    "OutsideBounds": "it has just moved: the size lay outside the bounds of the VPA",
    "OutsideComfort": "it has just moved: replicas lay outside the comfort band",
}
