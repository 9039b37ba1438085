"""A loop of the nodes part."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from podscale.kube.client.errors import KubeError, NotLeading
from podscale.serving.monitoring.health import Heartbeat

_log = structlog.get_logger(__name__)


class NodesLoop:
    """Runs ``once`` every ``interval_s`` while ``is_due``."""

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[None]],
        interval_s: float,
        is_due: Callable[[], bool],
        longest_s: float,
    ) -> None:
        """``longest_s``: a round that takes longer hangs."""
        self.name = name
        self._once = once
        self._interval_s = interval_s
        self._is_due = is_due
        self.heartbeat = Heartbeat(longest_s + interval_s)

    async def run(self) -> None:
        try:
            while True:
                self.heartbeat.beat()  # what failed is mended by no restart
                is_due = self._is_due()
                if is_due:
                    await self._round()
                await asyncio.sleep(self._interval_s if is_due else min(1.0, self._interval_s))
        finally:
            self.heartbeat.rest()

    async def _round(self) -> None:
        try:
            await self._once()
        except NotLeading:
            _log.info("round ended: another replica leads", loop=self.name)
        except KubeError as error:
            _log.warning("round failed", loop=self.name, error=str(error))
        except Exception:  # noqa: BLE001 - the next round is another try
            _log.exception("round failed", loop=self.name)
