"""The ``podscale.io/`` annotations of one object, read once per change.

What cannot be read, or is no setting, is left out and named in ``problems``: a typing error in
one annotation must not stop the object. ``podscale.io/schedule`` is a JSON list of ``{start, end,
timeZone, minReplicas, ramp}``: start and end are both cron expressions of five fields, read in
``timeZone`` (UTC without one), or both RFC 3339 times; ramp is a Go duration before start.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError
from msgspec import Struct

from hpa.decide.api.spec import Fallback, MinimumSchedule, Options
from podscale.coordinate.horizontal import ComfortError, parse_comfort
from podscale.core import settings
from podscale.core.json_decoder import JsonDecoder
from podscale.core.times.duration import DurationError, parse_go

SHORTEST_PERIOD_S = 1.0
LONGEST_PERIOD_S = 3600.0  # the range of KEP-6003

MOST_PROBLEMS = 10  # that are named: an annotation may have thousands
_MOST_SHOWN = 200  # characters of one

_DEFAULTS = Options()
_COORDINATES = {"on": True, "off": False}
_NAMED = JsonDecoder(dict[str, msgspec.Raw])
_TEXT = JsonDecoder(str)
_FALLBACK = re.compile(r"(hold)|last:(.+)|replicas:([0-9]{1,9})")


def read_options(annotations: Mapping[str, str], max_replicas: int | None = None) -> Options:
    """Return the settings that ``annotations`` write down, of an object with ``max_replicas``."""
    if not any(key.startswith(settings.PREFIX) for key in annotations):
        return _DEFAULTS
    problems: list[str] = []
    refused: list[str] = []
    try:
        parse_comfort(annotations.get(settings.COMFORT))
    except ComfortError as error:
        problems.append(f"{settings.COMFORT}: {error}")
    schedules = read_schedules(annotations.get(settings.SCHEDULE), max_replicas, refused, problems)
    return Options(
        is_paused=_flag(annotations, settings.PAUSED, problems),
        sync_period_s=_period(annotations, problems),
        fallbacks=_fallbacks(annotations, problems),
        may_lower=_flag(annotations, settings.MAY_LOWER, problems),
        pods_by_owner=_choice(annotations, settings.PODS_BY, problems, "owner", "labels")
        == "owner",
        coordinates=_COORDINATES.get(
            _choice(annotations, settings.COORDINATE, problems, "on", "off")
        ),
        schedules=schedules,
        refused_schedule=next(iter(shown(refused)), ""),
        forecasts=_choice(annotations, settings.FORECAST, problems, "auto") == "auto",
        problems=shown([*refused, *problems, *settings.unknown_settings(annotations)]),
    )


def shown(problems: Sequence[str]) -> tuple[str, ...]:
    """Return so few and short ones that a person reads them, and how many more there are."""
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


def _choice(annotations: Mapping[str, str], key: str, problems: list[str], *words: str) -> str:
    text = annotations.get(key, "")
    if key not in annotations or text in words:
        return text
    others = f"neither {' nor '.join(words)}"
    if len(words) == 1:
        others = f"not {words[0]}, and there is nothing else"
    problems.append(f"{key}: {text!r} is {others}")
    return ""


def _period(annotations: Mapping[str, str], problems: list[str]) -> float | None:
    text = annotations.get(settings.SYNC_PERIOD)
    if text is None:
        return None
    try:
        period = parse_go(text)
    except DurationError as error:
        problems.append(f"{settings.SYNC_PERIOD}: {error.advice}")
        return None
    if not SHORTEST_PERIOD_S <= period <= LONGEST_PERIOD_S:
        problems.append(f"{settings.SYNC_PERIOD}: {text} is not between 1s and 1h")
        return None
    return period


def _fallbacks(
    annotations: Mapping[str, str], problems: list[str]
) -> tuple[tuple[str, Fallback], ...]:
    text = annotations.get(settings.FALLBACK)
    if text is None:
        return ()
    try:
        written = _NAMED.decode(text)
    except msgspec.ValidationError:
        problems.append(f"{settings.FALLBACK}: not an object of metric names")
        return ()
    except msgspec.DecodeError as error:
        problems.append(f"{settings.FALLBACK}: not JSON: {error}")
        return ()
    found = []
    for metric, raw in sorted(written.items()):
        fallback = _fallback(raw)
        if fallback is None:
            value = bytes(raw).decode(errors="replace")
            problems.append(
                f"{settings.FALLBACK}: {metric}: {value} is none of hold, last:DURATION, replicas:N"
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


_SPAN = timedelta(days=5 * 366)
_ENDLESS = repeat(None)


class Cron(CronSim):
    """The times of one expression after a moment, or before it, within five years: CronSim goes on
    for 50, which takes 10 ms.

    ``steps`` has one for each month, day, hour or minute that is gone to, at most 20 us each;
    where they end ``CronSimError`` is raised, as it is for what cannot be read.
    """

    def __init__(
        self, text: str, moment: datetime, *,
        is_back: bool = False, steps: Iterator[object] = _ENDLESS,
    ) -> None:  # fmt: skip
        super().__init__(text, moment, is_back)
        self._begin, self._steps = self.dt, steps

    # CronSim looks at the month first in each of its steps.
    def advance_month(self) -> None:
        super().advance_month()
        self._step()

    def reverse_month(self) -> None:
        super().reverse_month()
        self._step()

    def _step(self) -> None:
        if abs(self.dt - self._begin) > _SPAN:
            raise StopIteration  # what CronSim raises after 50 years
        if next(self._steps, self) is self:
            raise CronSimError("it and those before it take too many steps to find")


MOST_SCHEDULES = 20  # entries of one object
_MOST_STEPS = 400  # of all of its expressions: 7 ms at most; twenty daily ones take 160
_CRON_FIELDS = 5
_LONGEST_CRON = 200  # characters: all 60 minutes one by one are 169
_LONGEST_RAMP_S = 86400.0
# What comes within five years of it is an expression: 29 February does, on one weekday only.
_WHEN = datetime(2025, 1, 1, tzinfo=UTC)


class _Written(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    start: str
    end: str
    min_replicas: int
    time_zone: str = "UTC"
    ramp: str = "0s"


_LIST = JsonDecoder(list[msgspec.Raw])
_ENTRY = JsonDecoder(_Written)


def read_schedules(
    text: str | None, most: int | None, refused: list[str], warnings: list[str]
) -> tuple[MinimumSchedule, ...]:
    """Return the entries that can be read; what is wrong with others goes to ``refused``.

    ``most`` is maxReplicas, which stands in for more, with a warning; None: it is not known.
    """
    if text is None:
        return ()
    try:
        written = _LIST.decode(text)
    except msgspec.DecodeError as error:
        refused.append(f"{settings.SCHEDULE}: not a JSON list: {error}")
        return ()
    if len(written) > MOST_SCHEDULES:
        refused.append(
            f"{settings.SCHEDULE}: {len(written)} entries, and {MOST_SCHEDULES} are the most"
        )
        return ()
    found, steps = [], iter(range(_MOST_STEPS))
    for place, raw in enumerate(written):
        try:
            read = _schedule(_ENTRY.decode(raw), steps)
        except ValueError as error:
            refused.append(f"{settings.SCHEDULE}: entry {place}: {error}")
            continue
        if most is not None and read.min_replicas > most:
            warnings.append(
                f"{settings.SCHEDULE}: entry {place}: minReplicas {read.min_replicas} is above "
                f"maxReplicas {most}, which counts"
            )
        found.append(read)
    return tuple(found)


def _schedule(written: _Written, steps: Iterator[int]) -> MinimumSchedule:
    # Raises ValueError, as msgspec's errors are.
    if not 1 <= written.min_replicas <= 2**31 - 1:
        raise ValueError(f"minReplicas {written.min_replicas} is not above zero")
    try:
        ramp_s = parse_go(written.ramp)
    except DurationError as error:
        raise ValueError(f"ramp: {error.advice}") from None
    if not 0.0 <= ramp_s <= _LONGEST_RAMP_S:
        raise ValueError(f"ramp {written.ramp} is not between 0s and 24h")
    try:
        ZoneInfo(written.time_zone)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no timeZone {written.time_zone!r}") from None
    start, end = _time(written.start), _time(written.end)
    if (start is None) != (end is None):
        raise ValueError("start and end are both cron expressions, or both RFC 3339 times")
    if start is None or end is None:
        for text in (written.start, written.end):
            _check(text, steps)
    elif end <= start:
        raise ValueError(f"end {written.end} is not after start {written.start}")
    return MinimumSchedule(
        written.start, written.end, written.time_zone, written.min_replicas, ramp_s, start, end
    )


def _time(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        raise ValueError(f"{text} has no offset: write Z or +01:00")
    return found.timestamp()


def _check(text: str, steps: Iterator[int]) -> None:
    if len(text) > _LONGEST_CRON:
        raise ValueError(f"a cron expression has more than {_LONGEST_CRON} characters")
    try:
        if len(text.split()) != _CRON_FIELDS:
            raise CronSimError("five fields are wanted")
        next(Cron(text, _WHEN, steps=steps))
    except StopIteration:
        raise ValueError(f"{text!r} does not come within five years") from None
    except CronSimError as error:
        raise ValueError(f"{text!r} is neither RFC 3339 nor cron: {error}") from None
