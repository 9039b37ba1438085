"""Patches that a person commits: one file for each workload, best first. Pure.

What is in is what is safe: amounts whose risk is known and at most what was allowed. CPU stays
out where an HPA scales the workload, since its utilization is of the request, or may do so:
without kube-state-metrics nobody knows.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from podscale.replay.fleet.owners import FleetWorkload
from podscale.replay.fleet.report import FleetLine, FleetReport, ResourceLine

PatchForm = Literal["kustomize", "helm"]

_APIS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
         "ReplicaSet": "apps/v1", "CronJob": "batch/v1"}  # fmt: skip
_MEBI = 2**20
_LEAST_RISK = 1e-4  # nothing is divided by less


class WorkloadPatch(Struct, frozen=True):
    """One workload's file."""

    workload: FleetWorkload
    body: dict[str, Any]
    risk: float
    worth: float
    says: str  # first line of the file


def patches_of(report: FleetReport, most_risk: float, form: PatchForm) -> list[WorkloadPatch]:
    """Return the patches, those that save most for their risk first."""
    by_workload: dict[FleetWorkload, list[FleetLine]] = {}
    for line in report.lines:
        by_workload.setdefault(line.sized.workload, []).append(line)
    found = [
        patch for workload, lines in by_workload.items()
        if workload.kind in _APIS and (patch := _patch(report, workload, lines, most_risk, form))
    ]  # fmt: skip
    return sorted(found, key=lambda each: each.worth / max(each.risk, _LEAST_RISK), reverse=True)


def _patch(
    report: FleetReport,
    workload: FleetWorkload,
    lines: Sequence[FleetLine],
    most_risk: float,
    form: PatchForm,
) -> WorkloadPatch | None:
    containers, risks, worth = [], [0.0], 0.0
    for line in lines:
        safe = dict(_safe(line, most_risk, may_have_hpa=line.has_hpa or not report.knows_requests))
        if not safe:
            continue
        resources: dict[str, dict[str, str]] = {}
        for resource, each in safe.items():
            resources.setdefault("requests", {})[resource] = _written(resource, each.recommended)
            if each.limit is not None:
                resources.setdefault("limits", {})[resource] = _written(resource, _limit(each))
            risks.append(each.risk.chance if each.risk else 0.0)
        worth += report.worth(structs.replace(line, resources=safe))
        containers.append({"name": line.sized.container, "resources": resources})
    if not containers:
        return None
    body = _kustomize(workload, containers) if form == "kustomize" else _helm(containers)
    unit = f"{report.prices.currency} a month" if report.prices else "cores (10 GiB count as one)"
    says = f"saves {worth:.2f} {unit}; risk within a week {max(risks):.2%}"
    return WorkloadPatch(workload, body, max(risks), worth, says)


def _safe(
    line: FleetLine, most_risk: float, *, may_have_hpa: bool
) -> Iterator[tuple[str, ResourceLine]]:
    for resource, each in line.resources.items():
        if each.risk is None or each.risk.chance > most_risk:
            continue
        if resource == "cpu" and may_have_hpa:
            continue
        if each.request is None or _written(resource, each.request) != (
            _written(resource, each.recommended)
        ):
            yield resource, each


def _limit(line: ResourceLine) -> float:
    # Keeps its ratio to the request, as the VPA has it.
    if not line.limit or not line.request:
        return max(line.limit or 0.0, line.recommended)
    return line.limit * line.recommended / line.request


def _written(resource: str, amount: float) -> str:
    return f"{math.ceil(amount * 1000)}m" if resource == "cpu" else f"{math.ceil(amount / _MEBI)}Mi"


def _kustomize(workload: FleetWorkload, containers: list[dict[str, Any]]) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
    if workload.kind == "CronJob":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": workload.name, "namespace": workload.namespace}
    return {"apiVersion": _APIS[workload.kind], "kind": workload.kind, "metadata": metadata,
            "spec": spec}  # fmt: skip


def _helm(containers: list[dict[str, Any]]) -> dict[str, Any]:
    # As most charts have it: one container's at the top, of several by their names.
    if len(containers) == 1:
        return {"resources": containers[0]["resources"]}
    return {each["name"]: {"resources": each["resources"]} for each in containers}


def file_name(number: int, patch: WorkloadPatch) -> str:
    """Return what a patch's file is called: numbers keep the order."""
    workload = patch.workload
    name = f"{workload.namespace}-{workload.kind.lower()}-{workload.name}"
    # Labels of a series may be any text.
    return f"{number:04}-{re.sub('[^A-Za-z0-9.-]', '_', name)}.yaml"
