"""``podscale explain hpa/web``: asks the part that decided why it did."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from podscale.cli import output
from podscale.cli.cluster import (
    EXIT_FAILED,
    OTHER_CLUSTER,
    ClusterChoice,
    cluster_options,
    kind_and_name,
)
from podscale.cli.inputs import EXIT_USAGE
from podscale.core.json_decoder import decode_json
from podscale.core.times.duration import read_time

if TYPE_CHECKING:
    from podscale.kube.client.api import Api

_OLD_S = 120.0  # of a decision that is made every 15 seconds


def print_explanation(body: Mapping[str, Any], *, now: float | None = None) -> None:
    """Print one ScalingDecision (or SizingDecision: the same fields mean the same).

    ``now``, unix seconds: the age of a decision that is not of now is told.
    """
    click.echo("\n".join(lines(body, colour=output.wants_colour(), now=now)))


def nothing_found(namespace: str) -> str:
    """Say that there are no decisions, and where else to look; ``""`` is every namespace."""
    where = f" in namespace {namespace}" if namespace else ""
    elsewhere = " Try -A for all namespaces, or -n NAMESPACE for another one." if namespace else ""
    return f"No decisions found{where}: nothing is scaled or sized there yet.{elsewhere}"


def print_list(items: Sequence[Mapping[str, Any]], *, is_wide: bool, namespace: str = "") -> None:
    """Print decisions as kubectl prints objects; ``is_wide`` with the sentence of the reason.

    ``namespace`` is the one that was looked in, ``""`` every one.
    """
    if not items:
        output.note(nothing_found(namespace))
        return
    columns = ["namespace", "name", "target", "replicas", "reason", "time"]
    rows: list[dict[str, object]] = []
    for each in items:
        status, spec = each.get("status", {}), each.get("spec", {})
        target = spec.get("scaleTargetRef") or spec.get("targetRef") or {}
        rows.append({
            "namespace": each["metadata"].get("namespace", ""),
            "name": each["metadata"]["name"],
            "target": f"{target.get('kind', '')}/{target.get('name', '')}",
            "replicas": "" if status.get("replicas") is None else status["replicas"],
            "reason": status.get("first_reason", ""),
            "time": status.get("time", ""),
            "why": status.get("why", ""),
        })  # fmt: skip
    if not any(row["replicas"] != "" for row in rows):
        columns.remove("replicas")  # of VPAs, whose decisions are about requests
    output.table([*columns, "why"] if is_wide else columns, rows)


def lines(body: Mapping[str, Any], *, colour: bool = False, now: float | None = None) -> list[str]:
    status, spec, metadata = body["status"], body.get("spec", {}), body["metadata"]
    title = _title(metadata, spec, status) + _age(status.get("time"), now)
    found = [_strong(output.printable(title), colour)]
    found += [
        output.printable(f"  ! {each['type']}: {each.get('message', '')}")
        for each in status.get("conditions", ())
        if each.get("status") == "True"
    ]
    found += [output.printable(f"  {sentence}") for sentence in status.get("sentences", ())]
    if status.get("change"):
        change = output.printable(status["change"])
        found.append(f"  {_strong('What would change it:', colour)} {change}")
    reasons = [status.get("first_reason", ""), *status.get("also", ())]
    found.append(output.printable(f"  ({', '.join(reason for reason in reasons if reason)})"))
    return found


def _title(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    target = spec.get("scaleTargetRef") or spec.get("targetRef") or {}
    what = f"{metadata.get('namespace', '')}/{metadata['name']}"
    if target:
        what += f" → {target.get('kind')}/{target.get('name')}"
    size = status.get("replicas")
    if size is not None:
        what += f": {size} replica{'' if size == 1 else 's'}"
    if status.get("decided") is not None:
        what += f" (decided: {status['decided']})"
    time = status.get("time")
    return f"{what}, {time}" if time else what


def _age(time: str | None, now: float | None) -> str:
    try:
        at = datetime.fromisoformat(time or "").timestamp()
    except ValueError:
        return ""
    seconds = 0.0 if now is None else now - at
    if seconds < _OLD_S:
        return ""
    return f" ({seconds / 60:.0f} min ago)" if seconds < 7200 else f" ({seconds / 3600:.0f} h ago)"


def _strong(text: str, colour: bool) -> str:
    return click.style(text, bold=True) if colour else text


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
@output.output_option
@click.option("-l", "--selector", default="", help="Without a name: those whose labels match.")
@click.option("-w", "--watch", "is_watching", is_flag=True, help="Go on: print every change.")
@click.option("--at", default="", metavar="TIME", help="An earlier decision: 10m, or RFC 3339.")
@click.pass_context
def command(
    ctx: click.Context,
    what: str,
    cluster: ClusterChoice,
    form: output.Form,
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
        output.note(f"podscale explain: {output.printable(str(refused))}")
        ctx.exit(EXIT_USAGE)
    except ExplainFailed as failed:
        output.note(f"podscale explain: {output.printable(str(failed))}")
        ctx.exit(EXIT_FAILED)
    except KeyboardInterrupt:
        ctx.exit(0)


def _explain_pod(ctx: click.Context, cluster: ClusterChoice, name: str, form: output.Form) -> None:
    from podscale.cli.commands.explain_pod import explain_pod
    from podscale.kube.client.errors import KubeError, ObjectNotFound

    async def asked() -> None:
        async with cluster.connect("explain") as api:
            await explain_pod(api, cluster.namespace, name, form)

    try:
        asyncio.run(asked())
    except KubeError as error:
        more = _ELSEWHERE if isinstance(error, ObjectNotFound) else ""
        output.note(f"podscale explain: {output.printable(output.said(error))}{more}")
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
    form: output.Form,
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
                    why = output.printable(str(error))
                    output.note(f"podscale explain: {why}; asking on, Ctrl-C ends it")
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
            if (
                "only recent ones" not in text
            ):  # of --at the object is there, and the time too early
                text += _ELSEWHERE
            if "could not find the requested resource" in text:
                text += f": is the APIService of {group} installed?"
            raise ExplainFailed(text) from error
        except BadRequest as error:
            raise _Refused(str(error)) from error
        except ApiUnreachable as error:
            raise ExplainUnanswered(f"{output.said(error)}. {OTHER_CLUSTER}") from error
        except KubeError as error:
            raise ExplainFailed(output.said(error)) from error


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


def _show(body: Mapping[str, Any], form: output.Form, namespace: str) -> None:
    if form in ("json", "yaml"):
        output.emit(body, form)
    elif "items" in body:
        print_list(body["items"], is_wide=form == "wide", namespace=namespace)
    else:
        print_explanation(body, now=time.time())
