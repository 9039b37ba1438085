"""``podscale recommender``: recommends requests, with upstream's flags."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from podscale.cli.program import before, program

if TYPE_CHECKING:
    from podscale.core.metrics import MetricsProvider
    from podscale.serving.flags import Flag, Flags
    from vpa.process import Ground, OpenProvider
    from vpa.recommender.main import PastOf


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from adapter import flags as adapter_flags
    from vpa.recommender import flags, main

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        return before(
            "recommender",
            lambda: problem(parsed),
            lambda: main.run(parsed, opener(parsed), past_of(parsed)),
        )

    # Where both name a flag, it is the recommender's.
    return (*adapter_flags.OWN, *adapter_flags.FEED, *flags.TABLE), run


def problem(flags: "Flags") -> str:
    """Return what is wrong with the rules file, before any server is asked; raises
    ``FlagError``.
    """
    from podscale.cli.hpa import feed_problem
    from podscale.serving.flag_table import problems as server_problems
    from podscale.serving.flags import FlagError
    from vpa.recommender.flags import problems as own_problems
    from vpa.recommender.flags import uses_feed

    if found := [*server_problems(flags), *own_problems(flags)]:
        raise FlagError("; ".join(found))
    return feed_problem(flags) if uses_feed(flags) else ""


def opener(flags: "Flags") -> "OpenProvider":
    """Return what opens the source of usage that the flags choose."""
    from vpa.recommender.flags import uses_feed

    return from_feed if uses_feed(flags) else from_api


def past_of(flags: "Flags") -> "PastOf | None":
    """Return where history is: with the feed, what the adapter's rules read live."""
    from vpa.recommender.flags import uses_feed

    if not uses_feed(flags):
        return None
    from adapter import flags as adapter_flags
    from adapter.past import past_queries
    from adapter.provider import FeedProvider
    from vpa.recommender.past import Past, PastQuery

    def past(provider: "MetricsProvider", namespaces: "Sequence[str]") -> Past:
        if not isinstance(provider, FeedProvider):
            raise TypeError("history by the adapter's rules needs the adapter's feed")
        found = past_queries(provider.usage.rules, namespaces)
        cpu, memory = (
            tuple(PastQuery(q.text, q.pod, q.container, q.namespace, q.only) for q in queries)
            for queries in (found.cpu, found.memory)
        )
        return Past(adapter_flags.prometheus_options(flags), cpu, memory)

    return past


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
