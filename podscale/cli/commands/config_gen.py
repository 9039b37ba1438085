"""``podscale config-gen``: prometheus-adapter's default rules, ready for --config."""

import click


@click.command("config-gen")
@click.option("--rate-interval", default="5m", show_default=True, metavar="DURATION",
              help="The range of every rate, in Prometheus's notation.")  # fmt: skip
@click.option("--label-prefix", default="", metavar="PREFIX",
              help="Prefix of the labels that name Kubernetes objects.")  # fmt: skip
def command(rate_interval: str, label_prefix: str) -> None:
    """Print the adapter's default rules."""
    from adapter.rules import config_gen
    from podscale.core.times.duration import DurationError

    try:
        click.echo(config_gen.default_yaml(rate_interval, label_prefix), nl=False)
    except DurationError as error:
        raise click.BadParameter(error.advice, param_hint="--rate-interval") from None
