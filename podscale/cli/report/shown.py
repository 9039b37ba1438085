"""A report on a cluster: on the terminal, as data, as one file of HTML that needs no network."""

from collections.abc import Mapping
from typing import Literal

import click

from podscale.cli.output import count, emit, print_csv, printable, table
from podscale.cli.replay.html import filled
from podscale.core.times.duration import format_prometheus
from podscale.replay.fleet.report import FleetReport

ReportForm = Literal["table", "wide", "json", "yaml", "csv"]
_MEBI = 2**20
_NARROW = ("workload", "container", "pods", "class", "cpu", "risk", "memory", "risk ", "saves")
_WIDE = (*_NARROW[:4], "hpa", "days", "throttled", "kills", "p50", "p99", "max",
         *_NARROW[4:6], "p50 ", "p99 ", "max ", *_NARROW[6:])  # fmt: skip


def print_report(report: FleetReport, form: ReportForm) -> None:
    """Print the rows on stdout, and beside a table the sums and what is not known."""
    if form == "csv":
        rows = report.rows()
        print_csv(list(rows[0]) if rows else [], rows)
        return
    if form in ("json", "yaml"):
        emit(report.body(), "json" if form == "json" else "yaml")
        return
    names = _WIDE if form == "wide" else _NARROW
    cells = [_cells(row, report) for row in report.rows()]
    table([each for each in names if each != "saves" or report.prices], cells)
    click.echo()
    for words in said_of(report):
        click.echo(printable(words))


def said_of(report: FleetReport) -> list[str]:
    """Return the sums, what has an advice of its own, and what is not known, a sentence a line."""
    sums = report.totals()
    found = [
        f"{count(len(report.lines), 'container')} over {format_prometheus(report.history_s)}: "
        + (
            f"{sums['freedCores']:.1f} cores and {sums['freedGib']:.1f} GiB could be freed, "
            f"{sums['addedCores']:.1f} cores and {sums['addedGib']:.1f} GiB are missing"
            if report.knows_requests
            else "what could be freed is not known, because no request is"
        )
    ]
    if report.prices is not None:
        found.append(f"that saves {sums['moneyAMonth']:.0f} {report.prices.currency} a month")
    found += [f"{line.sized.workload}: {line.advice}" for line in report.lines if line.advice]
    return found + list(report.notes)


def html_of(report: FleetReport, only: str) -> str:
    """Return the text of a file to sort and filter; ``only`` is the namespace, empty for all."""
    rows = report.rows()
    columns = list(rows[0]) if rows else []
    return filled("podscale.cli.report", {
        "title": f"What {f'namespace {only}' if only else 'the cluster'} could save",
        "end": report.span.end_s,
        "said": [printable(each) for each in said_of(report)],
        "totals": dict(report.totals()),
        "currency": report.prices.currency if report.prices else "",
        "knowsRequests": report.knows_requests,
        "columns": columns,
        "rows": [list(row.values()) for row in rows],
    })  # fmt: skip


def _cells(row: Mapping[str, object], report: FleetReport) -> dict[str, str]:
    workload = f"{row['namespace']}/{str(row['kind']).lower()}/{row['name']}"
    return {
        "workload": workload, "container": str(row["container"]), "pods": f"{row['pods']:g}",
        "class": _class(row), "hpa": str(row["hpa"]),
        "days": f"{row['days']:.1f}", "throttled": chance(row["throttled"]),
        "kills": str(row["oomKills"]),
        "cpu": _change(row, "cpu", report), "risk": _risk(row, "cpu"),
        "p50": cpu(row["cpuP50"]), "p99": cpu(row["cpuP99"]), "max": cpu(row["cpuMax"]),
        "memory": _change(row, "memory", report), "risk ": _risk(row, "memory"),
        "p50 ": memory(row["memoryP50"]), "p99 ": memory(row["memoryP99"]),
        "max ": memory(row["memoryMax"]),
        "saves": f"{row.get('moneyAMonth', 0.0):.2f}",
    }  # fmt: skip


def _class(row: Mapping[str, object]) -> str:
    # Of CPU; memory's where it says something of its own.
    named = [str(row[each]) for each in ("cpuClass", "memoryClass") if row[each]]
    return "/".join(dict.fromkeys(each for each in named if each != "steady")) or "steady"


def _change(row: Mapping[str, object], resource: str, report: FleetReport) -> str:
    shown = cpu if resource == "cpu" else memory
    if row[f"{resource}Recommended"] is None:
        return "?"
    absent = "none" if report.knows_requests else "?"
    return f"{shown(row[f'{resource}Request']) or absent} → {shown(row[f'{resource}Recommended'])}"


def _risk(row: Mapping[str, object], resource: str) -> str:
    low, high = row[f"{resource}RiskLow"], row[f"{resource}RiskHigh"]
    if low is None:
        return "?"
    return f"{chance(row[f'{resource}Risk'])} ({chance(low)}-{chance(high)})"


def cpu(cores: object) -> str:
    """Return cores as milli-cores, empty for None."""
    return f"{cores * 1000:.0f}m" if isinstance(cores, float | int) else ""


def memory(amount: object) -> str:
    """Return bytes as Mi, empty for None."""
    return f"{amount / _MEBI:.0f}Mi" if isinstance(amount, float | int) else ""


def chance(value: object) -> str:
    """Return a share as per cent, empty for None; what rounds to nothing is not nothing."""
    if not isinstance(value, float | int):
        return ""
    return "<0.1%" if 0.0 < value < 0.0005 else f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"
