"""What comes round every few seconds: the recommender's, the updater's and the nodes' loops."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from podscale.kube.client.errors import KubeError, NotLeading
from podscale.serving.monitoring.health import Heartbeat

_log = structlog.get_logger(__name__)


class PeriodicLoop:
    """Runs ``once`` every ``interval_s``, or as soon as the round before has ended."""

    def __init__(
        self, name: str, once: Callable[[], Awaitable[None]], interval_s: float, *, longest_s: float
    ) -> None:
        """``longest_s`` is the longest time from one round to the next: a longer one hangs."""
        self.name = name
        self.once = once
        self._interval_s = interval_s
        self.heartbeat = Heartbeat(longest_s)
        self.succeeded = 0  # rounds

    async def run(self, *, delay_s: float = 0.0) -> None:
        """Come round until cancelled, first after ``delay_s``; raises ``NotLeading``.

        A round that fails otherwise is logged, and the next one is another try.
        """
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        try:
            while True:
                self.heartbeat.beat()  # it came round: what failed is mended by no restart
                await asyncio.sleep(at - loop.time())
                try:
                    await self.once()
                    self.succeeded += 1
                except NotLeading:
                    raise
                except KubeError as error:
                    _log.warning("round failed", loop=self.name, error=str(error))
                except Exception:  # noqa: BLE001 - the next round is another try
                    _log.exception("round failed", loop=self.name)
                at = max(at + self._interval_s, loop.time())
        finally:
            self.heartbeat.rest()
