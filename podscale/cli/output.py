"""Data on stdout in the form that was asked for; everything else goes to stderr."""

import csv
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import click

from podscale.core.plainwords import plain_words

Form = Literal["table", "wide", "json", "yaml"]
FORMS: tuple[Form, ...] = ("table", "wide", "json", "yaml")
GAP = "   "  # between the columns of a table

_REFUSED = re.compile(r"Cannot connect to host (\S+) \[Connect call failed \([^)]*\)\]")
_OBJECTS = re.compile(r" ?(?:ssl:)?\[?<[^<>]* object at 0x[0-9a-f]+>\]?")

output_option = click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="The output format.",
)  # fmt: skip


def emit(value: object, form: Form) -> None:
    """Print ``value``, plain data, as JSON or YAML."""
    if form == "json":
        # Imported here: --help must not load it. It writes null for NaN, which JSON cannot say.
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
        return
    # Imported here: --help must not load it.
    import yaml

    click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def printable(text: str) -> str:
    """Return ``text`` in one line, without anything that a terminal would obey.

    Names of metrics and messages come from the cluster: ESC in one of them would move the
    cursor, rename the window or forge the lines around it.
    """
    return "".join(
        each if each.isprintable() else " " if each in "\n\r\t" else _escaped(each) for each in text
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def table(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    """Print ``rows`` under ``columns`` as kubectl does: three blanks between, no lines."""
    cells = [[printable(str(row.get(column, ""))) for column in columns] for row in rows]
    widths = [
        max(len(column), *(len(line[i]) for line in cells)) if cells else len(column)
        for i, column in enumerate(columns)
    ]
    for line in [[column.upper() for column in columns], *cells]:
        text = GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo(text.rstrip())


def print_csv(columns: Sequence[str], rows: Sequence[Mapping[str, object]]) -> None:
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def count(number: int, noun: str) -> str:
    """Return ``1 metric``, ``2 metrics``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def wants_colour() -> bool:
    """Return whether stdout is a terminal that shows colours (``NO_COLOR`` says no)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def note(text: str) -> None:
    """Print ``text`` beside the data."""
    click.echo(text, err=True)


def said(error: Exception) -> str:
    """Return an error in one line for a person: without errno, without objects of Python."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return plainly(str(error)) or type(error).__name__


def plainly(text: str) -> str:
    """Return an error's text without what only Python understands."""
    # aiohttp shows the SSL setting it was given, asyncio the address as a tuple.
    text = plain_words(text)
    text = _REFUSED.sub(r"no connection to \1", _OBJECTS.sub("", text).replace(" ssl:default", ""))
    return " ".join(text.split())


Progress = Callable[[int, int, str], None]  # done, of how many, what


def progress() -> Progress:
    """Return what draws a bar on a terminal's stderr, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda *_: None
    width = 30

    def draw(done: int, of: int, what: str) -> None:
        filled = width * done // max(of, 1)
        bar = "█" * filled + "░" * (width - filled)
        click.echo(f"\r\x1b[K{bar} {done}/{of} {what[:60]}", err=True, nl=done >= of)

    return draw
