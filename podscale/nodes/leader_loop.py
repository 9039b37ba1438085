"""A loop of the nodes part that only the leader runs."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from podscale.kube.client.errors import KubeError, NotLeading
from podscale.serving.monitoring.liveness import Heartbeat

_log = structlog.get_logger(__name__)

_ROUND_S = 300.0  # a round that reads and evicts much


class LeaderLoop:
    """Runs ``once`` every ``interval_s`` while this process leads."""

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[None]],
        interval_s: float,
        is_leader: Callable[[], bool],
    ) -> None:
        self.name = name
        self._once = once
        self._interval_s = interval_s
        self._is_leader = is_leader
        self.heartbeat = Heartbeat(_ROUND_S + interval_s)

    async def run(self) -> None:
        """Go round until cancelled."""
        try:
            while True:
                self.heartbeat.beat()
                if self._is_leader():
                    await self._round()
                await asyncio.sleep(self._interval_s)
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
