"""A report as one file of HTML that needs no network: the page's colours and charts in it."""

import io
from importlib.resources import files

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from hpa.simulate.load import LoadHistory, held
from hpa.simulate.verdict import NeededPods
from podscale.cli.replay.shown import columns_of, said_of
from podscale.replay.report import ReplayReport

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
