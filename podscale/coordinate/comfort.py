"""How many replicas are neither too few nor too many: ``podscale.io/comfort-replicas``. Pure."""

import re

_BAND = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


class ComfortError(ValueError):
    """The text is no band; the message says what one looks like."""


def parse_comfort(text: str | None) -> tuple[int, int] | None:
    """Return both ends; None where nothing is written; raises ``ComfortError``."""
    if text is None:
        return None
    found = _BAND.fullmatch(text.strip())
    if found is None or not 0 < int(found[1]) <= int(found[2]):
        raise ComfortError(f"{text[:40]!r} is no band of replicas like 3-30")
    return int(found[1]), int(found[2])


def comfort_of(text: str | None, least: int, most: int, kept: int | None) -> tuple[int, int]:
    """Return the band: as written, where that can be read; else from the fewest replicas, or one
    more than a disruption budget keeps, to half of the most."""
    try:
        written = parse_comfort(text)
    except ComfortError:
        written = None
    if written is not None:
        return written
    low = max(least, 1, 0 if kept is None else kept + 1)
    return low, max(low, most // 2)
