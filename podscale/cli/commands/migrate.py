"""``podscale migrate``: what moving here would change. Reads and prints; changes nothing."""

import asyncio
import os
import time
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import EXIT_FAILED
from podscale.cli.inputs import EXIT_USAGE, WrongInput, called, read
from podscale.cli.output import note, plainly, progress, said

if TYPE_CHECKING:
    from podscale.migrate.outcome import MigrationOutcome

_DAY_S = 86_400.0


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, metavar="[keda|rules] FILE...")
@click.option(
    "--image",
    default="podscale:latest",
    show_default=True,
    help="Our image as your cluster pulls it.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    help="yaml: manifests with remarks as comments; json: everything as data.",
)
@click.option(
    "--only",
    type=click.Choice(["manifests", "rules"]),
    help="Just the manifests, for kubectl apply, or just the rules, for the rules file.",
)
@click.option(
    "--prometheus-url",
    default="",
    metavar="URL",
    help="Show what KEDA and podscale would have asked for at moments of the last day.",
)
@click.option(
    "--side-by-side",
    "is_beside",
    is_flag=True,
    help="KEDA goes on behind the adapter; FILE is its APIService.",
)
@click.option(
    "--emulated-version",
    "release",
    type=click.Choice(["1.36", "1.37", "1.38"]),
    default="1.37",
    show_default=True,
    help="The cluster's release: from 1.37 on, HPAs may scale to zero.",
)
@click.option("--moments", default=24, show_default=True, type=click.IntRange(1, 288))
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    image: str,
    form: str,
    only: str | None,
    prometheus_url: str,
    is_beside: bool,
    release: str,
    moments: int,
) -> None:
    """Show what moving to podscale would change, and the way back.

    FILE holds manifests as kubectl prints them, Helm values or a rules file; - is stdin. Read are
    ScaledObjects and TriggerAuthentications of KEDA; Deployments, ConfigMaps and Helm values of
    prometheus-adapter; Deployments of the VPA; kube-controller-manager's manifest.

    \b
    kubectl get scaledobjects,triggerauthentications -A -o yaml | podscale migrate -
    podscale migrate values.yaml
    kubectl get apiservice v1beta1.external.metrics.k8s.io -o yaml |
      podscale migrate keda --side-by-side -
    podscale migrate rules configmap.yaml    its rules as ClusterMetricRules

    Exit codes: 0 done, 1 a flag was left out, nothing in the input is known here or Prometheus
    did not answer, 2 the call or the input must be changed first.
    """
    import msgspec

    from adapter import flags
    from podscale.feed.http.session import proxy_for
    from podscale.migrate import reader
    from podscale.migrate.documents import Unreadable
    from podscale.migrate.keda.side_by_side import READ_IT

    if is_beside and (files[0] != "keda" or len(files) == 1):
        raise click.UsageError(f"--side-by-side is of KEDA's APIService: {READ_IT}", ctx)
    if prometheus_url:
        try:
            proxy_for(flags.prometheus_url(prometheus_url), os.environ)
        except ValueError as error:  # FlagError is one
            raise click.UsageError(str(error), ctx) from None
    try:
        is_rules = files[0] == "rules" and len(files) > 1
        texts = [(read(file), called(file)) for file in files[is_beside or is_rules :]]
        if is_rules:
            outcome = reader.rule_objects(texts)
        elif is_beside:
            outcome = reader.beside_keda(texts)
        else:
            outcome = reader.migrate_all(texts, image, release)
    except Unreadable as error:
        raise WrongInput(said(error)) from None
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
    else:
        parts = {"manifests": reader.manifests_yaml, "rules": reader.rules_yaml}
        click.echo(parts.get(only or "", reader.render)(outcome), nl=False)
    is_compared = not prometheus_url or asyncio.run(
        _compare(outcome, prometheus_url, moments, beside=form == "json" or bool(only))
    )
    note(f"read: {len(outcome.read)}, cannot be carried over: {len(outcome.lost)}, "
         f"will behave differently: {len(outcome.differs)}")  # fmt: skip
    if outcome.refused:
        note(f"refused, and to be changed first: {len(outcome.refused)}")
        ctx.exit(EXIT_USAGE)
    if not (outcome.read or outcome.lost or outcome.kept):
        given = ", ".join(name for _, name in texts)
        note(
            f"there is no object and there are no rules in {given}: is it the right namespace, or "
            "-A for all?"
        )
    if outcome.left_out:
        note(f"left out, since they would be refused: {len(outcome.left_out)}")
    if outcome.broken:
        note(f"may answer nothing, with prometheus-adapter as well: {len(outcome.broken)}")
    if not outcome.read or not is_compared or outcome.left_out or outcome.broken:
        ctx.exit(EXIT_FAILED)


async def _compare(outcome: "MigrationOutcome", url: str, moments: int, *, beside: bool) -> bool:
    """Print old and new side by side, as YAML comments; ``beside`` the data, on stderr.

    Returns whether Prometheus told what was asked.
    """
    from podscale.feed.errors import QueryError
    from podscale.feed.http.client import PrometheusClient
    from podscale.feed.options import PrometheusOptions
    from podscale.migrate.outcome import comparison

    for about in (each for each in outcome.read if each.startswith("HorizontalPodAutoscaler ")):
        hpa = about.partition(",")[0]
        note(f"not compared: {hpa}: podscale replay hpa/NAME -n NAMESPACE replays its history")
    now = time.time()
    drawn = progress()
    async with PrometheusClient(PrometheusOptions(url=url)) as client:
        for done, compared in enumerate(outcome.compared):
            if not compared.metrics:
                why = ", ".join(compared.left_out) or "it has no metrics with an average target"
                note(f"not compared: {compared.about}: {why}")
                continue
            click.echo(
                f"# {compared.about}: replicas asked for (old is KEDA, new is podscale)", err=beside
            )
            if compared.left_out:
                click.echo(f"#   without {', '.join(compared.left_out)}", err=beside)
            for number in range(1, moments + 1):
                steps = len(outcome.compared) * moments
                drawn(done * moments + number, steps, compared.about)
                time_s = now - _DAY_S + _DAY_S * number / moments
                try:
                    answers = {
                        each.name: (await client.query(each.query, time_s)).values
                        for each in compared.metrics
                    }
                except QueryError as error:
                    note(f"not compared: {compared.about}: {plainly(str(error))}")
                    return False
                old, new = ("held" if n is None else str(n) for n in comparison(compared, answers))
                when = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime(time_s))
                mark = "  differs" if old != new else ""
                click.echo(f"#   {when}  old {old:>5}  new {new:>5}{mark}", err=beside)
    return True
