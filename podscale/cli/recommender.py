"""``podscale recommender``: recommends requests, with upstream's flags."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from podscale.cli.program import program

if TYPE_CHECKING:
    from podscale.core.metrics import MetricsProvider
    from podscale.serving.flags import Flag, Flags
    from vpa.process import Ground, OpenProvider


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from adapter import flags as adapter_flags
    from vpa.recommender import flags, main

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        return main.run(parsed, opener(parsed))

    # Where both name a flag, it is the recommender's.
    return (*adapter_flags.OWN, *adapter_flags.FEED, *flags.TABLE), run


def opener(flags: "Flags") -> "OpenProvider":
    """Return what opens the source of usage that the flags choose."""
    from vpa.recommender.flags import uses_feed

    return from_feed if uses_feed(flags) else from_api


@asynccontextmanager
async def from_api(ground: "Ground") -> "AsyncIterator[MetricsProvider]":
    """Ask metrics.k8s.io, whoever serves it."""
    from podscale.kube.metrics_api import ApiProvider

    yield ApiProvider(ground.api, ground.discovery)


@asynccontextmanager
async def from_feed(ground: "Ground") -> "AsyncIterator[MetricsProvider]":
    """Read Prometheus in this process, as the HPA does."""
    from hpa.main import Ground as HpaGround
    from podscale.cli import hpa

    same = HpaGround(
        ground.flags, ground.api, ground.discovery, ground.pods, ground.registry, ground.health
    )
    async with hpa.from_feed(same) as provider:
        yield provider


command = program("recommender", "Recommend requests (VPA).", _load)
