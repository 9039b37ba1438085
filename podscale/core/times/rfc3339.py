"""Times as Kubernetes writes them."""

from datetime import UTC, datetime

# The years that RFC 3339 can write; a source may claim any other.
_FIRST_S, _LAST_S = -62135596800, 253402300799
LAST_S = float(_LAST_S)


def rfc3339(seconds: float) -> str:
    """Return ``2026-11-21T10:00:00Z``; a time beyond the years 1 to 9999 is written as the
    nearest in them. Raises ValueError for NaN.
    """
    whole = int(min(max(seconds, _FIRST_S), _LAST_S))
    return datetime.fromtimestamp(whole, UTC).isoformat().replace("+00:00", "Z")
