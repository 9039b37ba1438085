"""A report on the terminal and as data."""

from typing import Literal

import click

from podscale.cli.output import count, emit, print_csv, printable, table
from podscale.core.times.duration import format_prometheus
from podscale.replay.report import (
    COLUMNS,
    FURTHER,
    GATE_COLUMNS,
    AllReplays,
    ReplayReport,
    gate_cells,
)

ReplayForm = Literal["table", "json", "yaml", "csv"]
_TITLES = {
    "spec": "spec", "podHours": "pod-hours", "cost": "cost", "unserved": "unserved",
    "overTarget": "over target", "rescalesADay": "rescales/day",
    "reversalsADay": "reversals/day", "longestLag": "longest lag", "largest": "largest",
}  # fmt: skip


def print_report(report: ReplayReport, form: ReplayForm) -> None:
    """Print the rows on stdout, and beside a table what they rest on."""
    lines = report.lines()
    if form == "csv":
        names = [each for each in (*COLUMNS, *FURTHER) if each in lines[0]]
        print_csv(names, lines)
        return
    if form != "table":
        emit(report.body(), form)
        return
    table(*columns_of(report))
    click.echo()
    for words in said_of(report):
        click.echo(printable(words))
    if report.gate is not None:
        click.echo(f"\nthe gate over the last {count(report.gate.days, 'day')}:")
        table(list(GATE_COLUMNS), gate_cells(report.gate))
    if report.chosen is not None:
        click.echo(f"\n# {printable(report.chosen_name)}")
        emit(report.chosen, "yaml")


def print_all(found: AllReplays, form: ReplayForm) -> None:
    """Print a line for each spec of each HPA, and why others have none."""
    if form in ("json", "yaml"):
        emit(found.body(), "json" if form == "json" else "yaml")
        return
    lines = [line for each in found.replays for line in each.lines()]
    if form == "csv":
        names = [each for each in ("hpa", *COLUMNS, *FURTHER, "oraclePodHours", "failed")
                 if any(each in line for line in lines)]  # fmt: skip
        print_csv(names, lines)
        return
    cells = []
    for each in found.replays:
        if isinstance(report := each.report, ReplayReport):
            cells += [
                {"hpa": each.name, "at least": _cell("podHours", line["oraclePodHours"], report)}
                | {_TITLES[key]: _cell(key, line[key], report) for key in COLUMNS if key in line}
                for line in each.lines()
            ]
    titles = [title for title in _TITLES.values() if any(title in line for line in cells)]
    table(["hpa", *titles, "at least"], cells)
    for each in found.replays:
        if not isinstance(each.report, ReplayReport):
            click.echo(printable(f"{each.name}: {each.report}"))
    if not found.is_whole:
        click.echo(f"interrupted: {count(len(found.replays), 'HPA')} of those asked for")


def columns_of(report: ReplayReport) -> tuple[list[str], list[dict[str, str]]]:
    """Return the titles of the columns, and each line by them, as people read it."""
    lines = report.lines()
    named = [each for each in COLUMNS if each in lines[0]]
    return [_TITLES[each] for each in named], [
        {_TITLES[each]: _cell(each, line[each], report) for each in named} for line in lines
    ]


def said_of(report: ReplayReport) -> list[str]:
    """Return what the numbers rest on, a sentence a line."""
    span = format_prometheus(round(report.end_s - report.start_s))
    left = f"; {report.left_out:.1%} of it is left out" if report.left_out else ""
    found = [f"over {span}{left}", *report.assumptions]
    if not report.is_whole:
        found.append(f"interrupted: {count(len(report.rows) - 1, 'spec')} of those asked for")
    return found


def _cell(name: str, value: object, report: ReplayReport) -> str:
    match name, value:
        case "cost", float():
            return f"{value:.2f} {report.currency}".strip()
        case "podHours", float():
            return f"{value:.1f}" if value >= 1 else f"{value:.2g}"
        case "unserved", float():
            return f"{value:.3%}"
        case (("overTarget" | "longestLag"), int()):
            return format_prometheus(value) if value else "0"
        case (("rescalesADay" | "reversalsADay"), float()):
            return f"{value:.1f}"
    return str(value)
