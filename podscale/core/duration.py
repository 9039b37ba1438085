"""Durations in Go's and in Prometheus's notation. (Contract first; the body follows.)"""


class DurationError(ValueError):
    """The text is not a duration; the message says what is allowed."""


def parse_go(text: str) -> float:
    """Return seconds of a Go duration: ``1h30m``, ``1.5s``, ``-2ms``, ``0``."""
    raise NotImplementedError


def format_go(seconds: float) -> str:
    """Return Go's ``Duration.String``: ``5m0s``, ``1.5s``, ``0s``."""
    raise NotImplementedError


def parse_prometheus(text: str) -> float:
    """Return seconds of a Prometheus duration: ``1h30m``, ``90s``, ``0``; no sign, no decimals."""
    raise NotImplementedError
