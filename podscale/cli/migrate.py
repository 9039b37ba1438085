"""``podscale migrate``: what moving here would change. Reads and prints; changes nothing."""

import sys
from pathlib import Path

import click

from podscale.cli.cluster import EXIT_FAILED, EXIT_USAGE
from podscale.cli.output import note


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
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
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], image: str, form: str) -> None:
    """Show what moving to podscale would change, and the way back.

    FILE holds manifests as kubectl prints them, Helm values or a rules file; - is stdin. Read are
    ScaledObjects and TriggerAuthentications of KEDA; Deployments, ConfigMaps and Helm values of
    prometheus-adapter; Deployments of the VPA; kube-controller-manager's manifest.

    \b
    kubectl get scaledobjects,triggerauthentications -A -o yaml | podscale migrate -
    podscale migrate values.yaml
    """
    import msgspec

    from podscale.migrate.documents import Unreadable
    from podscale.migrate.outcome import together
    from podscale.migrate.reader import migrate, render

    try:
        texts = [(sys.stdin.read() if f == "-" else Path(f).read_text(), f) for f in files]
        outcome = together(migrate(text, file, image) for text, file in texts)
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        click.echo(f"podscale migrate: {error}", err=True)
        ctx.exit(EXIT_USAGE)
        return
    if form == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2))
    else:
        click.echo(render(outcome), nl=False)
    note(f"read: {len(outcome.read)}, cannot be carried over: {len(outcome.lost)}, "
         f"will behave differently: {len(outcome.differs)}")  # fmt: skip
    if not outcome.read:
        ctx.exit(EXIT_FAILED)
