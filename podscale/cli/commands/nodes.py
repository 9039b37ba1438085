"""``podscale nodes``: the part with its flags; ``off`` and ``watchdog`` beside it."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from podscale.cli.cluster import EXIT_FAILED, OTHER_CLUSTER, ClusterChoice, connection_options
from podscale.cli.commands import processes
from podscale.cli.inputs import CommandFailed, seconds
from podscale.cli.output import note, said

if TYPE_CHECKING:
    from podscale.kube.client.api import Api
    from podscale.kube.client.wire import ObjectMeta
    from podscale.nodes.watchdog import WatchdogChoice

_NAMESPACE = click.option(
    "--ballast-namespace", default="podscale-ballast", show_default=True, metavar="NAME",
    help="Where the ballast pods are.",
)  # fmt: skip


@click.command("off")
@_NAMESPACE
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1), default=120, show_default=True,
    help="Seconds to wait.",
)  # fmt: skip
@connection_options
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
        note(f"still there: {', '.join(left)}")
        ctx.exit(EXIT_FAILED)
    click.echo("no ballast and no headroom is left")


@click.command("watchdog")
@_NAMESPACE
@click.option("--lease", default="podscale-nodes", show_default=True, metavar="NAME")
@click.option("--lease-namespace", default="podscale", show_default=True, metavar="NAME")
@click.option("--patience", default="5m", show_default=True, metavar="DURATION",
              help="Ballast is removed when no round has succeeded for this long.")  # fmt: skip
@click.option("--interval", default="15s", show_default=True, metavar="DURATION",
              help="The time between two checks.")  # fmt: skip
@click.option("--taints", is_flag=True, help="Take the taints of mode taint away as well.")
@connection_options
def watchdog(
    cluster: ClusterChoice,
    ballast_namespace: str,
    lease: str,
    lease_namespace: str,
    patience: str,
    interval: str,
    taints: bool,
) -> None:
    """Remove all ballast when no round of a leader has succeeded for the patience."""
    from podscale.nodes.watchdog import WatchdogChoice

    patience_s, interval_s = seconds("--patience", patience), seconds("--interval", interval)
    if not (patience_s > 0 and interval_s > 0):
        raise click.UsageError("--patience and --interval must be greater than 0")
    choice = WatchdogChoice(
        ballast_namespace, lease, lease_namespace, patience_s, interval_s, taints
    )
    asyncio.run(_watch(cluster, choice))


command = processes.command(
    "nodes", "nodes", summary="Fill nodes by what pods really use.", has_page=True,
    subcommands={"off": off, "watchdog": watchdog},
)  # fmt: skip


async def _off(cluster: ClusterChoice, namespace: str, timeout_s: int) -> list[str]:
    """Delete, and return what is still there at the end."""
    from podscale.kube.client.errors import ObjectNotFound
    from podscale.kube.client.resource import NAMESPACES
    from podscale.nodes.cluster.patches import remove_taints
    from podscale.nodes.cluster.pod_sums import HEADROOM_NAMESPACE

    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    home = f"namespace/{namespace}"
    objects = {  # by their names for kubectl: path and component
        home: (NAMESPACES.path("", namespace), "ballast"),
        "priorityclass/podscale-ballast": (f"{classes}/podscale-ballast", "ballast"),
        f"namespace/{HEADROOM_NAMESPACE}": (NAMESPACES.path("", HEADROOM_NAMESPACE), "headroom"),
        "priorityclass/podscale-headroom": (f"{classes}/podscale-headroom", "headroom"),
    }
    for plural in ("validatingadmissionpolicybindings", "validatingadmissionpolicies"):
        path = f"/apis/admissionregistration.k8s.io/v1/{plural}/podscale-headroom"
        objects[f"{plural}/podscale-headroom"] = path, "headroom"
    async with cluster.connect("nodes-off") as api:
        found = await _ours(api, objects, "nothing was changed")
        pods = await _ballast_pods(api)
        if pods and home not in found:
            raise CommandFailed(
                f"there is no {home}, but there are {', '.join(pods.values())}: nothing was "
                f"changed. --ballast-namespace={next(iter(pods))} takes these away"
            )
        taints = await remove_taints(api)
        there = ", ".join(found) or f"no {home} and no headroom"
        note(f"found {there}; taints removed: {taints['done']}")
        kept = [f"taints of nodes ({taints['failed']})"] if taints["failed"] else []
        for _ in range(timeout_s):
            for what, metadata in found.items():
                if metadata.deletion_timestamp is None:
                    with contextlib.suppress(ObjectNotFound):
                        await api.request("DELETE", objects[what][0])
            if not found:
                break
            await asyncio.sleep(1)
            found = await _ours(api, objects, "what was ours under these names is gone")
        pods = await _ballast_pods(api)
    return [*kept, *found, *pods.values()]


async def _ours(
    api: "Api", objects: "Mapping[str, tuple[str, str]]", done: str
) -> "dict[str, ObjectMeta]":
    # Those that there are; it fails, and says what was ``done``, if one of them is not ours.
    from podscale.kube.client.errors import ObjectNotFound
    from podscale.kube.client.wire import PartialObjectMetadata, decode

    found = {}
    for what, (path, component) in objects.items():
        try:
            answer = await api.request("GET", path)
        except ObjectNotFound:
            continue
        found[what] = decode(answer.body, PartialObjectMetadata).metadata
        label = f"app.kubernetes.io/component={component}"
        if (found[what].labels or {}).get("app.kubernetes.io/component") != component:
            raise CommandFailed(
                f"{what} is not ours, since it lacks the label {label}; {done}. If it is "
                f"podscale's: `kubectl label {what} {label}`, then call this again"
            )
    return found


async def _ballast_pods(api: "Api") -> dict[str, str]:
    # By namespace: how many there are, in words.
    from podscale.kube.client.resource import PODS
    from podscale.kube.client.wire import ListOf, PartialObjectMetadata, decode
    from podscale.nodes.cluster.pod_sums import BALLAST_LABELS

    answer = await api.request("GET", PODS.path(), query={"labelSelector": str(BALLAST_LABELS)})
    pods = decode(answer.body, ListOf[PartialObjectMetadata]).items or ()
    counts = Counter(pod.metadata.namespace for pod in pods)
    return {name: f"pods labelled {BALLAST_LABELS} in namespace {name} ({count})"
            for name, count in counts.items()}  # fmt: skip


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
