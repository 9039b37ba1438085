"""Durations in Go's notation (flags, objects) and in Prometheus's (rules, queries).

Both parse to whole nanoseconds first, as the originals do; seconds are for those who
compute with clocks. Messages are the originals', because they reach users.
"""

import re
from datetime import datetime

from podscale.core.goquote import quote

SECOND = 10**9
_INT64 = 2**63
_GO_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # micro sign
    "μs": 10**3,  # Greek mu
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
# From the largest to the smallest: the order in which a duration must name them.
_PROMETHEUS_UNITS = {
    "y": 365 * 24 * 3600 * SECOND,
    "w": 7 * 24 * 3600 * SECOND,
    "d": 24 * 3600 * SECOND,
    "h": 3600 * SECOND,
    "m": 60 * SECOND,
    "s": SECOND,
    "ms": 10**6,
}
_PROMETHEUS_ORDER = list(_PROMETHEUS_UNITS)
_GO_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?([^0-9.]*)")
_PROMETHEUS_PART = re.compile(r"([0-9]+)([^0-9]*)")


WRITE_ONE = "write one like 30s, 2m or 1h30m"  # both notations take these


class DurationError(ValueError):
    """The text is not a duration; the message is the original's."""

    @property
    def advice(self) -> str:
        """The message, and what to write instead."""
        return f"{self}; {WRITE_ONE}"


def parse_go(text: str) -> float:
    """Return seconds of a Go duration: ``1h30m``, ``1.5s``, ``-2ms``, ``0``."""
    return parse_go_ns(text) / SECOND


def parse_go_ns(text: str) -> int:
    """Return nanoseconds of a Go duration (``time.ParseDuration``)."""
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0
    if not unsigned:
        raise DurationError(f"time: invalid duration {quote(text)}")
    total = at = 0
    while at < len(unsigned):
        part = _GO_PART.match(unsigned, at)
        if part is None or not (part[1] or part[3]):
            raise DurationError(f"time: invalid duration {quote(text)}")
        total += _go_part(text, part)
        if total > _INT64:
            raise DurationError(f"time: invalid duration {quote(text)}")
        at = part.end()
    if text[0] == "-":
        return -total
    if total == _INT64:
        raise DurationError(f"time: invalid duration {quote(text)}")
    return total


def format_go(seconds: float) -> str:
    """Return Go's ``Duration.String``: ``5m0s``, ``1.5s``, ``0s``."""
    return format_go_ns(round(seconds * SECOND))


def format_go_ns(nanoseconds: int) -> str:
    """Return Go's ``Duration.String`` of whole nanoseconds."""
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    if rest == 0:
        return "0s"
    if rest < SECOND:
        unit = "ns" if rest < 10**3 else "µs" if rest < 10**6 else "ms"
        return f"{sign}{_decimal(rest, _GO_UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, 60 * SECOND)
    text = f"{_decimal(rest, SECOND)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def parse_prometheus(text: str) -> float:
    """Return seconds of a Prometheus duration: ``1h30m``, ``90s``, ``0``; no sign, no decimals."""
    return parse_prometheus_ns(text) / SECOND


def parse_prometheus_ns(text: str) -> int:
    """Return nanoseconds of a Prometheus duration (``model.ParseDuration``)."""
    if text == "0":
        return 0
    if not text:
        raise DurationError("empty duration string")
    total = at = 0
    last = -1
    while at < len(text):
        part = _PROMETHEUS_PART.match(text, at)
        if part is None or not part[2] or len(part[1]) > 20 or int(part[1]) >= 2**64:
            raise DurationError(f"not a valid duration string: {quote(text)}")
        unit = _PROMETHEUS_UNITS.get(part[2])
        if unit is None:
            raise DurationError(f"unknown unit {quote(part[2])} in duration {quote(text)}")
        place = _PROMETHEUS_ORDER.index(part[2])
        if place <= last:
            raise DurationError(f"not a valid duration string: {quote(text)}")
        last = place
        total += int(part[1]) * unit
        if total >= _INT64:
            raise DurationError("duration out of range")
        at = part.end()
    return total


def format_prometheus(seconds: float) -> str:
    """Return Prometheus's ``Duration.String``: ``5m``, ``1h30m``, ``1w``; whole milliseconds.

    Years and weeks appear only when nothing is left over: ``90d``, not ``12w6d``.
    """
    rest = round(seconds * 1000) * 10**6
    text = ""
    for name, unit in _PROMETHEUS_UNITS.items():
        count = rest // unit
        if count and not (name in ("y", "w") and rest % unit):
            text += f"{count}{name}"
            rest -= count * unit
    return text or "0s"


def _go_part(text: str, part: re.Match[str]) -> int:
    if not part[4]:
        raise DurationError(f"time: missing unit in duration {quote(text)}")
    unit = _GO_UNITS.get(part[4])
    if unit is None:
        raise DurationError(f"time: unknown unit {quote(part[4])} in duration {quote(text)}")
    # More digits than an int64 has cannot be a duration, and need not be counted.
    whole = int(part[1] or "0") if len(part[1].lstrip("0")) < 20 else _INT64 + 1
    if whole > _INT64 // unit:
        raise DurationError(f"time: invalid duration {quote(text)}")
    # 18 digits fit an int64. Go multiplies in doubles and truncates; so do we.
    fraction = (part[3] or "")[:18]
    extra = int(float(fraction or "0") * (unit / 10.0 ** len(fraction)))
    return whole * unit + extra


def _decimal(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    if not fraction:
        return str(whole)
    return f"{whole}.{str(unit + fraction)[1:].rstrip('0')}"


def read_time(text: str, now: float) -> float | None:
    """Return unix seconds of an RFC 3339 time, or of an age in Go's notation: ``5m``.

    ``now`` is in unix seconds. ``None``: neither, or a time without its zone.
    """
    try:
        return now - parse_go(text)
    except DurationError:
        pass
    for form in (text, text.replace(" ", "+")):  # a "+" that was not escaped
        try:
            found = datetime.fromisoformat(form)
        except ValueError:
            continue
        if found.tzinfo is not None:
            return found.timestamp()
    return None
