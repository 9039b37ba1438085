"""``podscale replay``: what another setting would have done with the load that there was."""

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from podscale.cli.cluster import ClusterChoice, cluster_options, kind_and_name
from podscale.cli.inputs import WrongInput
from podscale.cli.prometheus import prometheus_options

if TYPE_CHECKING:
    from podscale.cli.replay.shown import ReplayForm

FORMS = ("table", "json", "yaml", "csv")
EXIT_INTERRUPTED = 130
_VPAS = ("vpa", "verticalpodautoscaler")
# Parameters that mean something to some replays only.
_OF_HPAS = {
    "hpa_files", "ready_after", "metric_age", "nodes_after", "room", "pod_capacity", "replicas",
    "price", "sweeps", "at_most_unserved", "is_forecast", "workers", "dask", "html",
}  # fmt: skip
_OF_VPAS = {"percentiles", "margins", "half_lives"}
_OF_HISTORY = {
    "since", "step", "max_samples", "config", "config_map", "prometheus_url", "prometheus_header",
    "prometheus_token_file", "prometheus_ca_file",
}  # fmt: skip
_OF_TRACES = {"scale"}


@click.command("replay")
@click.argument("what", metavar="[hpa[/NAME]|vpa/NAME]", required=False,
                shell_complete=kind_and_name("hpa", "vpa"))  # fmt: skip
