"""One step left out of a decision, for the question whether it mattered.

A reason is binding if the number would be another one without it alone; the explanation
finds out by deciding again under a variation. Controllers always decide as it ``ACTUAL``ly is.
"""

from typing import Literal

from msgspec import Struct

Bucket = Literal["missing", "pending", "initializing", "never_ready"]


class Variation(Struct, frozen=True):
    """Which steps take place."""

    tolerance: bool = True
    window: bool = True
    rate: bool = True
    bound: bool = True
    forecast: bool = True
    schedule: bool = True
    ready_only: bool = True  # a Value target multiplies by ready pods only
    averaged: Bucket | None = None  # pods of this bucket count as the average of the others


ACTUAL = Variation()
