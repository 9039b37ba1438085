"""Keeps a store equal to the API server: one task per scope, each an endless watch."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from podscale.kube.api import Api
from podscale.kube.store import Sink
from podscale.kube.watching import Source
from podscale.kube.wire import HasMetadata

T = TypeVar("T", bound=HasMetadata)


class Reflector(Generic[T]):
    """Feeds ``sink`` from ``sources`` (one per namespace, or a single one for all)."""

    def __init__(
        self,
        api: Api,
        sources: Source[T] | list[Source[T]],
        sink: Sink[T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        raise NotImplementedError

    async def run(self) -> None:
        """Feed for ever; ends only by cancellation."""
        raise NotImplementedError
