"""What the runners of vpa.yaml's cases share."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from podscale.core import quantity
from podscale.kube.objects.vpa import VpaRecommendation, decode
from vpa.model.estimation.status import recommendation_wire
from vpa.model.histograms.matrix import ZERO_TIME

Json = Any
Run = Callable[[dict[str, Json]], dict[str, Json]]


class Given(dict[str, Json]):
    """What a case states; what it leaves out is None, as a default of Go's is."""

    def __missing__(self, key: str) -> None:
        return None


def seconds(text: str | None) -> float:
    """Return unix seconds; the zero time for null."""
    if text is None:
        return ZERO_TIME
    return datetime.fromisoformat(str(text)).timestamp()


def stamp(time_s: float) -> float | None:
    """Return None for the zero time, else the time."""
    return None if time_s in (ZERO_TIME, math.inf) else time_s


def shown_recommendation(found: VpaRecommendation | None) -> Json:
    return recommendation_wire(found) if found is not None else None


def amount(text: str | None) -> quantity.Quantity | None:
    return quantity.parse(text) if text is not None else None


def decoded(value: Json, kind: Any) -> Any:
    return decode(value, kind) if value is not None else None
