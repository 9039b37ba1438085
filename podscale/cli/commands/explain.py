"""``podscale explain hpa/web``: asks the part that decided why it did."""

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from podscale.cli.cluster import (
    EXIT_FAILED,
    OTHER_CLUSTER,
    ClusterChoice,
    cluster_options,
    kind_and_name,
)
from podscale.cli.commands.explained import print_explanation, print_list
from podscale.cli.inputs import EXIT_USAGE
from podscale.cli.output import Form, emit, note, output_option, printable, said
from podscale.core.json_decoder import decode_json
from podscale.core.times.moment import read_time

if TYPE_CHECKING:
    from podscale.kube.client.api import Api

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
PODS = ("pod", "pods", "po")  # explained here, from what the cluster has
_PATIENCE_S = 25.0  # a new leader has everything again within 20 s
_AGAIN_S = 1.0
_ELSEWHERE = " (in another namespace? -n NAMESPACE)"
_AT_ONCE = "250"  # objects of a list in one answer


@click.command("explain")
@click.argument("what", metavar="KIND[/NAME]", shell_complete=kind_and_name("hpa", "vpa"))
@cluster_options
@output_option
@click.option("-l", "--selector", default="", help="Without a name: those whose labels match.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on: print every change.")
@click.option("--at", default="", metavar="TIME", help="An earlier decision: 10m, or RFC 3339.")
@click.pass_context
def command(
    ctx: click.Context,
    what: str,
    cluster: ClusterChoice,
    form: Form,
    selector: str,
    is_watching: bool,
    at: str,
) -> None:
    """Say why an HPA or a VPA did what it did; without a name, list the decisions.

    Of a pod it says why it has no node.

    \b
    podscale explain hpa/web -n shop
    podscale explain hpa/web -n shop --at 10m
    podscale explain hpa -A -o wide
    podscale explain pod/web-0 -n shop
    """
    kind, slash, name = what.partition("/")
    if "/" in name:
        raise click.UsageError(f"say KIND/NAME, and the namespace with -n; got {what!r}", ctx)
    if kind.lower() in PODS and name:
        if is_watching or at or selector or cluster.all_namespaces:
            raise click.UsageError("of a pod, only why it has no node now is explained", ctx)
        _explain_pod(ctx, cluster, name, form)
        return
    served = KINDS.get(kind.lower().removesuffix("s"))
    if served is None or (slash and not name):
        raise click.UsageError(
            f"say KIND/NAME with KIND one of {', '.join(KINDS)}, pod; got {what!r}", ctx
        )
    if name and (cluster.all_namespaces or selector):
        raise click.UsageError("one object is explained: say its namespace with -n", ctx)
    if at and (is_watching or not name):
        raise click.UsageError("--at is about one object, and --watch excludes it", ctx)
    if at and read_time(at, time.time()) is None:  # the server has the last word
        raise click.UsageError(
            f"--at={at} is neither an age (10m) nor a time (2026-11-21T10:00:00Z)", ctx
        )
    group, version, plural = served
    scope = "" if cluster.all_namespaces else f"/namespaces/{quote(cluster.namespace)}"
    path = f"/apis/{group}/{version}{scope}/{plural}{f'/{quote(name)}' if name else ''}"
    query = {"at": at, "labelSelector": selector}
    asked = {key: text for key, text in query.items() if text}
    try:
        asyncio.run(_explain(cluster, path, asked, group, form, is_watching=is_watching))
    except _Refused as refused:
        note(f"podscale explain: {printable(str(refused))}")
        ctx.exit(EXIT_USAGE)
    except ExplainFailed as failed:
        note(f"podscale explain: {printable(str(failed))}")
        ctx.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        ctx.exit(0)


def _explain_pod(ctx: click.Context, cluster: ClusterChoice, name: str, form: Form) -> None:
    from podscale.cli.commands.explain_pod import explain_pod
    from podscale.kube.client.errors import KubeError, ObjectNotFound

    async def asked() -> None:
        async with cluster.connect("explain") as api:
            await explain_pod(api, cluster.namespace, name, form)

    try:
        asyncio.run(asked())
    except KubeError as error:
        more = _ELSEWHERE if isinstance(error, ObjectNotFound) else ""
        note(f"podscale explain: {printable(said(error))}{more}")
        ctx.exit(EXIT_FAILED)


