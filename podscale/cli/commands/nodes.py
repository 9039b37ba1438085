"""``podscale nodes``: the part with its flags; ``off`` and ``watchdog`` beside it."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import EXIT_FAILED, OTHER_CLUSTER, ClusterChoice, cluster_options
from podscale.cli.commands.processes import nodes
from podscale.cli.flag_program import with_subcommands
from podscale.cli.inputs import CommandFailed
from podscale.cli.output import note, said

if TYPE_CHECKING:
    from podscale.nodes.watchdog import WatchdogChoice

_NAMESPACE = click.option(
    "--ballast-namespace", default="podscale-ballast", show_default=True, metavar="NAME"
)


@click.command("off")
@_NAMESPACE
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), default=120, show_default=True,
    help="Seconds to wait.",
)  # fmt: skip
@cluster_options
@click.pass_context
def off(ctx: click.Context, cluster: ClusterChoice, ballast_namespace: str, timeout_s: int) -> None:
    """Take all ballast and headroom away: their namespaces, priority classes, and the taints.

    A part that still runs finds no ballast and writes nothing; in mode taint, stop it first.
    """
    from podscale.kube.client.errors import ApiUnreachable, KubeError

    try:
        left = asyncio.run(_off(cluster, ballast_namespace, timeout_s))
    except ApiUnreachable as error:
        raise CommandFailed(f"{said(error)}. {OTHER_CLUSTER}") from None
    except KubeError as error:
        raise CommandFailed(said(error)) from None
    if left:
        note(f"not gone after {timeout_s} s: {', '.join(left)}")
        ctx.exit(EXIT_FAILED)
    click.echo(f"no ballast and no headroom is left; namespace {ballast_namespace} is gone")


@click.command("watchdog")
@_NAMESPACE
@click.option("--lease", default="podscale-nodes", show_default=True, metavar="NAME")
@click.option("--lease-namespace", default="podscale", show_default=True, metavar="NAME")
@click.option(
    "--patience",
    "patience_s",
    default=300.0,
    show_default=True,
    help="Seconds without a round that worked after which ballast is let go.",
)
@click.option(
    "--interval", "interval_s", default=15.0, show_default=True, help="Seconds between two looks."
)
@click.option("--taints", is_flag=True, help="Take the taints of mode taint away as well.")
@cluster_options
def watchdog(
    cluster: ClusterChoice,
    ballast_namespace: str,
    lease: str,
    lease_namespace: str,
    patience_s: float,
    interval_s: float,
    taints: bool,
) -> None:
    """Let all ballast go when no round of a leader has worked for the patience."""
    from podscale.nodes.watchdog import WatchdogChoice

    if not (patience_s > 0 and interval_s > 0):  # nan is neither
        raise click.UsageError("--patience and --interval must be greater than 0")
    choice = WatchdogChoice(
        ballast_namespace, lease, lease_namespace, patience_s, interval_s, taints
    )
    asyncio.run(_watch(cluster, choice))


command = with_subcommands(
    nodes,
    {"off": off, "watchdog": watchdog},
    "Fill nodes by what pods really use; ``nodes off`` takes it back.",
)


async def _off(cluster: ClusterChoice, namespace: str, timeout_s: int) -> list[str]:
    """Delete, and return what is still there at the end."""
    from podscale.kube.client.errors import ObjectNotFound
    from podscale.kube.client.resource import NAMESPACES
    from podscale.kube.client.wire import PartialObjectMetadata, decode
    from podscale.nodes.cluster.pod_sums import HEADROOM_NAMESPACE
    from podscale.nodes.cluster.taints import remove_all

    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    paths = {
        NAMESPACES.path("", namespace): ("ballast", f"namespace {namespace}"),
        f"{classes}/podscale-ballast": ("ballast", "the priority class of ballast"),
        NAMESPACES.path("", HEADROOM_NAMESPACE): ("headroom", f"namespace {HEADROOM_NAMESPACE}"),
        f"{classes}/podscale-headroom": ("headroom", "the priority class of headroom"),
    }
    async with cluster.connect("nodes-off") as api:
        await remove_all(api)
        for _ in range(timeout_s):
            left = []
            for path, (component, what) in paths.items():
                try:
                    found = decode((await api.request("GET", path)).body, PartialObjectMetadata)
                    labels = found.metadata.labels or {}
                    if labels.get("app.kubernetes.io/component") != component:
                        raise CommandFailed(
                            f"{what} is not ours (it lacks the label "
                            f"app.kubernetes.io/component={component}): it is not deleted"
                        )
                    if found.metadata.deletion_timestamp is None:
                        await api.request("DELETE", path)
                    left.append(what)
                except ObjectNotFound:
                    continue
            if not left:
                return []
            await asyncio.sleep(1)
    return left


async def _watch(cluster: ClusterChoice, choice: "WatchdogChoice") -> None:
    from podscale.nodes.watchdog import watch
    from podscale.serving.monitoring import logs
    from podscale.serving.monitoring.logs import Verbosity

    logs.configure("console", Verbosity(0))
    async with cluster.connect("nodes-watchdog") as api:
        watching = asyncio.ensure_future(watch(api, choice))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, watching.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await watching
