"""RFC 3339 as Kubernetes writes it: whole seconds, UTC."""

from datetime import datetime


def from_rfc3339(text: str | None) -> float | None:
    """Return unix seconds; None for no time or a text that is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
