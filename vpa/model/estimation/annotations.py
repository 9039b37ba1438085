"""Settings that a VPA overrides for itself by annotation, which upstream has as flags only.

All begin with ``vpa.podscale.io/``. A value that cannot be read is reported and leaves the
flag in force; the rest of the VPA's annotations still count.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from podscale.core import quantity
from podscale.core.disruptions import MOST_TEXT
from podscale.core.quantity import QuantityError
from podscale.core.times import duration
from podscale.core.times.duration import DurationError
from vpa.model.amounts import Mistake
from vpa.model.estimation.estimator import EstimatorSettings, Percentiles
from vpa.model.estimation.recommendation import RecommenderSettings

PREFIX = "vpa.podscale.io/"
_RESOURCE_NAMES = (
    "target-percentile",
    "lower-bound-percentile",
    "upper-bound-percentile",
    "margin-fraction",
    "confidence-interval",
    "half-life",
)
# Every annotation that ``settings_from`` reads.
ANNOTATIONS = frozenset(
    PREFIX + name
    for name in (
        *(f"{resource}-{name}" for resource in ("cpu", "memory") for name in _RESOURCE_NAMES),
        "margin-fraction",
        "pod-min-cpu",
        "pod-min-memory",
        "cap-to-nodes",
    )
)


class HalfLives(Struct, frozen=True):
    """How fast usage is forgotten, seconds."""

    cpu_s: float = 86400.0
    memory_s: float = 86400.0


class VpaSettings(Struct, frozen=True):
    """All that may differ from VPA to VPA."""

    recommender: RecommenderSettings = RecommenderSettings()
    half_lives: HalfLives = HalfLives()
    cap_to_nodes: str = "off"  # off, existing, or file: the shapes of --cap-to-nodes=FILE
    is_autopilot: bool = False  # amounts are the recommender autopilot's


def settings_from(
    annotations: Mapping[str, str] | None, defaults: VpaSettings
) -> tuple[VpaSettings, tuple[Mistake, ...]]:
    """Return the settings of one VPA, and what could not be read."""
    if not any(key.startswith(PREFIX) for key in annotations or {}):
        return defaults, ()  # the same object: VPAs of one settings are estimated together
    given = _Given(annotations or {})
    recommender = replace(
        defaults.recommender,
        cpu=_estimator(given, "cpu", defaults.recommender.cpu),
        memory=_estimator(given, "memory", defaults.recommender.memory),
        min_cpu_milli=given.read("pod-min-cpu", _cpu, defaults.recommender.min_cpu_milli),
        min_memory_mb=given.read("pod-min-memory", _megabytes, defaults.recommender.min_memory_mb),
    )
    half_lives = HalfLives(
        given.read("cpu-half-life", _period, defaults.half_lives.cpu_s),
        given.read("memory-half-life", _period, defaults.half_lives.memory_s),
    )
    cap = given.read("cap-to-nodes", _cap, defaults.cap_to_nodes)
    settings = VpaSettings(recommender, half_lives, cap, defaults.is_autopilot)
    return settings, tuple(dict.fromkeys(given.mistakes))


T = TypeVar("T")


class _Given:
    # The annotations of one VPA, and what was wrong with those that were read.

    def __init__(self, annotations: Mapping[str, str]) -> None:
        self._annotations = annotations
        self.mistakes: list[Mistake] = []

    def read(self, name: str, parse: Callable[[str], T], default: T) -> T:
        key = PREFIX + name
        if key not in self._annotations:
            return default
        try:
            if len(self._annotations[key]) > MOST_TEXT:
                raise ValueError(f"longer than {MOST_TEXT} characters")
            return parse(self._annotations[key].strip())
        except (ValueError, DurationError, QuantityError) as error:
            said = error.advice if isinstance(error, DurationError) else str(error)
            self.mistakes.append(Mistake(key, said))
            return default


def _estimator(given: _Given, resource: str, default: EstimatorSettings) -> EstimatorSettings:
    before = default.percentiles
    percentiles = Percentiles(
        lower=given.read(f"{resource}-lower-bound-percentile", _fraction, before.lower),
        target=given.read(f"{resource}-target-percentile", _fraction, before.target),
        upper=given.read(f"{resource}-upper-bound-percentile", _fraction, before.upper),
    )
    if not percentiles.lower <= percentiles.target <= percentiles.upper:
        text = f"{resource}: percentiles must rise from lower bound over target to upper bound"
        given.mistakes.append(Mistake(f"{PREFIX}{resource}-target-percentile", text))
        percentiles = before
    margin = given.read("margin-fraction", _share, default.margin)
    return EstimatorSettings(
        percentiles=percentiles,
        margin=given.read(f"{resource}-margin-fraction", _share, margin),
        confidence_interval_s=given.read(
            f"{resource}-confidence-interval", _period, default.confidence_interval_s
        ),
    )


def _fraction(text: str) -> float:
    value = _number(text)
    if not 0.0 < value <= 1.0:
        raise ValueError(f"{text!r} is not a fraction above 0 and up to 1")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0.0 <= value <= 10.0:
        raise ValueError(f"{text!r} is not a fraction from 0 to 10")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a number") from error


def _period(text: str) -> float:
    seconds = duration.parse_go(text)
    if not 60.0 <= seconds <= 365 * 86400.0:
        raise ValueError(f"{text!r} is not between a minute and a year")
    return seconds


def _cpu(text: str) -> float:
    return float(_not_negative(text).milli)


def _megabytes(text: str) -> float:
    return _not_negative(text).value / 2**20


def _not_negative(text: str) -> quantity.Quantity:
    value = quantity.parse(text)
    if value.nano < 0:
        raise ValueError(f"{text!r} is negative")
    return value


def _cap(text: str) -> str:
    if text not in ("off", "existing", "file"):
        raise ValueError(f"{text!r} is not off, existing or file")
    return text
