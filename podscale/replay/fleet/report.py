"""The report on a cluster: a line for each container of each workload, the sums, and patches that a
person commits, one file for each workload, best first. Pure.

What is in a patch is what is safe: amounts whose risk is known and at most what was allowed. CPU
stays out where an HPA scales the workload, since its utilization is of the request, or may do so:
without kube-state-metrics nobody knows.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, structs

from podscale.replay.fleet.reading import FleetSpan
from podscale.replay.fleet.sizing import UsageShape
from podscale.replay.fleet.usage import FleetContainer, FleetWorkload
from podscale.replay.inputs import PriceList
from vpa.model.amounts import RESOURCES

MONTH_HOURS = 730.0
GIB = float(2**30)
# What is said of each resource, in the order of columns.
RESOURCE_COLUMNS = (
    "Request", "Limit", "P50", "P95", "P99", "Max", "Class", "Active", "Burst", "Daily", "Growth",
    "Recommended", "BoundedBy", "Risk", "RiskLow", "RiskHigh", "Saving",
)  # fmt: skip
_SCALABLE = ("Deployment", "StatefulSet", "ReplicaSet")
_UNSAFE, _BURST = 0.25, 3.0


class Chance(Struct, frozen=True):
    """A probability within the next week, and its 90 % interval."""

    chance: float
    low: float
    high: float


class ResourceLine(Struct, frozen=True):
    """One resource of one container; cores or bytes of a pod."""

    request: float | None
    limit: float | None
    p50: float
    p95: float
    p99: float
    largest: float
    shape: UsageShape
    recommended: float
    bounds: Sequence[str]  # what bounded it, tokens
    risk: Chance | None  # None: less than a day is known
    risk_at_p99: float
    saving: float  # of all pods; below zero: it asks for more


class FleetLine(Struct, frozen=True):
    """One container of one workload."""

    sized: FleetContainer
    pods: float  # now; of what comes and goes, the mean
    has_hpa: bool
    is_scaling: bool  # the HPA acts
    days: float  # that are known
    oom_kills: int
    throttled: float | None  # share of CPU periods
    resources: Mapping[str, ResourceLine]
    hpa_target: int | None = None  # utilization that replay would choose

    @property
    def wants_hpa(self) -> bool:
        """Whether bursts make every request unsafe, and more pods would help."""
        cpu = self.resources.get("cpu")
        return (
            cpu is not None and not self.has_hpa
            and self.sized.workload.kind in _SCALABLE
            and cpu.shape.usage_class in ("bursty", "daily")
            and cpu.shape.burst >= _BURST and cpu.risk_at_p99 > _UNSAFE
        )  # fmt: skip

    @property
    def advice(self) -> str:
        """What a person should do that no request does, or nothing."""
        if self.wants_hpa:
            target = f" at {self.hpa_target} % of the request" if self.hpa_target else ""
            return f"use an HPA{target}"
        if (
            self.oom_kills
            and "memory" in self.resources
            and (self.resources["memory"].shape.usage_class == "growing")
        ):
            return "memory grows until it is killed: look for a leak"
        return ""

    @property
    def risk(self) -> float | None:
        """The larger chance of both resources; None where one is not known."""
        chances = [each.risk for each in self.resources.values()]
        return max((each.chance for each in chances if each), default=0.0) if all(chances) else None


class FleetReport(Struct, frozen=True):
    """All that a report says."""

    lines: Sequence[FleetLine]  # those that save most first
    span: FleetSpan
    notes: Sequence[str]
    prices: PriceList | None = None
    knows_requests: bool = True  # else none is known, of any container

    @property
    def history_s(self) -> float:
        """How far back the longest known container goes: the call may ask for more."""
        return round(max((line.days for line in self.lines), default=0.0) * 86400.0)

    def money(self, line: FleetLine) -> float:
        """Return what is saved a month."""
        if self.prices is None:
            return 0.0
        cores, bytes_ = (line.resources[each].saving if each in line.resources else 0.0
                         for each in RESOURCES)  # fmt: skip
        hour = cores * self.prices.core_hour + bytes_ / GIB * self.prices.gib_hour
        return hour * MONTH_HOURS

    def worth(self, line: FleetLine) -> float:
        """Return what orders lines: money, or cores and a tenth of GiB where prices are unknown."""
        if self.prices is not None:
            return self.money(line)
        return sum(
            each.saving / (1.0 if resource == "cpu" else 10.0 * GIB)
            for resource, each in line.resources.items()
        )

    def totals(self) -> Mapping[str, float]:
        """Return the sums: what would be freed, and what would be reserved in addition."""
        found: dict[str, float] = {}
        for key, resource, unit in (("Cores", "cpu", 1.0), ("Gib", "memory", GIB)):
            savings = [line.resources[resource].saving / unit for line in self.lines
                       if resource in line.resources]  # fmt: skip
            found[f"freed{key}"] = round(sum(each for each in savings if each > 0.0), 3)
            found[f"added{key}"] = round(-sum(each for each in savings if each < 0.0), 3)
        if self.prices is not None:
            found["moneyAMonth"] = round(sum(self.money(line) for line in self.lines), 2)
        return found

    def rows(self) -> list[dict[str, object]]:
        """Return each line flat, as CSV has it: cores, bytes, shares of 1, chances."""
        return [self._row(line) for line in self.lines]

    def body(self) -> Mapping[str, object]:
        """Return everything as JSON and YAML show it."""
        currency = self.prices.currency if self.prices else ""
        return {
            "kind": "FleetReport",
            "start": self.span.start_s - self.span.step_s,
            "end": self.span.end_s,
            **({"currency": currency} if currency else {}),
            "totals": dict(self.totals()),
            "notes": list(self.notes),
            "containers": self.rows(),
        }

    def _row(self, line: FleetLine) -> dict[str, object]:
        workload = line.sized.workload
        row: dict[str, object] = {
            "namespace": workload.namespace, "kind": workload.kind, "name": workload.name,
            "container": line.sized.container, "pods": round(line.pods, 2),
            "hpa": "acts" if line.is_scaling else "idle" if line.has_hpa else "",
            "days": round(line.days, 2), "oomKills": line.oom_kills,
            "throttled": None if line.throttled is None else round(line.throttled, 4),
        }  # fmt: skip
        for resource in RESOURCES:
            row.update(_columns(resource, line.resources.get(resource)))
        if self.prices is not None:
            row["moneyAMonth"] = round(self.money(line), 2)
        row["advice"] = line.advice
        return row


def _columns(resource: str, line: ResourceLine | None) -> dict[str, object]:
    # The same columns where nothing was measured: a table has one set of them.
    def amount(value: float | None) -> float | None:
        return None if value is None else round(value, 4) if resource == "cpu" else round(value)

    found: dict[str, object] = dict.fromkeys(RESOURCE_COLUMNS)
    if line is not None:
        shape, chance = line.shape, line.risk
        found = dict(zip(RESOURCE_COLUMNS, (
            *map(amount, (line.request, line.limit, line.p50, line.p95, line.p99, line.largest)),
            shape.usage_class, round(shape.active, 4), round(shape.burst, 2),
            round(shape.daily, 4), round(shape.growth, 4),
            amount(line.recommended), " ".join(line.bounds),
            *((round(each, 5) for each in (chance.chance, chance.low, chance.high))
              if chance else (None, None, None)),
            amount(line.saving),
        ), strict=True))  # fmt: skip
    return {f"{resource}{name}": value for name, value in found.items()}


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
