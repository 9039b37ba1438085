"""A part that acts under a Lease: what the HPA, recommender, updater and nodes have in common."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any

from podscale.kube.events import FLUSH_S, Recorder
from podscale.kube.leadership.leading import Leadership
from podscale.kube.leadership.lease import Term
from podscale.process.part import Work
from podscale.serving.apis.api import ApiGroup


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
        """The API groups that it serves."""
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
