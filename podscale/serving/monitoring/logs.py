"""Structured logs on standard error, as JSON or for people; the level changes at run time.

Everything logs through structlog with an event name and fields. klog's verbosity maps
to two levels: below 4 information, from 4 on debugging.
"""

import logging
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from podscale.core.unfailing import unfailing

Format = Literal["console", "json"]
DEBUG_FROM = 4


class Verbosity:
    """The process's log level, shared by every logger that ``configure`` has set up."""

    def __init__(self, v: int = 0) -> None:
        self.v = v

    def __call__(self, _logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        """Drop debug lines (a structlog processor, the first in the chain)."""
        if method == "debug" and self.v < DEBUG_FROM:
            raise structlog.DropEvent
        return event


def configure(form: Format, verbosity: Verbosity, stream: TextIO | None = None) -> None:
    """Set up structlog and route the standard library's warnings and errors into it."""
    target = unfailing(stream or sys.stderr)
    console = structlog.dev.ConsoleRenderer(
        colors=target.isatty(), exception_formatter=structlog.dev.plain_traceback
    )
    renderers: list[Any] = [console]
    if form == "json":
        renderers = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            verbosity,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        logger_factory=structlog.WriteLoggerFactory(target),
        # Kept uncached so that a test, or a second configuration, takes effect everywhere.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_IntoStructlog()]
    root.setLevel(logging.WARNING)


class _IntoStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger().bind(logger=record.name)
        log.log(record.levelno, record.getMessage(), exc_info=record.exc_info)
