"""``podscale replay``: what another setting would have done with the load that there was."""

from typing import Literal

import click

ReplayForm = Literal["table", "json", "yaml", "csv"]
FORMS: tuple[ReplayForm, ...] = ("table", "json", "yaml", "csv")
EXIT_INTERRUPTED = 130


@click.command("replay")
@click.option("--trace", default="", metavar="FILE", help="CSV: a time, and a value per metric.")
@click.option(
    "--hpa", "hpa_files", multiple=True, metavar="FILE",
    help="A spec to try; the first is today's. Repeatable.",
)  # fmt: skip
@click.option("--scale", default=1.0, help="What values of the trace are multiplied by.")
@click.option(
    "--ready-after", default="1m", show_default=True, metavar="DURATION",
    help="From a pod's creation to Ready.",
)  # fmt: skip
@click.option(
    "--metric-age", default="15s", show_default=True, metavar="DURATION",
    help="How old metrics are when they are decided on.",
)  # fmt: skip
@click.option(
    "--nodes-after", default="0s", metavar="DURATION",
    help="Until a new node is there, for pods beyond --room.",
)  # fmt: skip
@click.option("--room", type=click.IntRange(1), help="Pods that today's nodes hold.")
@click.option(
    "--request", "requests", multiple=True, metavar="[CONTAINER/]RESOURCE=QUANTITY",
    help="What a pod requests. Repeatable.",
)  # fmt: skip
@click.option("--pod-capacity", default="", metavar="QUANTITY", help="What a pod serves.")
@click.option("--replicas", type=click.IntRange(0), help="Pods at the beginning.")
@click.option("--price", default="", metavar="FILE", help="YAML: currency, coreHour, gibHour …")
@click.option(
    "-o", "--output", "form", type=click.Choice(FORMS), default="table", show_default=True,
    help="The form of what is printed.",
)  # fmt: skip
@click.pass_context
def command(ctx: click.Context, /, form: ReplayForm, **options: object) -> None:
    """Decide again on the load that there was, with this spec and with others.

    \b
    podscale replay --trace load.csv --hpa today.yaml --hpa other.yaml
    podscale replay --trace load.csv --hpa today.yaml --price prices.yaml -o csv

    \b
    pod-hours     pods that there were, ready or not
    unserved      the share of the load that nobody served
    over target   how long ready pods had more than their target
    longest lag   the longest time in which too few were ready
    oracle        what it takes at least, known beforehand
    """
    # Imported here: --help must not load numpy.
    import msgspec

    from podscale.cli.replay.run import ReplayOptions, replayed
    from podscale.cli.replay.shown import print_report

    report = replayed(msgspec.convert(options, ReplayOptions))
    print_report(report, form)
    if not report.is_whole:
        ctx.exit(EXIT_INTERRUPTED)
