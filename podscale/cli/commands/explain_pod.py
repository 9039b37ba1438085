"""``podscale explain pod/NAME``: why has it no node?"""

import time
from typing import TYPE_CHECKING

import click

from podscale.cli.output import Form, emit, printable

if TYPE_CHECKING:
    from podscale.kube.client.api import Api
    from podscale.nodes.explain import PodPlacement, RefusedNodes

_SHOWN = 8  # nodes of a group by name
_DETAILS = 3  # of a group


async def explain_pod(api: "Api", namespace: str, name: str, form: Form) -> None:
    """Print why; raises ``KubeError``."""
    from msgspec import to_builtins

    from podscale.nodes.explain import explain
    from podscale.nodes.scheduling.cluster_reading import read

    pod, cluster = await read(api, namespace, name)
    found = explain(pod, cluster, time.time())
    if form in ("json", "yaml"):
        emit(to_builtins(found), form)
    else:
        click.echo("\n".join(printable(line) for line in lines(found)))


def lines(found: "PodPlacement") -> list[str]:
    where = f" on {found.node}" if found.node else ""
    told = [f"{found.namespace}/{found.name}: {found.reason}{where}"]
    if found.message:
        told.append(f"  {found.message}")
    for group in found.refused:
        told += _of_group(group)
    if found.has_room:
        told.append(f"  room on: {', '.join(found.has_room[:_SHOWN])}")
    if found.scheduler_says:
        told.append(f"  The scheduler said: {found.scheduler_says}")
    told += [f"  A node autoscaler: {each}" for each in found.autoscaler]
    told += [f"  What would change it: {each}" for each in found.changes]
    return told


def _of_group(group: "RefusedNodes") -> list[str]:
    by_load = " (by podscale, for measured load alone)" if group.is_by_load else ""
    count, messages = len(group.nodes), ", ".join(group.messages)
    told = [f"  {count} × {group.plugin}{by_load}: {messages}"]
    by_detail: dict[str, list[str]] = {}
    for name in group.nodes:
        by_detail.setdefault(group.details.get(name, ""), []).append(name)
    for detail, names in list(by_detail.items())[:_DETAILS]:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        told.append(f"      {', '.join(names[:_SHOWN])}{more}{detail and f' ({detail})'}")
        count -= len(names)
    if count:
        told.append(f"      and {count} more: -o json has them")
    return told
