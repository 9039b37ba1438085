"""When, and how many, pods may be disturbed: windows, a budget per day, the share of a controller's
pods that may be down.

Windows and daily budget are annotations of a VPA. Whoever disturbs its pods keeps to them.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Struct

WINDOWS = "vpa.podscale.io/disruption-windows"
PER_DAY = "vpa.podscale.io/max-disruptions-per-day"
MAKE_ROOM = "vpa.podscale.io/make-room"  # "true": evictions for room, of its pods and for them
MOST_TEXT = 1024  # characters of one value: whoever may write VPAs may write a megabyte

_CLOCK = re.compile(r"([01][0-9]|2[0-3]|24(?=:00)):([0-5][0-9])")
_MOST_DIGITS = 9
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


class DisruptionWindow(Struct, frozen=True):
    """Hours of some weekdays (0 is Monday) in which pods may be disturbed.

    A window that ends before it begins reaches into the next day.
    """

    days: frozenset[int]
    begin: time
    end: time
    zone: str = "UTC"

    def contains(self, now: float) -> bool:
        """Return whether the moment lies in the window, its end excluded."""
        local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(self.zone))
        clock, day = local.time().replace(tzinfo=None), local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= clock < self.end
        late = day in self.days and clock >= self.begin
        return late or ((day - 1) % 7 in self.days and clock < self.end)


class DisruptionPace(Struct, frozen=True):
    """What a VPA's annotations allow; no windows: any time, None: any number."""

    windows: tuple[DisruptionWindow, ...] = ()
    per_day: int | None = None

    def allows(self, now: float, disrupted_today: int) -> str | None:
        """Return the token of what holds an update up, None if nothing does."""
        if self.windows and not any(window.contains(now) for window in self.windows):
            return "OutsideDisruptionWindow"
        if self.per_day is not None and disrupted_today >= self.per_day:
            return "DailyBudgetExhausted"
        return None


class PaceError(ValueError):
    """An annotation cannot be read; the message names it and says what is allowed."""


def pace_of(annotations: Mapping[str, str] | None) -> DisruptionPace:
    """Return the pace that annotations ask for; raises PaceError.

    Windows are ``Mon-Fri 22:00-05:00 Europe/Berlin; Sat,Sun 00:00-24:00``; without a zone
    UTC is meant.
    """
    given = annotations or {}
    for name in (WINDOWS, PER_DAY):
        if len(given.get(name, "")) > MOST_TEXT:
            raise PaceError(f"{name}: longer than {MOST_TEXT} characters")
    windows: Sequence[DisruptionWindow] = ()
    if WINDOWS in given:
        texts = [text for text in given[WINDOWS].split(";") if text.strip()]
        if not texts:
            raise PaceError(f"{WINDOWS}: no window is named; DAYS HH:MM-HH:MM [ZONE] is one")
        windows = [_window(text.strip()) for text in texts]
    per_day: int | None = None
    if PER_DAY in given:
        text = given[PER_DAY].strip()
        if not text.isdecimal() or len(text) > _MOST_DIGITS:
            raise PaceError(f"{PER_DAY}: {text!r} is not a number of disruptions")
        per_day = int(text)
    return DisruptionPace(tuple(windows), per_day)


def allowance(configured: float, running: int, tolerance: int) -> float:
    """Return how many running pods of a controller may go down at once.

    ``tolerance`` is how many of the ``configured`` ones may be down. One that truncates to
    nothing still lets one go while all are running.
    """
    alone = 1 if tolerance == 0 and running == configured else 0
    return max(running - (configured - tolerance), alone)


def _window(text: str) -> DisruptionWindow:
    parts = text.split()
    if len(parts) not in (2, 3):
        raise PaceError(f"{WINDOWS}: {text!r} is not DAYS HH:MM-HH:MM [ZONE]")
    zone = parts[2] if len(parts) == 3 else "UTC"
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PaceError(f"{WINDOWS}: {zone!r} is not a time zone") from error
    begin, separator, end = parts[1].partition("-")
    if not separator:
        raise PaceError(f"{WINDOWS}: {parts[1]!r} is not HH:MM-HH:MM")
    return DisruptionWindow(_days(parts[0]), _clock(begin), _clock(end), zone)


def _days(text: str) -> frozenset[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, separator, last = part.partition("-")
        if first not in _DAYS or (separator and last not in _DAYS):
            raise PaceError(f"{WINDOWS}: {part!r} is not a day or a range of {', '.join(_DAYS)}")
        begin = _DAYS.index(first)
        count = (_DAYS.index(last) - begin) % 7 + 1 if separator else 1
        days.update((begin + step) % 7 for step in range(count))
    return frozenset(days)


def _clock(text: str) -> time:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise PaceError(f"{WINDOWS}: {text!r} is not HH:MM")
    # The end of a day is the begin of the next one.
    return time(int(found[1]) % 24, int(found[2]))
