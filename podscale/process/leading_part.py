"""A part that acts under a Lease, and what comes round in it every few seconds: what the HPA,
recommender, updater and nodes have in common."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from podscale.kube.client.errors import KubeError, NotLeading
from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leadership.leading import Leadership
from podscale.kube.leadership.lease import Term
from podscale.process.part import Work
from podscale.serving.apis.api import ApiGroup
from podscale.serving.monitoring.health import Heartbeat


class LeadingPart(ABC):
    """Its watches run in every replica, its loop in the leader. A ``Part``.

    ``run`` it, ``stop`` it before the connection closes.
    """

    def __init__(self, name: str, leading: Leadership, recorder: Recorder | None = None) -> None:
        """``recorder`` writes the Events of the part; it is run and flushed here."""
        self._name = name
        self._leading = leading
        self._recorder = recorder

    @abstractmethod
    def watches(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Return what runs whoever leads."""

    @abstractmethod
    async def lead(self, term: Term) -> None:
        """Act until cancelled, for one term of leadership."""

    @property
    def groups(self) -> Sequence[ApiGroup]:
        return ()

    def works(self) -> Sequence[Work]:
        """Return the watches and the loop."""
        return ((self._name, self.run),)

    async def run(self) -> None:
        """Watch, lead and act until cancelled or stopped."""
        told = () if self._recorder is None else (self._recorder.run(),)
        await self._leading.run(self._term, [*self.watches(), *told])

    async def stop(self) -> None:
        """Give the Lease back; what is being written is finished or left undone, never half."""
        await self._leading.stop()

    def is_leader(self) -> bool:
        """Whether this process may act now."""
        return self._leading.is_leader

    async def _term(self, term: Term) -> None:
        try:
            await self.lead(term)
        finally:
            if self._recorder is not None:
                await self._recorder.flush(FLUSH_S)  # still ours to tell


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
