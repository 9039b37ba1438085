"""A report on a cluster as one file of HTML that needs no network, to sort and filter."""

from podscale.cli.output import printable
from podscale.cli.replay.html import filled
from podscale.cli.report.shown import said_of
from podscale.replay.fleet.report import FleetReport


def html_of(report: FleetReport, only: str) -> str:
    """Return the file's text; ``only`` is the namespace, empty for all."""
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
