"""``podscale hpa eval``: one decision, offline, from a hand-written HPA and an observation."""

from pathlib import Path

import click

from podscale.cli.cluster import EXIT_USAGE
from podscale.cli.output import Form, emit, output_option


@click.command("eval")
@click.option("-f", "--filename", "hpa_file", required=True, help="The HPA, as YAML or JSON.")
@click.option(
    "--observation", "observation_file", required=True,
    help="What was seen: scale, pods, metrics, as YAML.",
)  # fmt: skip
@click.option("--emulated-version", type=click.Choice(["1.36", "1.37", "1.38"]), default="1.37")
@click.option("--at", "now", type=float, default=None, help="Unix time of the decision.")
@output_option
def evaluate(
    hpa_file: str, observation_file: str, emulated_version: str, now: float | None, form: Form
) -> None:
    """Decide once and say why; nothing is read from a cluster and nothing is written.

    \b
    The observation, with metrics in the order of spec.metrics:
      scale: {replicas: 3, statusReplicas: 3, selector: app=web}
      pods:
      - {name: web-0, phase: Running, ready: true, started: 1h, requests: {app: {cpu: 100m}}}
      metrics:
      - {pods: {web-0: 250m}, age: 10s}   # Resource, ContainerResource, Pods
      - {value: "7"}                      # Object
      - {values: ["40"]}                  # External
      - {error: NoData, message: ...}     # any
      recommendations: [{replicas: 5, age: 60s}]
    """
    # Imported here: --help must not load them.
    import time

    from hpa.offline import OfflineError, decide_files
    from podscale.cli.explained import print_explanation

    try:
        body = decide_files(
            Path(hpa_file).read_text(),
            Path(observation_file).read_text(),
            release=emulated_version,
            now=time.time() if now is None else now,
        )
    except (OSError, OfflineError) as error:
        click.echo(f"podscale hpa eval: {error}", err=True)
        raise click.exceptions.Exit(EXIT_USAGE) from None
    if form in ("json", "yaml"):
        emit(body, form)
    else:
        print_explanation(body)
