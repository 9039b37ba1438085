"""``podscale doctor``: why is my metric not there, and what in the rules will surprise?"""

import asyncio
from typing import Any

import click

from podscale.cli.cluster import EXIT_FAILED, ClusterChoice, cluster_options, kind_and_name
from podscale.cli.inputs import CommandFailed
from podscale.cli.output import Form, output_option, said
from podscale.cli.prometheus import prometheus_options


@click.command("doctor")
@click.argument("what", metavar="[hpa/NAME]", required=False, shell_complete=kind_and_name("hpa"))
@click.option(
    "-f",
    "--config",
    default="",
    metavar="FILE",
    help="Rules file, ConfigMap manifest or Helm values; - is stdin.",
)
@click.option(
    "--config-map",
    default="",
    metavar="NAMESPACE/NAME",
    help="Rules in a ConfigMap of the cluster. Neither: the running adapter is asked.",
)
@prometheus_options
@click.option("--timeout", default=10.0, show_default=True, help="Seconds for one query.")
@click.option("--metric", default="", help="The metric that is missing; else the whole file.")
@click.option("--api", type=click.Choice(["custom", "external"]), default="custom")
@click.option("--resource", default="pods", show_default=True, help="As kubectl names it.")
@click.option("--name", default="*", show_default=True, help="*: all that --selector selects.")
@click.option("--selector", "-l", default="", help="Selects objects, where --name is *.")
@click.option("--metric-selector", default="", help="The HPA's selector on the metric.")
@click.option("--service", default="", metavar="NAMESPACE/NAME", help="The adapter's Service.")
@click.option(
    "--reader",
    default="",
    metavar="USER",
    help="Who must be allowed to read it; not given: the HPA controller.",
)
@click.option(
    "--relist-interval",
    default="",
    metavar="DURATION",
    help="The adapter's --metrics-relist-interval (or --metrics-max-age); 1m for a file.",
)
@click.option(
    "--scrape-interval",
    default="",
    metavar="DURATION",
    help="Of the targets, for RateWindow; not given: the longest of Prometheus's configuration.",
)
@click.option("--series", default="", metavar="FILE", help="Answer from a recording instead.")
@click.option("--record", default="", metavar="FILE", help="Keep what was seen, for a bug report.")
@click.option("--mask", is_flag=True, help="Record no values, label values or object names.")
@click.option("--disable-lint", multiple=True, metavar="LINT", help="Repeatable; see the docs.")
@click.option("--no-cluster", is_flag=True, help="Ask no API server.")
@cluster_options
@output_option
@click.pass_context
def command(ctx: click.Context, /, cluster: ClusterChoice, form: Form, **options: Any) -> None:
    """Find out why a metric is not there, or check a whole rules file.

    \b
    podscale doctor hpa/web -n shop                 the running adapter's rules and answers
    podscale doctor hpa/web -n shop --prometheus-url URL      and each stage of their way
    podscale doctor -f rules.yaml --prometheus-url URL --metric NAME -n shop
    podscale doctor -f rules.yaml                   lints of a file

    Exit codes: 0 no problems found, 1 problems found, or a check could not run, 2 usage or
    configuration error.
    """
    from podscale.cli.doctor.plan import DoctorOptions, examined
    from podscale.cli.doctor.report import print_report
    from podscale.kube.client.errors import KubeError

    try:
        report = asyncio.run(examined(cluster, DoctorOptions(**options)))
    except (KubeError, OSError) as failed:
        raise CommandFailed(said(failed)) from None
    print_report(report, form)
    if not report.is_healthy:
        ctx.exit(EXIT_FAILED)
