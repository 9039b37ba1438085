"""Events about objects, aggregated and limited as client-go's recorder does.

``event`` never waits and never fails: a bounded queue in front of one sender.
"""

import time
from collections.abc import Callable
from typing import Literal

from podscale.kube.api import Api
from podscale.kube.objects.cluster import ObjectReference


class Recorder:
    """Writes ``v1`` Events for one component."""

    def __init__(
        self,
        api: Api,
        component: str,
        *,
        instance: str = "",
        queue: int = 1000,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        raise NotImplementedError

    def event(
        self, about: ObjectReference, level: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Queue one event; dropped (and counted) when the queue is full."""
        raise NotImplementedError

    async def run(self) -> None:
        """Send for ever; on cancellation what is queued is lost."""
        raise NotImplementedError

    async def flush(self, timeout_s: float) -> None:
        """Wait until what is queued is sent."""
        raise NotImplementedError

    @property
    def dropped(self) -> int:
        """Events lost: queue full, refused by the server, or over the limit per object."""
        raise NotImplementedError
