"""RFC 3339 as Kubernetes writes it: whole seconds, UTC."""

from datetime import datetime

from podscale.core.times.rfc3339 import rfc3339


def from_rfc3339(text: str | None) -> float | None:
    """Return unix seconds; None for no time or a text that is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def to_rfc3339(time_s: float) -> str:
    """Return the text of ``time_s``, cut to whole seconds."""
    return rfc3339(time_s)
