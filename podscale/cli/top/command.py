"""``podscale top``: the fleet in a terminal, live. A decision of an HPA or a VPA is one line."""

import asyncio
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from podscale.cli.cluster import EXIT_FAILED, ClusterChoice, cluster_options
from podscale.cli.commands.explain import lines
from podscale.cli.output import GAP, printable

if TYPE_CHECKING:
    from podscale.kube.client.api import Api

COLUMNS = ("kind", "object", "load", "target", "size", "reason", "why")
# What gives way to the reason, in this order, and the width that is left to it.
_GIVING_WAY = {"target": 0, "load": 10, "size": 11, "object": 12}
_LEAST_WHY = 40  # characters that say something


class TopRow(Struct, frozen=True):
    """One autoscaler: what is shown, what it is sorted by, and the decision itself."""

    kind: str
    object: str
    load: str
    target: str
    size: str
    reason: str
    why: str
    load_ratio: float  # -1: not known
    body: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same row of the next look."""
        return f"{self.kind}/{self.object}"

    def cells(self) -> list[str]:
        """Return the texts of the columns, safe for a terminal."""
        return [printable(str(getattr(self, each))) for each in COLUMNS]

    def details(self, now: float) -> list[str]:
        """Return the decision in words, and the reasons before it."""
        status = self.body.get("status", {})
        before = (f"  {each.get('time', '')}  {each.get('reason', '')}"
                  for each in reversed(status.get("history", ())))  # fmt: skip
        return [*lines(self.body, now=now), "", *map(printable, before)]


def row_of(kind: str, body: Mapping[str, Any]) -> TopRow:
    """Return the line of a ScalingDecision (``hpa``) or SizingDecision (``vpa``)."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    facts = status.get("facts", {})
    target = spec.get("scaleTargetRef") or spec.get("targetRef") or {}
    ratio = facts.get("ratio")
    known = isinstance(ratio, float | int)
    return TopRow(
        kind,
        f"{metadata.get('namespace', '')}/{metadata['name']}",
        _load(facts) if known else "",
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _replicas(spec, status) if kind == "hpa" else _amounts(status),
        status.get("first_reason", ""),
        status.get("why", ""),
        float(ratio) if known else -1.0,
        body,
    )


def chosen(rows: Iterable[TopRow], text: str, by: str, *, is_down: bool) -> Sequence[TopRow]:
    """Return the rows that hold ``text`` anywhere, sorted by a column."""
    wanted = text.casefold()
    kept = [row for row in rows if wanted in " ".join(row.cells()).casefold()]

    def key(row: TopRow) -> tuple[Any, str]:
        return row.load_ratio if by == "load" else getattr(row, by), row.key

    return sorted(kept, key=key, reverse=is_down)


def column_widths(
    heads: Mapping[str, str], rows: Iterable[Sequence[str]], most: int, padding: int
) -> dict[str, int]:
    """Return the columns to show and their widths, which end within ``most`` if they can.

    ``heads`` are by column, ``rows`` as ``TopRow.cells``; ``padding`` comes on top of each width.
    The reason is whole; the sentence gets what is left, and goes where it would say nothing.
    """
    cells = zip(heads.values(), *rows, strict=True)
    full = {each: max(map(len, of)) for each, of in zip(COLUMNS, cells, strict=True)}
    for why in (min(full["why"], _LEAST_WHY), -padding):
        widths = {each: width for each, width in full.items() if each != "why"}
        over = sum(width + padding for width in (*widths.values(), why)) - most
        for each, least in _GIVING_WAY.items():
            if over <= 0:
                break
            if not least:
                over -= widths.pop(each) + padding
                continue
            given = max(0, min(over, widths[each] - least))
            widths[each] -= given
            over -= given
        if over <= 0 and why > 0:
            widths["why"] = min(full["why"], why - over)
            break
    return widths


def fitted(
    rows: Sequence[TopRow], most: int
) -> tuple[Sequence[str], Sequence[Mapping[str, object]]]:
    """Return columns and rows of a table whose lines end within ``most`` characters, if they can.

    ``most`` of 0 cuts nothing.
    """
    cells = [row.cells() for row in rows]
    if not most:
        return COLUMNS, [dict(zip(COLUMNS, each, strict=True)) for each in cells]
    heads = {each: each for each in COLUMNS}
    widths = column_widths(heads, cells, most + len(GAP), len(GAP))  # none after the last column
    return list(widths), [
        {
            column: text if len(text) <= widths[column] else f"{text[: widths[column] - 1]}…"
            for column, text in zip(COLUMNS, each, strict=True)
            if column in widths
        }
        for each in cells
    ]


def _load(facts: Mapping[str, Any]) -> str:
    # As kubectl get hpa writes it: a percent is of the request, on both sides.
    from hpa.explain.reading import amount

    metric, name = facts.get("metric", ""), str(facts.get("resource", ""))
    if "utilization" in facts:
        return f"{facts['utilization']}%/{facts.get('target_utilization')}% {metric}"
    kind = "value" if "value" in facts else "average_value"
    used, target = (amount(facts.get(each, 0), name) for each in (kind, f"target_{kind}"))
    return f"{used}/{target} {metric}"


def _replicas(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    size = status.get("replicas")
    bounds = f"{spec.get('minReplicas', 1)}-{spec.get('maxReplicas', '')}"
    return f"{'?' if size is None else size} of {bounds}"


def _amounts(status: Mapping[str, Any]) -> str:
    found = []
    for each in status.get("recommendation", ()):
        amount = each.get("decision", {}).get("amount")
        if amount is not None:
            is_cpu = each.get("resource") == "cpu"
            shown = f"{amount}m" if is_cpu else f"{amount / 2**20:.0f}Mi"
            found.append(f"{each.get('container')} {each.get('resource')} {shown}")
    return ", ".join(found)


@click.command("top")
@cluster_options
@click.option("--once", is_flag=True, help="Print a table and end, as without a terminal.")
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
    Enter  open one: its decision in words and the reasons before it      ?  help      q  quit
    """
    try:
        asyncio.run(_top(ctx, cluster, by, text, once=once))
    except KeyboardInterrupt:
        ctx.exit(0)


async def _top(
    ctx: click.Context, cluster: ClusterChoice, by: str, text: str, *, once: bool
) -> None:
    from podscale.cli.commands.explain import nothing_found
    from podscale.cli.output import note, printable, table

    async with cluster.connect("top") as api:
        only = cluster.only_namespace
        scope = f"/namespaces/{only}" if only else ""

        async def look() -> "tuple[Sequence[TopRow], str]":
            return await _look(api, scope)

        if once or not sys.stdout.isatty():
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
