"""``podscale hpa eval``: one decision, offline, from a hand-written HPA and an observation."""

from pathlib import Path

import click

from podscale.cli.output import Form, emit, output_option, said


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
        hpa, observation = Path(hpa_file).read_text(), Path(observation_file).read_text()
        body = decide_files(
            hpa, observation, release=emulated_version, now=time.time() if now is None else now
        )
    except UnicodeDecodeError:
        raise click.UsageError("one of the files is no text") from None
    except OSError as error:
        raise click.UsageError(f"{error.filename}: cannot be read: {error.strerror}") from None
    except OfflineError as error:
        raise click.UsageError(_named(error, hpa, hpa_file, observation_file)) from None
    if form in ("json", "yaml"):
        emit(body, form)
    else:
        print_explanation(body)


def _named(error: Exception, hpa: str, hpa_file: str, observation_file: str) -> str:
    """Return what is wrong and in which file."""
    if "\nkind:" not in f"\n{hpa}" and '"kind"' not in hpa:
        return f"{hpa_file}: no HPA is in it (it has no kind); are the two files swapped?"
    text = said(error).replace(' in "<unicode string>"', "")
    for what, file in (("the HPA", hpa_file), ("the observation", observation_file)):
        if text.startswith(f"{what}: "):
            return f"{file}: {text}"
    return f"{observation_file} or {hpa_file}: {text}"
