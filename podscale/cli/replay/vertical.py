"""``podscale replay vpa/NAME``: other settings of the recommender over the same history."""

import click
import msgspec
import numpy as np
from msgspec import Struct

from podscale.cli.cluster import ClusterChoice
from podscale.cli.inputs import WrongInput, seconds
from podscale.cli.output import emit, print_csv, printable, table
from podscale.cli.replay import inputs
from podscale.cli.replay.inputs import ReplayOptions
from podscale.cli.replay.run import share, two_sources
from podscale.cli.replay.shown import ReplayForm
from podscale.core.times.duration import format_prometheus
from podscale.kube.objects.vpa import ObjectError, Vpa
from podscale.kube.objects.vpa import decode as decode_object
from podscale.replay.inputs import ReplayError
from podscale.replay.vertical import PodUsageHistory, SizingRow, candidates, history_of, replayed
from vpa.model.amounts import RESOURCES

_GIB = 2.0**30


class SizingReport(Struct, frozen=True):
    """All rows, and the span they are of."""

    rows: list[SizingRow]
    span_s: float
    check_s: float


def vertically_replayed(cluster: ClusterChoice, given: ReplayOptions) -> SizingReport:
    """Return the report; raises ``WrongInput``."""
    name = (given.what or "").partition("/")[2]
    if given.trace and name:
        raise two_sources(given, "say vpa alone")
    requests = inputs.requests_of(given.requests)
    try:
        tried = candidates(
            [share("--percentile", each) for each in given.percentiles.split(",")],
            [share("--margin", each, 10.0) for each in given.margins.split(",")],
            [seconds("--half-life", each) for each in given.half_lives.split(",")],
        )
        policy = None
        if given.trace:
            history = _of_trace(given.trace, given.scale)
        elif name:
            plain, history, today = inputs.recorded_usage(cluster, name, given)
            requests = requests or today
            policy = decode_object(plain, Vpa).spec.resource_policy
        else:
            raise WrongInput("say vpa/NAME or --trace FILE")
        amounts = {
            container: {resource: milli / 1000.0 for resource, milli in each.items()}
            for container, each in requests.items()
        }
        return SizingReport(
            replayed(history, tried, amounts, policy),
            float(history.time_s[-1] - history.time_s[0]) + history.step_s,
            history.check_steps * history.step_s,
        )
    except (ReplayError, ObjectError) as error:
        raise WrongInput(str(error)) from None


def print_sizing(report: SizingReport, form: ReplayForm) -> None:
    """Print the rows on stdout."""
    lines = [msgspec.to_builtins(each) for each in report.rows]
    if form in ("json", "yaml"):
        body = {"kind": "SizingReport", "span": round(report.span_s), "rows": lines}
        emit(body, "json" if form == "json" else "yaml")
        return
    if form == "csv":
        print_csv(SizingRow.__struct_encode_fields__, lines)
        return
    titles = ["settings", "container", "resource", "request", "slack", "overrun", "OOM kills",
              "changes/day"]  # fmt: skip
    table(titles, [dict(zip(titles, _cells(each), strict=True)) for each in report.rows])
    every = format_prometheus(round(report.check_s))
    for words in (
        f"over {format_prometheus(round(report.span_s))}, the first {every} left out",
        f"requests move every {every}, to the target where they lie outside the bounds",
        "slack is requested and not used; overrun the share of samples above the request",
        "OOM kills are rises of memory above a limit that equals its request",
    ):
        click.echo(printable(words))


def _cells(row: SizingRow) -> list[str]:
    is_cpu = row.resource == "cpu"
    request = f"{row.request * 1000:.0f}m" if is_cpu else f"{row.request / _GIB:.3f}Gi"
    kills = "" if row.oom_kills is None else str(row.oom_kills)
    return [row.settings, row.container, row.resource, request, f"{row.slack:.1%}",
            f"{row.overrun:.2%}", kills, f"{row.changes_a_day:.1f}"]  # fmt: skip


def _of_trace(file: str, scale: float) -> PodUsageHistory:
    # Columns are cpu and memory of one pod, or CONTAINER/cpu.
    load, _ = inputs.trace_of_file(file, scale)
    usage: dict[str, dict[tuple[str, str], np.ndarray[tuple[int], np.dtype[np.float64]]]] = {
        resource: {} for resource in RESOURCES
    }
    for column, values in load.columns.items():
        container, _, resource = column.rpartition("/")
        if resource not in usage:
            raise WrongInput(f"{file}:1: {column} is neither cpu nor memory, nor CONTAINER/cpu")
        usage[resource][container or "app", "pod"] = values
    return history_of(load.time_s, usage)
