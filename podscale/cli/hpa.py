"""``podscale hpa``: the controller with kube-controller-manager's flags; ``hpa eval`` offline."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click
import click.shell_completion

from podscale.cli.program import before, program

if TYPE_CHECKING:
    from hpa.main import Ground, OpenProvider
    from podscale.core.metrics import MetricsProvider
    from podscale.serving.flags import Flag, Flags


def _load() -> "tuple[Sequence[Flag], Callable[[Flags, bool], Coroutine[Any, Any, int]]]":
    from hpa import main

    def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
        return before("hpa", lambda: problem(parsed), lambda: main.run(parsed, opener(parsed)))

    return flag_table(), run


def flag_table() -> "Sequence[Flag]":
    """Return the HPA's flags with those of its source of metrics."""
    from adapter import flags as adapter_flags
    from hpa import flags

    # Where both name a flag (--service), it is the HPA's.
    return (*adapter_flags.OWN, *adapter_flags.FEED, *flags.TABLE)


def problem(flags: "Flags") -> str:
    """Return what is wrong with the rules file, before any server is asked; raises
    ``FlagError``.
    """
    from hpa.flags import problems as own_problems
    from podscale.serving.flag_table import problems as server_problems
    from podscale.serving.flags import FlagError

    if found := [*server_problems(flags), *own_problems(flags)]:
        raise FlagError("; ".join(found))
    return feed_problem(flags) if flags.text("metrics-source") == "feed" else ""


def feed_problem(flags: "Flags") -> str:
    """Return what is wrong with the rules file; raises ``FlagError`` for flags of the feed."""
    from pathlib import Path

    from adapter import flags as adapter_flags
    from adapter import precheck
    from podscale.serving.flags import FlagError

    if found := adapter_flags.problems(flags):
        raise FlagError(
            f"{'; '.join(found)} (or --metrics-source=api to ask the cluster's metrics APIs)"
        )
    return precheck.problem(Path(flags.text("config")))


def opener(flags: "Flags") -> "OpenProvider":
    """Return what opens the source of metrics that the flags choose."""
    return from_api if flags.text("metrics-source") == "api" else from_feed


@asynccontextmanager
async def from_api(ground: "Ground") -> "AsyncIterator[MetricsProvider]":
    """Ask the cluster's metrics APIs, whoever serves them."""
    from podscale.kube.metrics_api import ApiProvider

    yield ApiProvider(ground.api, ground.discovery)


@asynccontextmanager
async def from_feed(ground: "Ground") -> "AsyncIterator[MetricsProvider]":
    """Read Prometheus in this process, by the adapter's rules."""
    import asyncio

    from adapter import flags as adapter_flags
    from adapter.errors import ConfigInvalid
    from adapter.parts import Adapter
    from adapter.parts import Ground as AdapterGround
    from adapter.selfmetrics import AdapterMetrics, ObservedClient
    from podscale.feed.feed import Feed
    from podscale.serving.flags import FlagError

    metrics = AdapterMetrics(ground.registry)
    await ground.discovery.refresh()
    async with (
        ObservedClient(adapter_flags.prometheus_options(ground.flags), metrics) as client,
        Feed(client, adapter_flags.feed_options(ground.flags)) as feed,
    ):
        metrics.watch_feed(feed.stats)
        adapter = Adapter(
            ground.flags,
            AdapterGround(ground.api, ground.discovery, ground.pods, client, feed, metrics),
        )
        try:
            await adapter.prepare()
        except ConfigInvalid as invalid:
            # What only the cluster could tell, as that it has no such resource.
            raise FlagError(str(invalid)) from invalid
        adapter.register(ground.health)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(adapter.run(), name="rules")
            try:
                yield adapter.provider
            finally:
                running.cancel()


_serve = program("hpa", "Scale by HorizontalPodAutoscalers.", _load, subcommands=("eval",))


class _WithEval(click.Command):
    """Completes ``eval`` with its options, and the flags of the controller."""

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from podscale.cli.hpa_eval import evaluate

        words = tuple(ctx.params.get("words") or ())
        if words[:1] == ("eval",):
            return evaluate.shell_complete(ctx, incomplete)
        return _serve.shell_complete(ctx, incomplete)


def _first_word(
    ctx: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[click.shell_completion.CompletionItem]:
    item = click.shell_completion.CompletionItem("eval", help="Decide once, from two files.")
    return [item] if not ctx.params.get("words") and "eval".startswith(incomplete) else []


@click.command(
    "hpa",
    cls=_WithEval,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, shell_complete=_first_word)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Scale by HorizontalPodAutoscalers; ``hpa eval`` decides offline."""
    if words[:1] == ("eval",):
        from podscale.cli.hpa_eval import evaluate

        # Errors go up: podscale.cli.entry says them in one line.
        done = evaluate.main(
            args=list(words[1:]), prog_name="podscale hpa eval", standalone_mode=False
        )
        ctx.exit(done or 0)
    ctx.invoke(_serve, words=words)