@click.option("--since", default="7d", show_default=True, metavar="DURATION", help="How far back.")
@click.option(
    "--step", default="15s", show_default=True, metavar="DURATION", help="The resolution."
)
@prometheus_options
@click.option("-f", "--config", default="", metavar="FILE", help="The rules file of the adapter.")
@click.option(
    "--config-map", default="", metavar="NAMESPACE/NAME",
    help="A ConfigMap with the rules. Default: the rules of the running adapter.",
)  # fmt: skip
@click.option(
    "--max-samples", type=click.IntRange(1), default=50_000_000, show_default=True,
    help="Stop when more samples than this would be read.",
)  # fmt: skip
@click.option("--trace", default="", metavar="FILE", help="CSV: a time, and a value per metric.")
@click.option(
    "--hpa", "hpa_files", multiple=True, metavar="FILE",
    help="A spec to try; with --trace the first is today's. Repeatable.",
)  # fmt: skip
@click.option("--scale", default=1.0, help="Multiply the values of the trace by this.")
@click.option(
    "--ready-after", default="", metavar="DURATION",
    help="The time from a pod's creation to Ready. Default: as measured, else 1m.",
)  # fmt: skip
@click.option(
    "--metric-age", default="15s", show_default=True, metavar="DURATION",
    help="The age of metrics when a decision is made.",
)  # fmt: skip
@click.option(
    "--nodes-after", default="0s", metavar="DURATION",
    help="The time until a new node is ready, for pods beyond --room.",
)  # fmt: skip
@click.option("--room", type=click.IntRange(1), help="How many pods fit on today's nodes.")
@click.option(
    "--request", "requests", multiple=True, metavar="[CONTAINER/]RESOURCE=QUANTITY",
    help="The request of a pod. Repeatable.",
)  # fmt: skip
@click.option("--pod-capacity", default="", metavar="QUANTITY", help="The load one pod serves.")
@click.option("--replicas", type=click.IntRange(0), help="The number of pods at the start.")
@click.option("--price", default="", metavar="FILE", help="YAML: currency, coreHour, gibHour …")
@click.option(
    "--sweep", "sweeps", multiple=True, metavar="FIELD=VALUES",
    help="Try each value of a field of spec: target=50..90:5 (from 50 to 90 in steps of 5), "
    "minReplicas=2,4. Given several times: every combination.",
)  # fmt: skip
@click.option(
    "--at-most-unserved", default="", metavar="SHARE",
    help="Print the cheapest spec of a sweep that leaves at most this share unserved: 0.1%.",
)  # fmt: skip
@click.option(
    "--forecast", "is_forecast", is_flag=True,
    help="Also replay the first spec with a forecast, and show the table of its gate.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1), help="Processes. Default: one per core.")
@click.option(
    "--dask", default="", metavar="ADDRESS",
    help="Run on the workers of a Dask scheduler: tcp://HOST:8786 (podscale[dask]).",
)  # fmt: skip
@click.option(
    "--percentile", "percentiles", default="0.9", show_default=True, metavar="FRACTIONS",
    help="The percentiles of the VPA's estimators, separated by commas.",
)  # fmt: skip
@click.option(
    "--margin", "margins", default="0.15", show_default=True, metavar="FRACTIONS",
    help="The safety margins to add, separated by commas.",
)  # fmt: skip
@click.option(
    "--half-life", "half_lives", default="24h", show_default=True, metavar="DURATIONS",
    help="The half-lives of the VPA's histograms, separated by commas.",
)  # fmt: skip
@click.option("--html", default="", metavar="FILE", help="Also write a report with charts.")
@cluster_options
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="The output format.",
)  # fmt: skip
@click.pass_context
def command(
    ctx: click.Context, /, cluster: ClusterChoice, form: "ReplayForm", **options: object
) -> None:
    """Show what this spec and others would have done with a recorded load.

    \b
    podscale replay hpa/web -n shop --since 14d --prometheus-url URL --hpa other.yaml
    podscale replay hpa/web -n shop --prometheus-url URL --sweep target=50..90:5
    podscale replay hpa -A --prometheus-url URL
    podscale replay vpa/web -n shop --prometheus-url URL --percentile 0.9,0.95 --margin 0.15,0.3
    podscale replay --trace load.csv --hpa today.yaml --hpa other.yaml
    podscale replay --trace load.csv --hpa today.yaml --price prices.yaml -o csv

    \b
    pod-hours     pods that existed, ready or not
    unserved      the share of the load that no pod served
    over target   how long ready pods were above their target
    longest lag   the longest time in which too few pods were ready
    oracle        the minimum, with perfect foresight
    """
    # Imported here: --help must not load numpy.
    import msgspec

    from podscale.cli.replay.inputs import ReplayOptions
    from podscale.cli.replay.run import all_replayed, replayed
    from podscale.cli.replay.shown import print_all, print_report

    given = msgspec.convert(options, ReplayOptions)
    is_of_vpa = (given.what or "").partition("/")[0].lower() in _VPAS
    _refuse_others(ctx, is_of_vpa=is_of_vpa, is_of_trace=bool(given.trace))
    if is_of_vpa:
        # Imported here: HPAs do without the VPA's model.
        from podscale.cli.replay.vertical import print_sizing, vertically_replayed

        print_sizing(vertically_replayed(cluster, given), form)
        return
    is_of_all = (given.what or "").lower() in ("hpa", "hpas", "horizontalpodautoscaler")
    if is_of_all or (cluster.all_namespaces and not given.what and not given.trace):
        found = all_replayed(cluster, given)
        print_all(found, form)
        is_whole = found.is_whole
    else:
        report = replayed(cluster, given)
        print_report(report, form)
        is_whole = report.is_whole
    if not is_whole:
        ctx.exit(EXIT_INTERRUPTED)


def _refuse_others(ctx: click.Context, *, is_of_vpa: bool, is_of_trace: bool) -> None:
    # What means nothing to this replay would be ignored without a word.
    others = (
        (_OF_HPAS, is_of_vpa, "of HPAs, not of a VPA: drop it"),
        (_OF_VPAS, not is_of_vpa, "of VPAs, not of an HPA: drop it, or say vpa/NAME"),
        (_OF_HISTORY, is_of_trace, "of Prometheus's history, not of a --trace: drop one of them"),
        (_OF_TRACES, not is_of_trace, "of a --trace, not of Prometheus's history: drop it"),
    )
    for names, is_other, why in others:
        given = [
            each.opts[0]
            for each in ctx.command.params
            if is_other
            and each.name in names
            and ctx.get_parameter_source(each.name) is not ParameterSource.DEFAULT
        ]
        if given:
            raise WrongInput(f"{', '.join(given)}: {why}")
