"""Moments as people write them where they ask for the past (``--at``, ``?at=``)."""

from datetime import datetime

from podscale.core.times.duration import DurationError, parse_go


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
