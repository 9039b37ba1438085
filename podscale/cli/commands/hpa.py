"""``podscale hpa``: the controller with kube-controller-manager's flags; ``hpa eval`` decides once,
offline, from a hand-written HPA and an observation.
"""

from typing import TYPE_CHECKING

import click

from podscale.cli.commands import processes
from podscale.cli.inputs import WrongInput, called, read
from podscale.cli.output import Form, emit, note, output_option, said
from podscale.core.times.duration import read_time

if TYPE_CHECKING:
    from podscale.cli.evaluation.observation import EvaluationError

_LAST_S = 2.0**33  # in the year 2242: beyond it somebody gave milliseconds


@click.command("eval", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-f", "--filename", "hpa_file", required=True, help="The HPA, as YAML or JSON; - is stdin."
)
@click.option(
    "--observation", "observation_file", required=True,
    help="What was observed, as YAML: scale, pods, metrics.",
)  # fmt: skip
@click.option("--emulated-version", type=click.Choice(["1.36", "1.37", "1.38"]), default="1.37")
@click.option(
    "--at", default="", metavar="TIME",
    help="The time of the decision: 10m (ago), RFC 3339 or unix seconds. Default: now.",
)  # fmt: skip
@output_option
def evaluate(
    hpa_file: str, observation_file: str, emulated_version: str, at: str, form: Form
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

    from podscale.cli.commands.explain import print_explanation
    from podscale.cli.evaluation.manifest import cautions
    from podscale.cli.evaluation.observation import (
        EvaluationError,
        decide_files,
        plain_hpa,
        written_hpa,
    )

    if hpa_file == observation_file == "-":
        raise click.UsageError("only one of the two files can be stdin")
    now = _time(at, time.time())
    hpa, observation = read(hpa_file), read(observation_file)
    try:
        body = decide_files(hpa, observation, release=emulated_version, now=now)
    except EvaluationError as error:
        raise WrongInput(_named(error, hpa_file, observation_file)) from None
    for text in cautions(written_hpa(plain_hpa(hpa))):
        note(f"{called(hpa_file)}: {text}")
    if form in ("json", "yaml"):
        emit(body, form)
    else:
        print_explanation(body)


command = processes.command(
    "hpa", "hpa", summary="Scale by HorizontalPodAutoscalers.", subcommands={"eval": evaluate}
)


def _time(text: str, now: float) -> float:
    try:
        found: float | None = float(text) if text else now
    except ValueError:
        found = read_time(text, now)
    if found is None or not 0 <= found < _LAST_S:
        raise click.UsageError(
            f"--at must be an age (10m), an RFC 3339 time or unix seconds, not {text}"
        )
    return found


def _named(error: "EvaluationError", hpa_file: str, observation_file: str) -> str:
    """Return what is wrong and where: as ``file:line:column`` where that is known."""
    text = said(error)
    place = f":{error.line}:{error.column}" if error.line else ""
    for what, file in (("the HPA", hpa_file), ("the observation", observation_file)):
        if text.startswith(f"{what}: "):
            return f"{called(file)}{place}: {text}"
    return f"{called(observation_file)} or {called(hpa_file)}: {text}"
