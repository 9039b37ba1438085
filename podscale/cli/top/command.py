"""``podscale top``: the fleet in a terminal, live."""

import asyncio
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import EXIT_FAILED, ClusterChoice, cluster_options
from podscale.cli.top.rows import COLUMNS, chosen, fitted, row_of

if TYPE_CHECKING:
    from podscale.cli.top.rows import TopRow
    from podscale.kube.client.api import Api


@click.command("top")
@cluster_options
@click.option("--once", is_flag=True, help="Print a table and end.")
@click.option(
    "--sort", "by", type=click.Choice(COLUMNS), default="object", show_default=True,
    help="The column to begin with; load has the highest first.",
)  # fmt: skip
@click.option("--filter", "text", default="", metavar="TEXT", help="Only rows that hold it.")
@click.pass_context
def command(ctx: click.Context, cluster: ClusterChoice, once: bool, by: str, text: str) -> None:
    """Show HPAs and VPAs with load, target, size and reason, live.

    \b
    podscale top -A
    podscale top -n shop --once --sort load

    \b
    /  filter      s  sort by the next column      r  reverse
    Enter  open one: its decision in words and the reasons before it      q  quit
    """
    try:
        asyncio.run(_top(ctx, cluster, by, text, once=once))
    except KeyboardInterrupt:
        ctx.exit(0)


async def _top(
    ctx: click.Context, cluster: ClusterChoice, by: str, text: str, *, once: bool
) -> None:
    from podscale.cli.commands.explained import nothing_found
    from podscale.cli.output import note, printable, table

    async with cluster.connect("top") as api:
        only = cluster.only_namespace
        scope = f"/namespaces/{only}" if only else ""

        async def look() -> "tuple[Sequence[TopRow], str]":
            return await _look(api, scope)

        if once:
            rows, said = await look()
            shown = chosen(rows, text, by, is_down=by == "load")
            # Cut to a terminal, as the live table is; whole where another program reads it.
            width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
            table(*fitted(shown, width))
            if said:
                note(f"podscale top: {printable(said)}")
            elif not rows:
                note(nothing_found(only))
            if said and not rows:
                ctx.exit(EXIT_FAILED)
            return
        # Imported here: it takes longer than a table.
        from podscale.cli.top.app import TopApp

        await TopApp(look, by=by, text=text, nothing=nothing_found(only)).run_async()


async def _look(api: "Api", scope: str) -> "tuple[Sequence[TopRow], str]":
    # Either part may not run; what the other has decided is shown all the same.
    from podscale.cli.commands.explain import KINDS, ExplainFailed, whole_answer

    async def of(kind: str) -> "list[TopRow]":
        group, version, plural = KINDS[kind]
        path = f"/apis/{group}/{version}{scope}/{plural}"
        return [row_of(kind, each) for each in (await whole_answer(api, path, {}, group))["items"]]

    kinds = ("hpa", "vpa")
    found = await asyncio.gather(*(of(kind) for kind in kinds), return_exceptions=True)
    rows: list[TopRow] = []
    said = []
    for kind, each in zip(kinds, found, strict=True):
        if isinstance(each, ExplainFailed):
            said.append(f"{kind}s: {each}")
        elif isinstance(each, BaseException):
            raise each
        else:
            rows += each
    return rows, "; ".join(said)
