"""Prometheus over HTTP. (Contract first; the body follows.)"""

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from msgspec import Struct

from podscale.feed.options import PrometheusOptions

SeriesNames = Mapping[str, frozenset[frozenset[str]]]  # name -> the sets of label names seen


class Series(Struct, frozen=True):
    """What discovery knows of a selector: label names, not values."""

    names: SeriesNames
    count: int  # series, not names
    warnings: tuple[str, ...] = ()


class PrometheusClient:
    """Queries and series of one Prometheus. An async context manager."""

    def __init__(self, options: PrometheusOptions) -> None:
        self.options = options

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError

    async def series(self, match: str, start_s: float) -> Series:
        """Return the names and label names of the series that ``match`` selects since
        ``start_s``; raises ``QueryError``. Streams: the body is never held whole.
        """
        raise NotImplementedError
