"""The recommender as a process, from flags to a loop that leads."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from podscale.serving.flag_table import problems as server_problems
from podscale.serving.flags import Flags
from podscale.serving.logs import Verbosity
from vpa import process
from vpa.decisions_api import SizingApi
from vpa.process import OpenProvider
from vpa.recommender import flags as flags_
from vpa.recommender.part import RecommenderPart


async def run(flags: Flags, open_provider: OpenProvider) -> int:
    """Recommend until SIGTERM or SIGINT; return the exit code."""
    return await process.run(
        flags,
        [*server_problems(flags), *flags_.problems(flags)],
        lambda parsed, verbosity: serving(parsed, verbosity, open_provider),
    )


@asynccontextmanager
async def serving(
    flags: Flags, verbosity: Verbosity, open_provider: OpenProvider
) -> AsyncIterator[RecommenderPart]:
    """Run the recommender while the block runs."""
    async with (
        process.grounded(flags, "recommender", verbosity) as ground,
        open_provider(ground) as provider,
    ):
        stores = process.stores_of(ground)
        part = RecommenderPart(
            ground.api,
            stores,
            provider,
            flags_.options(flags),
            ground.registry,
            lease=process.lease_of(flags),
            on_change=process.leader_label_of(ground.api, "recommender"),
        )
        part.register(ground.health)
        groups = (SizingApi(part.recommender, part.is_leader),)
        async with process.working(ground, part, groups=groups, may_write=part.is_leader):
            yield part
