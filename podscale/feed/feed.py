"""The feed: many demands in, few queries out. (Contract first; the body follows.)"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from podscale.feed.client import PrometheusClient
from podscale.feed.options import FeedOptions
from podscale.feed.plan import Demand
from podscale.feed.reading import Outcome


class Feed:
    """Answers demands from snapshots, refreshing them in batches. An async context manager."""

    def __init__(
        self,
        client: PrometheusClient,
        options: FeedOptions,
        clock: Callable[[], float] | None = None,  # unix seconds; time.time unless told
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError

    async def read(
        self, demands: Sequence[Demand], max_age_s: float | None = None
    ) -> list[Outcome]:
        """Return one outcome per demand, in order. Never raises for a failed source.

        ``max_age_s`` narrows ``FeedOptions.max_age_s`` for this call.
        """
        raise NotImplementedError

    def relisted(self) -> None:
        """Forget demotions and plans nobody wants: call after every relist or reload."""
        raise NotImplementedError
