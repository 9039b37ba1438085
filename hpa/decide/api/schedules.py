"""``podscale.io/schedule``: forecasts that people write, read once per change.

A JSON list of ``{start, end, timeZone, minReplicas, ramp}``: start and end are both cron
expressions of five fields, read in ``timeZone`` (UTC without one), or both RFC 3339 times; ramp is
a Go duration before start.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSimError
from msgspec import Struct

from hpa.decide.api.cron import Cron
from hpa.decide.api.spec import MinimumSchedule
from podscale.core.json_decoder import JsonDecoder
from podscale.core.settings import SCHEDULE
from podscale.core.times.duration import DurationError, parse_go

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
        refused.append(f"{SCHEDULE}: not a JSON list: {error}")
        return ()
    if len(written) > MOST_SCHEDULES:
        refused.append(f"{SCHEDULE}: {len(written)} entries, and {MOST_SCHEDULES} are the most")
        return ()
    found, steps = [], iter(range(_MOST_STEPS))
    for place, raw in enumerate(written):
        try:
            read = _schedule(_ENTRY.decode(raw), steps)
        except ValueError as error:
            refused.append(f"{SCHEDULE}: entry {place}: {error}")
            continue
        if most is not None and read.min_replicas > most:
            warnings.append(
                f"{SCHEDULE}: entry {place}: minReplicas {read.min_replicas} is above maxReplicas "
                f"{most}, which counts"
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
