"""From the call to the report: names, prices, Prometheus's history; and the report on the terminal,
as data, and as one file of HTML that needs no network.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import yaml
from msgspec import Struct

from podscale.cli.cluster import ClusterChoice
from podscale.cli.inputs import WrongInput, seconds, write
from podscale.cli.output import count, emit, print_csv, printable, progress, table
from podscale.cli.prometheus import PrometheusChoice, PrometheusUnanswered
from podscale.cli.replay.inputs import converted
from podscale.cli.replay.run import share
from podscale.cli.replay.shown import filled
from podscale.core.times.duration import format_prometheus
from podscale.feed.errors import QueryError
from podscale.feed.http.client import PrometheusClient
from podscale.feed.range_reader import HistoryReader
from podscale.replay.fleet.assembly import report_of, with_targets
from podscale.replay.fleet.reading import FleetNames, FleetPast, FleetReader, FleetSpan
from podscale.replay.fleet.report import (
    FleetReport,
    PatchForm,
    WorkloadPatch,
    file_name,
    patches_of,
)
from podscale.replay.fleet.sizing import Estimator, RequestChoice
from podscale.replay.fleet.usage import BLOCK_S
from podscale.replay.inputs import PriceList

if TYPE_CHECKING:
    from podscale.feed.options import PrometheusOptions

ReportForm = Literal["table", "wide", "json", "yaml", "csv"]
_MEBI = 2**20
_FEWEST_S = 86400  # of history: with less no class of a day's shape and no risk is known
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
            else "savings unknown: Prometheus has no resource requests"
        )
    ]
    if report.history_s < _FEWEST_S:
        found.insert(0, f"caution: only {format_prometheus(report.history_s)} of history; classes "
                     "and recommendations need at least a day")  # fmt: skip
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


_DEADLINE_S = 30.0


class ReportOptions(Struct, frozen=True):
    """The call, as it was written."""

    since: str = "8d"
    step: str = "5m"
    prometheus: PrometheusChoice = PrometheusChoice()
    names: str = ""
    estimator: Estimator = "vpa"
    percentile: float = 0.9
    min_cpu_milli: float = 25.0
    min_memory_mb: float = 250.0
    price: str = ""
    patches: str = ""
    patches_form: PatchForm = "kustomize"
    max_risk: str = "1%"
    html: str = ""


def reported(cluster: ClusterChoice, given: ReportOptions) -> FleetReport:
    """Return the report; raises ``WrongInput`` for what has to be changed first, and
    ``PrometheusUnanswered``."""
    names = converted(given.names, FleetNames) if given.names else FleetNames()
    prices = converted(given.price, PriceList) if given.price else None
    step_s = round(seconds("--step", given.step))
    if step_s < 1 or 3600 % step_s:
        raise WrongInput(f"--step {given.step}: an hour has to be a number of whole steps")
    blocks = int(seconds("--since", given.since) // BLOCK_S)
    if not blocks:
        raise WrongInput(f"--since must be at least 6h, not {given.since}")
    most_risk = share("--max-risk", given.max_risk)
    only = cluster.only_namespace
    source = given.prometheus.options(_DEADLINE_S)
    if source is None:
        raise WrongInput("specify --prometheus-url URL")
    try:
        past, span = asyncio.run(_past(source, names, only, blocks, step_s, given.estimator))
    except QueryError as error:
        raise PrometheusUnanswered(source.url, error) from None
    if not past.usage.containers:
        where = f"of namespace {only} " if only else ""
        raise WrongInput(
            f"Prometheus has no {names.cpu} or {names.memory} {where}in the last {given.since}; "
            "if they have other names, map them with --names FILE"
        )
    choice = RequestChoice(
        given.estimator, given.percentile, given.min_cpu_milli, given.min_memory_mb
    )
    report = with_targets(report_of(past, span, choice, prices, progress()), past, progress())
    if given.patches:
        patches = patches_of(report, most_risk, given.patches_form)
        _write_patches(given.patches, patches, given.patches_form)
    if given.html:
        write(given.html, html_of(report, only))
    return report


async def _past(
    source: "PrometheusOptions",
    names: FleetNames,
    only: str,
    blocks: int,
    step_s: int,
    estimator: Estimator,
) -> tuple[FleetPast, FleetSpan]:
    async with PrometheusClient(source) as client:
        now = await client.clock_s()
    span = FleetSpan(int(now), blocks, step_s, only)
    async with HistoryReader(source) as reader:
        fleet = FleetReader(reader, names, span, progress())
        return await fleet.past(is_autopilot=estimator == "autopilot"), span


def _write_patches(folder: str, patches: list[WorkloadPatch], form: PatchForm) -> None:
    """Write one file for each patch, and for kustomize the list of them; raises ``WrongInput``."""
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise WrongInput(f"--patches {folder}: there are files already; say an empty folder")
    except OSError as error:
        raise WrongInput(f"--patches {folder}: {error.strerror}") from None
    names = []
    for number, patch in enumerate(patches, 1):
        names.append(file_name(number, patch))
        body = yaml.safe_dump(patch.body, sort_keys=False, allow_unicode=True)
        write(str(path / names[-1]), f"# {printable(patch.says)}\n{body}")
    if form == "kustomize":
        kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                "patches": [{"path": each} for each in names]}  # fmt: skip
        write(str(path / "kustomization.yaml"), yaml.safe_dump(kind, sort_keys=False))
