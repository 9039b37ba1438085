"""The commands that run parts: each is a list of them, composed with the page in one way.

``podscale.process.compose`` does that; here are the lists, their command lines, and the page.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from podscale.cli.entry import COMMANDS
from podscale.cli.flag_program import program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags, Value


def command(
    name: str,
    *parts: str,
    summary: str = "",
    leads: bool | None = None,
    has_page: bool = False,
    subcommands: Mapping[str, click.Command] = MappingProxyType({}),
) -> click.Command:
    """Return the command that runs ``parts``; ``leads``: under Leases unless a flag says no (None:
    as each part's own table says). ``summary`` is that of the list of commands unless it is given,
    ``subcommands`` are other words that it takes."""

    def load() -> "tuple[Sequence[Flag], Any]":
        from podscale.cli.page import FLAGS
        from podscale.cli.parts import KINDS
        from podscale.process.flags import merged

        tables = {part: KINDS[part].table for part in parts}

        def run(parsed: "Flags", is_launcher: bool) -> Coroutine[Any, Any, int]:
            return _run(name, parsed, tables, leads=leads, is_launcher=is_launcher)

        table = merged(tables) if len(parts) > 1 else tables[parts[0]]
        return (*table, *(FLAGS if has_page else ())), run

    summary = summary or COMMANDS[name].summary
    if len(parts) > 1:
        summary = (
            f"{summary}\n\n--flag reaches every part that knows it, --PART.flag one of "
            f"{', '.join(parts)}."
        )
    return program(name, summary, load, subcommands=subcommands)


async def _run(
    name: str,
    parsed: "Flags",
    tables: "Mapping[str, Sequence[Flag]]",
    *,
    leads: bool | None,
    is_launcher: bool,
) -> int:
    from adapter import precheck
    from podscale.cli.page import PageChoice, composed_with_page
    from podscale.cli.parts import problems, reader_of
    from podscale.kube.leadership.leading import own_namespace
    from podscale.process import compose
    from podscale.process import program as running
    from podscale.process.flags import split

    flags = {next(iter(tables)): parsed}
    if len(tables) > 1:
        defaults: dict[str, Value] = {
            "leader-elect-resource-namespace": await asyncio.to_thread(own_namespace, "podscale"),
            "address": "",  # /metrics is on the one server
        }
        if leads is not None:
            defaults["leader-elect"] = leads
        flags = split(parsed, tables, defaults)
    reader = reader_of(flags)
    names = [reader.text(name) for name in precheck.FILES] if reader is not None else []
    files = tuple(f"{name}:" for name in names if name)
    wrong = [
        text  # of a file: lines that an editor can jump to
        if text.startswith(files)
        else f"podscale {name}: {text} (--help lists all flags)"
        for text in await asyncio.to_thread(problems, flags)
    ]
    shows_page = "page" in parsed.values and parsed.switch("page")
    shows = PageChoice(parsed.number("page-port")) if shows_page else None
    compose.relax()
    return await running.run(
        parsed,
        wrong,
        lambda _parsed, verbosity: compose.settling(
            composed_with_page(flags, verbosity, shows=shows, is_launcher=is_launcher)
        ),
    )


serve = command("serve", "adapter", "admission")
control = command("control", "hpa", "recommender", "updater", leads=True, has_page=True)
run = command(
    "run", "adapter", "hpa", "recommender", "updater", "admission", leads=False, has_page=True
)
adapter = command("adapter", "adapter")
recommender = command("recommender", "recommender")
updater = command("updater", "updater")
admission = command("admission", "admission")