class ExplainFailed(Exception):
    """What is shown instead of an explanation."""


class ExplainUnanswered(ExplainFailed):
    """The server cannot be reached, or cannot say now: what watches asks on."""


class _Refused(Exception):
    """The call must be changed first."""


async def _explain(
    cluster: ClusterChoice,
    path: str,
    query: Mapping[str, str],
    group: str,
    form: Form,
    *,
    is_watching: bool,
) -> None:
    async with cluster.connect("explain") as api:
        body = await whole_answer(api, path, query, group)
        _show(body, form, cluster.only_namespace)
        told, lost = _gist(body), ""
        while is_watching:
            await asyncio.sleep(_AGAIN_S)
            try:
                body = await whole_answer(api, path, query, group)
            except ExplainUnanswered as error:
                # The cluster may be upgraded meanwhile: it is told once, and asked on.
                if not lost:
                    note(f"podscale explain: {printable(str(error))}; asking on, Ctrl-C ends it")
                lost = str(error)
                continue
            lost = ""
            if _gist(body) != told:
                told = _gist(body)
                if form != "json":  # JSON documents follow each other as they are
                    click.echo("---" if form == "yaml" else "")
                _show(body, form, cluster.only_namespace)


async def whole_answer(
    api: "Api", path: str, query: Mapping[str, str], group: str
) -> Mapping[str, Any]:
    """Return an object, or all pages of a list: thousands take longer than one answer may.

    Raises ``ExplainFailed``, and ``ExplainUnanswered`` where asking again may help.
    """
    found = await _ask(api, path, {**query, "limit": _AT_ONCE}, group)
    if "items" not in found:
        return found
    items, more = list(found["items"]), found["metadata"].get("continue")
    while more:
        page = await _ask(api, path, {**query, "limit": _AT_ONCE, "continue": more}, group)
        items += page["items"]
        more = page["metadata"].get("continue")
    return {**found, "metadata": {}, "items": items}


async def _ask(
    api: "Api", path: str, query: Mapping[str, str] | None, group: str
) -> Mapping[str, Any]:

    from podscale.kube.client.errors import (
        ApiUnreachable,
        BadRequest,
        KubeError,
        ObjectNotFound,
        ServerFailed,
    )

    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while True:
        try:
            answer = await api.request("GET", path, query=query, timeout_s=10.0)
            found: Mapping[str, Any] = decode_json(answer.body)
            return found
        except ServerFailed as error:
            # NotLeader, or a leader that has just begun: the next answer is another one.
            if error.status != 503 or loop.time() > until:
                raise ExplainUnanswered(str(error)) from error
            await asyncio.sleep(_AGAIN_S)
        except ObjectNotFound as error:
            text = str(error)
            if "known from" not in text:  # of --at the object is there, and the time too early
                text += _ELSEWHERE
            if "could not find the requested resource" in text:
                text += f": is the APIService of {group} installed?"
            raise ExplainFailed(text) from error
        except BadRequest as error:
            raise _Refused(str(error)) from error
        except ApiUnreachable as error:
            raise ExplainUnanswered(f"{said(error)}. {OTHER_CLUSTER}") from error
        except KubeError as error:
            raise ExplainFailed(said(error)) from error


def _gist(body: Mapping[str, Any]) -> object:
    # What counts as a change: not the time, nor what is measured anew in every pass.
    if "items" in body:
        return [
            (each["metadata"].get("namespace"), each["metadata"]["name"], _gist(each))
            for each in body["items"]
        ]
    status = body.get("status", {})
    words = [
        status.get(key) for key in ("first_reason", "also", "replicas", "decided", "proposals")
    ]
    told = [each.get("message") for each in status.get("conditions", ())]
    sized = [
        (each.get("container"), each.get("resource"), each.get("first_reason"),
         each.get("decision"), each.get("facts", {}).get("held_by"))
        for each in status.get("recommendation", ())
    ]  # fmt: skip
    pods = [
        (each.get("pod"), each.get("first_reason"), each.get("decision"))
        for each in status.get("pods", ())
    ]
    return [words, told, sized, pods]


def _show(body: Mapping[str, Any], form: Form, namespace: str) -> None:
    if form in ("json", "yaml"):
        emit(body, form)
    elif "items" in body:
        print_list(body["items"], is_wide=form == "wide", namespace=namespace)
    else:
        print_explanation(body, now=time.time())
