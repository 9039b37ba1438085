"""``serve``, ``control`` and ``run``: commands that run several parts in one process."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from podscale.cli.program import program

if TYPE_CHECKING:
    from podscale.serving.flags import Flag, Flags, Value


def joined(
    name: str,
    summary: str,
    parts: Sequence[str],
    *,
    leads: bool = False,
    has_page: bool = False,
) -> click.Command:
    """Return the command that runs ``parts``; ``leads``: under Leases unless a flag says no."""

    def load() -> "tuple[Sequence[Flag], Any]":
        from podscale.cli.combined import merged
        from podscale.cli.page import FLAGS
        from podscale.cli.together_flags import TABLES

        tables = {part: TABLES[part] for part in parts}

        def run(parsed: "Flags", _is_launcher: bool) -> Coroutine[Any, Any, int]:
            return _run(name, parsed, tables, leads=leads)

        return (*merged(tables), *(FLAGS if has_page else ())), run

    about = f"{summary}\n\n--flag reaches every part that knows it, --PART.flag one of "
    return program(name, f"{about}{', '.join(parts)}.", load)


async def _run(
    name: str, parsed: "Flags", tables: "Mapping[str, Sequence[Flag]]", *, leads: bool
) -> int:
    import gc

    from podscale.cli.combined import split
    from podscale.cli.page import Choice
    from podscale.cli.together import together
    from podscale.cli.together_flags import problems, reader_of
    from podscale.kube.own_pod import own_namespace
    from podscale.serving import process

    namespace = await asyncio.to_thread(own_namespace, "podscale")
    defaults: dict[str, Value] = {
        "leader-elect": leads,
        "leader-elect-resource-namespace": namespace,
        "address": "",  # /metrics is on the one server
    }
    flags = split(parsed, tables, defaults)
    reader = reader_of(flags)
    file = reader.text("config") if reader is not None else ""
    wrong = [
        text  # of the rules file: lines that an editor can jump to
        if file and text.startswith(f"{file}:")
        else f"podscale {name}: {text} (--help lists all flags)"
        for text in await asyncio.to_thread(problems, flags)
    ]
    # A round makes some hundred thousand short-lived containers: collecting after every 700
    # of them would cost more than all of them together.
    gc.set_threshold(50_000, 50, 50)
    shows_page = "page" in parsed.values and parsed.switch("page")
    shows = Choice(parsed.number("page-port")) if shows_page else None
    return await process.run(
        parsed,
        wrong,
        lambda _parsed, verbosity: together(flags, verbosity, shows=shows),
    )
