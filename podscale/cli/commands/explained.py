"""A decision in plain words on a terminal; what the API tells, in the order it tells it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from podscale.cli.output import note, printable, table, wants_colour

_OLD_S = 120.0  # of a decision that is made every 15 seconds


def print_explanation(body: Mapping[str, Any], *, now: float | None = None) -> None:
    """Print one ScalingDecision (or SizingDecision: the same fields mean the same).

    ``now``, unix seconds: the age of a decision that is not of now is told.
    """
    click.echo("\n".join(lines(body, colour=wants_colour(), now=now)))


def nothing_found(namespace: str) -> str:
    """Say that there are no decisions, and where else to look; ``""`` is every namespace."""
    where = f" in namespace {namespace}" if namespace else ""
    elsewhere = " (-A: all namespaces, -n NAMESPACE: another one)" if namespace else ""
    return f"No decisions found{where}: none is made yet, or no object is there{elsewhere}."


def print_list(items: Sequence[Mapping[str, Any]], *, is_wide: bool, namespace: str = "") -> None:
    """Print decisions as kubectl prints objects; ``is_wide`` with the sentence of the reason.

    ``namespace`` is the one that was looked in, ``""`` every one.
    """
    if not items:
        note(nothing_found(namespace))
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
    table([*columns, "why"] if is_wide else columns, rows)


def lines(body: Mapping[str, Any], *, colour: bool = False, now: float | None = None) -> list[str]:
    status, spec, metadata = body["status"], body.get("spec", {}), body["metadata"]
    title = _title(metadata, spec, status) + _age(status.get("time"), now)
    found = [_strong(printable(title), colour)]
    found += [
        printable(f"  ! {each['type']}: {each.get('message', '')}")
        for each in status.get("conditions", ())
        if each.get("status") == "True"
    ]
    found += [printable(f"  {sentence}") for sentence in status.get("sentences", ())]
    if status.get("change"):
        change = printable(status["change"])
        found.append(f"  {_strong('What would change it:', colour)} {change}")
    reasons = [status.get("first_reason", ""), *status.get("also", ())]
    found.append(printable(f"  ({', '.join(reason for reason in reasons if reason)})"))
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
