"""``podscale report``: what a cluster could save, and how likely that is to hurt."""

from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import ClusterChoice, cluster_options
from podscale.cli.prometheus import prometheus_options

if TYPE_CHECKING:
    from podscale.cli.report.run import ReportForm

FORMS = ("table", "wide", "json", "yaml", "csv")
ESTIMATORS = ("vpa", "autopilot", "percentile")


@click.command("report")
@click.option("--since", default="8d", show_default=True, metavar="DURATION", help="How far back.")
@click.option("--step", default="5m", show_default=True, metavar="DURATION", help="The resolution.")
@prometheus_options
@click.option(
    "--names", default="", metavar="FILE",
    help="YAML: names of metrics and labels that differ from kube-prometheus.",
)  # fmt: skip
@click.option(
    "--estimator", type=click.Choice(ESTIMATORS), default="vpa", show_default=True,
    help="The estimator: one of the VPA's, or a percentile of all samples.",
)  # fmt: skip
@click.option(
    "--percentile", type=click.FloatRange(0.0, 1.0), default=0.9, show_default=True,
    help="The percentile of the estimators vpa and percentile.",
)  # fmt: skip
@click.option(
    "--pod-recommendation-min-cpu-millicores", "min_cpu_milli", type=click.FloatRange(0.0),
    default=25.0, show_default=True, help="The minimum CPU of a pod, as in the VPA recommender.",
)  # fmt: skip
@click.option(
    "--pod-recommendation-min-memory-mb", "min_memory_mb", type=click.FloatRange(0.0),
    default=250.0, show_default=True, help="The minimum memory of a pod.",
)  # fmt: skip
@click.option("--price", default="", metavar="FILE", help="YAML: currency, coreHour, gibHour …")
@click.option(
    "--patches", default="", metavar="DIR",
    help="Write a patch for each workload that can save at low risk.",
)  # fmt: skip
@click.option(
    "--patches-form", type=click.Choice(("kustomize", "helm")), default="kustomize",
    show_default=True, help="Write patches of objects, or values for a chart.",
)  # fmt: skip
@click.option(
    "--max-risk", default="1%", show_default=True, metavar="SHARE", help="The highest in a patch."
)
@click.option("--html", default="", metavar="FILE", help="Also write a web page of the report.")
@cluster_options
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="The output format.",
)  # fmt: skip
def command(*, cluster: ClusterChoice, form: "ReportForm", **options: object) -> None:
    """Show what each workload uses, what it should request, and the risk of that.

    \b
    podscale report -A --prometheus-url URL
    podscale report -n shop --prometheus-url URL --since 14d --price prices.yaml
    podscale report -A --prometheus-url URL --patches out --max-risk 0.5% --html report.html

    \b
    class      steady, daily, bursty, growing, idle or batch
    risk       the chance that a pod needs more than is recommended within a week: memory
               that it is killed, CPU that it is throttled in 5 % of six hours
    saving     request minus recommendation, of all pods
    """
    # Imported here: --help must not load numpy.
    import msgspec

    from podscale.cli.report.run import ReportOptions, print_report, reported

    print_report(reported(cluster, msgspec.convert(options, ReportOptions)), form)
