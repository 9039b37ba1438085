"""The ``podscale.io/`` annotations of one object, read once per change.

What cannot be read, or is no setting, is left out and named in ``problems``: a typing error in
one annotation must not stop the object.
"""

import re
from collections.abc import Mapping

import msgspec

from hpa.decide.api.schedules import read_schedules
from hpa.decide.api.spec import Fallback, Options
from podscale.coordinate.comfort import ComfortError, parse_comfort
from podscale.core.json_decoder import JsonDecoder
from podscale.core.settings import (
    COMFORT,
    COORDINATE,
    FALLBACK,
    FORECAST,
    MAY_LOWER,
    PAUSED,
    PODS_BY,
    PREFIX,
    SCHEDULE,
    SYNC_PERIOD,
    unknown_settings,
)
from podscale.core.times.duration import DurationError, parse_go

SHORTEST_PERIOD_S = 1.0
LONGEST_PERIOD_S = 3600.0  # the range of KEP-6003

MOST_PROBLEMS = 10  # that are named: an annotation may have thousands
_MOST_SHOWN = 200  # characters of one

_DEFAULTS = Options()
_NAMED = JsonDecoder(dict[str, msgspec.Raw])
_TEXT = JsonDecoder(str)
_FALLBACK = re.compile(r"(hold)|last:(.+)|replicas:([0-9]{1,9})")


def read_options(annotations: Mapping[str, str], max_replicas: int | None = None) -> Options:
    """Return the settings that ``annotations`` write down, of an object with ``max_replicas``."""
    if not any(key.startswith(PREFIX) for key in annotations):
        return _DEFAULTS
    problems: list[str] = []
    refused: list[str] = []
    schedules = read_schedules(annotations.get(SCHEDULE), max_replicas, refused, problems)
    return Options(
        is_paused=_flag(annotations, PAUSED, problems),
        sync_period_s=_period(annotations, problems),
        fallbacks=_fallbacks(annotations, problems),
        may_lower=_flag(annotations, MAY_LOWER, problems),
        pods_by_owner=_by_owner(annotations, problems),
        coordinates=_coordinates(annotations, problems),
        schedules=schedules,
        refused_schedule=next(iter(_shown(refused)), ""),
        forecasts=_forecasts(annotations, problems),
        problems=_shown([*refused, *problems, *unknown_settings(annotations)]),
    )


def _shown(problems: list[str]) -> tuple[str, ...]:
    found = [
        text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
        for text in problems[:MOST_PROBLEMS]
    ]
    more = len(problems) - len(found)
    return (*found, f"and {more} more of the kind") if more else tuple(found)


def _flag(annotations: Mapping[str, str], key: str, problems: list[str]) -> bool:
    text = annotations.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        problems.append(f"{key}: {text!r} is neither true nor false")
    return text == "true"


def _by_owner(annotations: Mapping[str, str], problems: list[str]) -> bool:
    text = annotations.get(PODS_BY, "labels")
    if text not in ("owner", "labels"):
        problems.append(f"{PODS_BY}: {text!r} is neither owner nor labels")
    return text == "owner"


def _forecasts(annotations: Mapping[str, str], problems: list[str]) -> bool:
    text = annotations.get(FORECAST)
    if text not in (None, "auto"):
        problems.append(f"{FORECAST}: {text!r} is not auto, and there is nothing else")
    return text == "auto"


def _coordinates(annotations: Mapping[str, str], problems: list[str]) -> bool | None:
    try:
        parse_comfort(annotations.get(COMFORT))
    except ComfortError as error:
        problems.append(f"{COMFORT}: {error}")
    text = annotations.get(COORDINATE)
    if text not in (None, "on", "off"):
        problems.append(f"{COORDINATE}: {text!r} is neither on nor off")
    return {"on": True, "off": False}.get(text or "")


def _period(annotations: Mapping[str, str], problems: list[str]) -> float | None:
    text = annotations.get(SYNC_PERIOD)
    if text is None:
        return None
    try:
        period = parse_go(text)
    except DurationError as error:
        problems.append(f"{SYNC_PERIOD}: {error.advice}")
        return None
    if not SHORTEST_PERIOD_S <= period <= LONGEST_PERIOD_S:
        problems.append(f"{SYNC_PERIOD}: {text} is not between 1s and 1h")
        return None
    return period


def _fallbacks(
    annotations: Mapping[str, str], problems: list[str]
) -> tuple[tuple[str, Fallback], ...]:
    text = annotations.get(FALLBACK)
    if text is None:
        return ()
    try:
        written = _NAMED.decode(text)
    except msgspec.ValidationError:
        problems.append(f"{FALLBACK}: not an object of metric names")
        return ()
    except msgspec.DecodeError as error:
        problems.append(f"{FALLBACK}: not JSON: {error}")
        return ()
    found = []
    for metric, raw in sorted(written.items()):
        fallback = _fallback(raw)
        if fallback is None:
            value = bytes(raw).decode(errors="replace")
            problems.append(
                f"{FALLBACK}: {metric}: {value} is none of hold, last:DURATION, replicas:N"
            )
        else:
            found.append((metric, fallback))
    return tuple(found)


def _fallback(raw: msgspec.Raw) -> Fallback | None:
    try:
        match = _FALLBACK.fullmatch(_TEXT.decode(raw))
    except msgspec.DecodeError:
        return None
    if match is None:
        return None
    if match[1]:
        return Fallback("hold")
    if match[3]:
        return Fallback("replicas", replicas=int(match[3]))
    try:
        age = parse_go(match[2])
    except DurationError:
        return None
    return Fallback("last", max_age_s=age) if age > 0 else None
