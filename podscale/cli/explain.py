"""``podscale explain hpa/web``: asks the part that decided why it did."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from podscale.cli.cluster import (
    EXIT_FAILED,
    EXIT_USAGE,
    ClusterChoice,
    cluster_options,
    kind_and_name,
)
from podscale.cli.explained import print_explanation
from podscale.cli.output import Form, emit, output_option, said

if TYPE_CHECKING:
    from podscale.kube.api import Api

# What may stand before the slash, and where its decisions are served.
_HPA = ("hpa.podscale.io", "v1alpha1", "scalingdecisions")
_VPA = ("vpa.podscale.io", "v1alpha1", "sizingdecisions")
KINDS: Mapping[str, tuple[str, str, str]] = {
    "hpa": _HPA,
    "horizontalpodautoscaler": _HPA,
    "podautoscaler": _HPA,
    "vpa": _VPA,
    "verticalpodautoscaler": _VPA,
}
_PATIENCE_S = 25.0  # a new leader has everything again within 20 s
_AGAIN_S = 1.0


@click.command("explain")
@click.argument("what", metavar="KIND/NAME", shell_complete=kind_and_name("hpa", "vpa"))
@cluster_options
@output_option
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on: print every change.")
@click.option("--at", default="", metavar="TIME", help="An earlier decision: 10m, or RFC 3339.")
@click.pass_context
def command(
    ctx: click.Context,
    what: str,
    cluster: ClusterChoice,
    form: Form,
    is_watching: bool,
    at: str,
) -> None:
    """Say why an HPA or a VPA did what it did.

    \b
    podscale explain hpa/web -n shop
    podscale explain hpa/web -n shop --at 10m
    """
    kind, slash, name = what.partition("/")
    served = KINDS.get(kind.lower().removesuffix("s"))
    if served is None or not slash or not name:
        click.echo(
            f"podscale explain: say KIND/NAME with KIND one of {', '.join(KINDS)}; got {what!r}",
            err=True,
        )
        ctx.exit(EXIT_USAGE)
        return
    if cluster.all_namespaces:
        click.echo("podscale explain: one object is explained: say its namespace with -n", err=True)
        ctx.exit(EXIT_USAGE)
    if is_watching and at:
        click.echo("podscale explain: --watch and --at exclude each other", err=True)
        ctx.exit(EXIT_USAGE)
    try:
        asyncio.run(_explain(cluster, served, name, form, at, is_watching=is_watching))
    except _Failed as failed:
        click.echo(f"podscale explain: {failed}", err=True)
        ctx.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        ctx.exit(0)


class _Failed(Exception):
    """What is shown instead of an explanation."""


async def _explain(
    cluster: ClusterChoice,
    served: tuple[str, str, str],
    name: str,
    form: Form,
    at: str,
    *,
    is_watching: bool,
) -> None:
    group, version, plural = served
    path = f"/apis/{group}/{version}/namespaces/{quote(cluster.namespace)}/{plural}/{quote(name)}"
    query = {"at": at} if at else None
    async with cluster.connect("explain") as api:
        told: object = None
        while True:
            body = await _ask(api, path, query, group)
            now = _gist(body)
            if now != told:
                told = now
                _show(body, form)
            if not is_watching:
                return
            await asyncio.sleep(_AGAIN_S)


async def _ask(
    api: "Api", path: str, query: Mapping[str, str] | None, group: str
) -> Mapping[str, Any]:
    import msgspec

    from podscale.kube.errors import KubeError, ObjectNotFound, ServerFailed, Unreachable

    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while True:
        try:
            answer = await api.request("GET", path, query=query, timeout_s=10.0)
            found: Mapping[str, Any] = msgspec.json.decode(answer.body)
            return found
        except ServerFailed as error:
            # NotLeader, or a leader that has just begun: the next answer is another one.
            if error.status != 503 or loop.time() > until:
                raise _Failed(str(error)) from error
            await asyncio.sleep(_AGAIN_S)
        except ObjectNotFound as error:
            text = f"{error} (in another namespace? -n NAMESPACE)"
            if "could not find the requested resource" in text:
                text += f": is the APIService of {group} installed?"
            raise _Failed(text) from error
        except Unreachable as error:
            raise _Failed(
                f"{said(error)}. Is it the right cluster? --kubeconfig, --context or --server "
                "choose another"
            ) from error
        except KubeError as error:
            raise _Failed(said(error)) from error


def _gist(body: Mapping[str, Any]) -> object:
    status = body.get("status", {})
    return [status.get(key) for key in ("first_reason", "also", "replicas", "decided", "proposals")]


def _show(body: Mapping[str, Any], form: Form) -> None:
    if form in ("json", "yaml"):
        emit(body, form)
    else:
        print_explanation(body)
