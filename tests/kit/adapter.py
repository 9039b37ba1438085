"""An adapter in the test's own process, as `podscale adapter` composes it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from adapter import part
from adapter.adapter import Adapter
from podscale.core.metrics import MetricsProvider
from podscale.process.compose import composed
from podscale.serving.flags import Flags
from podscale.serving.monitoring.logs import Verbosity
from podscale.serving.running import RunningServer


class ServedAdapter(Struct, frozen=True):
    """A running adapter and its server."""

    adapter: Adapter
    server: RunningServer


@asynccontextmanager
async def served_adapter(
    flags: Flags, *, others: Sequence[MetricsProvider] | None = None
) -> AsyncIterator[ServedAdapter]:
    """Serve on any free port while the block runs; ``others`` None: installed providers. Its
    files are looked at more often than the product does."""
    kinds = {"adapter": part.KIND}
    async with composed(
        {"adapter": flags}, kinds, Verbosity(), open_reader=part.reader(others, poll_s=0.05), port=0
    ) as running:
        made = running.parts["adapter"]
        assert isinstance(made, Adapter)
        assert running.server is not None
        yield ServedAdapter(made, running.server)
