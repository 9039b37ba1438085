"""``podscale explain pod/NAME``: why has it no node?"""

import time
from typing import TYPE_CHECKING

import click

from podscale.cli.output import Form, emit, printable

if TYPE_CHECKING:
    from podscale.kube.client.api import Api
    from podscale.nodes.explain import PodPlacement

_SHOWN = 8  # nodes of a group by name


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
    told = [f"{found.namespace}/{found.name}: {found.reason}"]
    if found.message:
        told.append(f"  {found.message}")
    for group in found.refused:
        names = ", ".join(group.nodes[:_SHOWN])
        more = f" and {len(group.nodes) - _SHOWN} more" if len(group.nodes) > _SHOWN else ""
        told.append(f"  {len(group.nodes)} × {group.plugin}: {', '.join(group.messages)}")
        told.append(f"      {names}{more}{f' ({group.detail})' if group.detail else ''}")
    if found.has_room:
        told.append(f"  room on: {', '.join(found.has_room[:_SHOWN])}")
    if found.scheduler_says:
        told.append(f"  The scheduler said: {found.scheduler_says}")
    told += [f"  A node autoscaler: {each}" for each in found.autoscaler]
    if found.change:
        told.append(f"  What would change it: {found.change}")
    return told
