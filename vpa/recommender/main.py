"""The recommender as a process, from flags to a loop that leads."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from podscale.core.metrics import MetricsProvider
from podscale.kube.own_pod import leader_label_of
from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import Flags
from podscale.serving.logs import Verbosity
from podscale.serving.process import run as run_process
from vpa import process
from vpa.decisions_api import SizingApi
from vpa.process import OpenProvider
from vpa.recommender import flags as flags_
from vpa.recommender import history_flags
from vpa.recommender.part import RecommenderPart
from vpa.recommender.past import Past
from vpa.recommender.starting import FindPast
from vpa.stores import Stores

# Says where the history of usage is, from the source of live usage and the namespaces.
PastOf = Callable[[MetricsProvider, Sequence[str]], Past]


async def run(flags: Flags, open_provider: OpenProvider, past_of: PastOf | None = None) -> int:
    """Recommend until SIGTERM or SIGINT; return the exit code.

    ``past_of`` None: history is where upstream's flags say.
    """
    return await run_process(
        flags,
        [*server_problems(flags), *flags_.problems(flags)],
        lambda parsed, verbosity: serving(parsed, verbosity, open_provider, past_of),
    )


@asynccontextmanager
async def serving(
    flags: Flags,
    verbosity: Verbosity,
    open_provider: OpenProvider,
    past_of: PastOf | None = None,
) -> AsyncIterator[RecommenderPart]:
    """Run the recommender while the block runs."""
    async with (
        process.grounded(flags, "recommender", verbosity) as ground,
        open_provider(ground) as provider,
    ):
        stores = process.stores_of(ground, needs_nodes=True)
        part = RecommenderPart(
            ground.api,
            stores,
            provider,
            flags_.options(flags),
            ground.registry,
            lease=process.lease_of(flags),
            on_change=leader_label_of(ground.api, "recommender"),
            find_past=find_past(flags, provider, stores, past_of),
        )
        part.register(ground.health)
        groups = (SizingApi(part.recommender, part.is_leader),)
        async with process.working(ground, part, groups=groups, may_write=part.is_leader):
            yield part


def find_past(
    flags: Flags, provider: MetricsProvider, stores: Stores, past_of: PastOf | None
) -> FindPast | None:
    """Return what reads history at the start; None: checkpoints are the start."""
    if flags.text("storage") != "prometheus":
        return None
    if past_of is None:
        return lambda: history_flags.past(flags)
    return lambda: past_of(provider, _namespaces(stores))


def _namespaces(stores: Stores) -> list[str]:
    # Of all pods, not only where a VPA is: one that comes later finds its history.
    return sorted({view.namespace for view in stores.pods.select_all().views()})
