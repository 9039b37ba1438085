"""A report on the terminal, as data, and as one file of HTML that needs no network: the page's
colours and charts in it.
"""

import io
from importlib.resources import files
from typing import Literal

import click
import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from hpa.simulate.loop import NeededPods
from hpa.simulate.workload import LoadHistory, held
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
                | {COLUMNS[key]: _cell(key, line[key], report) for key in COLUMNS if key in line}
                for line in each.lines()
            ]
    titles = [title for title in COLUMNS.values() if any(title in line for line in cells)]
    table(["hpa", *titles, "at least"], cells)
    for each in found.replays:
        if not isinstance(each.report, ReplayReport):
            click.echo(printable(f"{each.name}: {each.report}"))
    if not found.is_whole:
        click.echo(f"interrupted: {count(len(found.replays), 'HPA')} of those asked for")


def columns_of(report: ReplayReport) -> tuple[list[str], list[dict[str, str]]]:
    """Return the titles of the columns, and each line by them, as people read it."""
    lines = report.lines()
    titles = {each: COLUMNS[each] for each in COLUMNS if each in lines[0]}
    titles["unserved"] += f" ({report.start_up})"
    return list(titles.values()), [
        {title: _cell(each, line[each], report) for each, title in titles.items()} for line in lines
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


_MOST_POINTS = 3000  # a screen has fewer columns


def html_of(report: ReplayReport, load: LoadHistory, need: NeededPods, title: str) -> str:
    """Return the file's text."""
    rows = _rows(len(need.time_s))
    times = need.time_s[rows]
    lines = [{"name": "needed", "values": _peaks(need.pods, rows), "ink": "steady",
              "fill": "sunk"}]  # fmt: skip
    for row in report.rows:
        if row.run is not None:
            at = np.searchsorted(row.run.time_s, need.time_s, side="right") - 1
            lines.append({"name": row.name, "values": _peaks(row.run.replicas[at], rows)})
    names, cells = columns_of(report)
    data = {
        "title": title,
        "span": said_of(report)[0],
        "assumptions": said_of(report)[1:],
        "columns": names,
        "rows": [[each[name] for name in names] for each in cells],
        "times": times.tolist(),
        "hidden": _spans(need),
        "pods": lines,
        "loads": [
            {"name": key, "values": _known(held(load, values, times))}
            for key, values in load.columns.items()
        ],
        "chosen": _yaml(report.chosen) if report.chosen else "",
    }
    return filled("podscale.cli.replay", data)


def filled(package: str, data: object) -> str:
    """Return a package's ``report.html`` with the page's colours and charts, and ``data``."""
    static = files("podscale.page").joinpath("static")
    parts = {
        "tokens": _tokens(static.joinpath("page.css").read_text("utf-8")),
        "chart_style": static.joinpath("uPlot.min.css").read_text("utf-8"),
        "chart_script": static.joinpath("uPlot.iife.min.js").read_text("utf-8"),
        # Names come from clusters: "</script>" in one of them must not end the data.
        "data": msgspec.json.encode(data).decode().replace("<", "\\u003c"),
    }
    text = files(package).joinpath("report.html").read_text("utf-8")
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part, 1)
    return text


def _rows(count: int) -> NDArray[np.intp]:
    # Where each drawn point begins.
    return np.unique(np.linspace(0, count - 1, min(count, _MOST_POINTS)).astype(np.intp))


def _peaks(values: NDArray[np.int64], rows: NDArray[np.intp]) -> list[int]:
    # The largest of each stretch: a peak must not fall between two points.
    found: list[int] = np.maximum.reduceat(values, rows).tolist()
    return found


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _spans(need: NeededPods) -> list[tuple[float, float]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([True], need.is_known, [True])).astype(np.int8)))
    times = np.append(need.time_s, need.time_s[-1])
    return [
        (float(times[a]), float(times[b])) for a, b in zip(edges[::2], edges[1::2], strict=True)
    ]


def _tokens(style: str) -> str:
    # The rules for :root, which are the colours in light and dark.
    return style[style.index(":root") : style.index(':root[data-theme="light"]')]


def _yaml(value: object) -> str:
    text = io.StringIO()
    yaml.safe_dump(msgspec.to_builtins(value), text, sort_keys=False, allow_unicode=True)
    return text.getvalue()
