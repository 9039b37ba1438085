"""KEDA's cron trigger as PromQL, for schedules that repeat by day or week. Pure."""

import re

_UTC = frozenset(["UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z"])
_NUMBER = re.compile(r"[0-9]{1,2}")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class NotACron(ValueError):
    """The schedule cannot be written as PromQL; the text says why."""


def promql(timezone: str, start: str, end: str, desiredReplicas: str) -> str:  # noqa: N803 - KEDA's word
    """Return a query whose value is the wanted size inside the window, and 1 outside.

    Outside of it KEDA's trigger asks for one replica as well. Raises ``NotACron``.
    """
    if timezone not in _UTC:
        raise NotACron(f"PromQL knows no time zone but UTC, and {timezone} may have summer time")
    if not desiredReplicas.isdecimal():
        raise NotACron(f"desiredReplicas {desiredReplicas!r} is no number")
    start_minute, start_days = _fields(start)
    end_minute, end_days = _fields(end)
    if start_days != end_days or start_minute >= end_minute:
        raise NotACron("start and end are not on the same days, in this order")
    clock = "(hour() * 60 + minute())"
    inside = f"({clock} >= bool {start_minute}) * ({clock} < bool {end_minute})"
    if len(start_days) < 7:
        inside += f" * ({' + '.join(f'(day_of_week() == bool {day})' for day in start_days)})"
    return f"1 + {int(desiredReplicas) - 1} * {inside}"


def _fields(text: str) -> tuple[int, tuple[int, ...]]:
    fields = text.split()
    if len(fields) != 5 or fields[2] != "*" or fields[3] != "*":
        raise NotACron("only schedules by time of day and day of week can be written as PromQL")
    if not (_NUMBER.fullmatch(fields[0]) and _NUMBER.fullmatch(fields[1])):
        raise NotACron("minute and hour must be single numbers")
    return int(fields[1]) * 60 + int(fields[0]), _days(fields[4])


def _days(text: str) -> tuple[int, ...]:
    if text in ("*", "?"):
        return tuple(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = _day(first), _day(last or first)
        if low > high:
            raise NotACron(f"the days {part} run over the week's end")
        found.update(day % 7 for day in range(low, high + 1))
    return tuple(sorted(found))


def _day(text: str) -> int:
    if text.lower() in _DAYS:
        return _DAYS.index(text.lower())
    if not _NUMBER.fullmatch(text) or int(text) > 7:
        raise NotACron(f"{text!r} is no day of the week")
    return int(text)
