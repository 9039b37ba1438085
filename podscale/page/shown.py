"""What the page shows of one decision of an HPA, of a VPA, and of the pods' resources. Pure: traces
and what is known of a VPA in, the newest facts out.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from hpa.decide.api.spec import MetricSpec, MetricStatus
from hpa.decide.decision import Conflict, Measured, Paused, TargetUnreadable, Trace
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.explain.reading import ReadTrace, amount, step_of, tell
from podscale.core.metrics import PodSamples
from podscale.explain.explanation import Explanation
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import Vpa, update_mode
from podscale.page.values import Direction, ShownDecision, State
from vpa.decisions.decisions import KnownSizing
from vpa.model.amounts import RESOURCES
from vpa.updater.decide.decision import PodDecision

_KEY = "scale-"
_AT_THE_FLOOR = frozenset({"MinReplicasReached", "MinEqualsMax"})


class MetricReading(Struct, frozen=True, gc=False):
    """What was measured against what is wanted, in one unit."""

    metric: str = ""
    unit: str = ""  # "", "%" of the request, "×" the target, "B", "cores"
    load: float | None = None
    target: float | None = None


class ScalingFacts(Struct, frozen=True, gc=False):
    """The newest decision of one HPA."""

    at: float
    kind: str
    target: str
    state: State
    reason: str
    before: int | None  # size when it was decided
    replicas: int | None  # after the pass
    wants: int | None
    least: int
    most: int
    selector: str
    reading: MetricReading

    @property
    def is_rescale(self) -> bool:
        return None not in (self.before, self.replicas) and self.before != self.replicas


def scaling_facts(trace: Trace, reason: str) -> ScalingFacts:
    """Return what the list and the lines show of ``trace``."""
    told = tell(trace)
    size = told.size_after
    wants = told.chosen.replicas if told.chosen is not None else None
    return ScalingFacts(
        trace.now,
        told.hpa.target.kind,
        told.hpa.target.name,
        _scaling_state(told, reason, wants, size),
        reason,
        told.current,
        size,
        wants if wants != size else None,
        told.hpa.min_replicas,
        told.hpa.max_replicas,
        told.scale.selector if told.scale is not None else "",
        reading(told),
    )


def scaling_mark(hpa: str, found: ScalingFacts) -> ShownDecision:
    """Return the decision as a mark on the timeline."""
    before, after = found.before, found.replicas
    direction: Direction = "failed" if found.state == "failing" else "held"
    if before is None or after is None:
        title = "size not known"
    elif before != after:
        title, direction = f"{before} → {after} replicas", "up" if after > before else "down"
    else:
        title = f"stays at {after}"
    if found.wants is not None and after is not None:
        title += f", metrics ask for {found.wants}"
    key = f"{_KEY}{found.at!r}-{hpa}"
    return ShownDecision(key, found.at, "scale", title, found.reason, direction)


def hpa_and_time_of(key: str) -> tuple[str, float]:
    """Return what the key of a mark names; no HPA where it is none of scaling."""
    at, _, hpa = key.removeprefix(_KEY).partition("-")
    try:
        return hpa, float(at)
    except ValueError:
        return "", 0.0


def _scaling_state(told: ReadTrace, reason: str, wants: int | None, size: int | None) -> State:
    trace = told.trace
    is_stopped = step_of(trace, TargetUnreadable) or step_of(trace, Conflict)
    is_refused = trace.outcome is not None and trace.outcome.scale in ("failed", "conflict")
    if is_stopped or is_refused or any(isinstance(m.result, Invalid) for m in told.measured):
        return "failing"
    if size is not None and size != told.current:
        return "changing"
    if step_of(trace, Paused) is not None or told.is_vain:
        return "waiting"
    if wants is not None and wants != size:
        # Resting on its lower bound is what a quiet workload does.
        return "steady" if reason in _AT_THE_FLOOR and wants < (size or 0) else "waiting"
    return "steady"


def reading(told: ReadTrace) -> MetricReading:
    """Return the measurement that decided.

    One metric is shown in its own unit. Several have none in common, so it is how many times its
    target the largest is, which is what the size follows.
    """
    metrics = told.hpa.metrics
    if len(metrics) == 1:
        only = told.measured[0] if told.measured else None
        return _own_unit(metrics[0], only)
    shares = [
        (found.ratio, told.spec(measured).name)
        for measured, result in told.valid()
        if (found := result.calculation).ratio is not None
    ]
    if not shares:
        return MetricReading(f"{len(metrics)} metrics", "×", None, 1.0)
    ratio, name = max(shares)
    return MetricReading(f"{name} (largest of {len(metrics)})", "×", ratio, 1.0)


def _own_unit(spec: MetricSpec, measured: Measured | None) -> MetricReading:
    status: MetricStatus | None = None
    if measured is not None and isinstance(measured.result, Valid):
        status = measured.result.status
    name = spec.name if not spec.container else f"{spec.name} of {spec.container}"
    if spec.average_utilization is not None:
        load = status.average_utilization if status is not None else None
        return MetricReading(name, "%", load, spec.average_utilization)
    unit = {"memory": "B", "cpu": "cores"}.get(spec.name, "") if "Resource" in spec.type else ""
    if spec.average_value_milli is not None:
        found = status.average_value_milli if status is not None else None
        return MetricReading(
            f"{name} per pod", unit, _whole(found), spec.average_value_milli / 1000
        )
    found = status.value_milli if status is not None else None
    wanted = spec.value_milli
    return MetricReading(name, unit, _whole(found), None if wanted is None else wanted / 1000)


def _whole(milli: int | None) -> float | None:
    return None if milli is None else milli / 1000


Resource = Literal["cpu", "memory"]

# Why a pod that is due is left alone: somebody may want to do something about it.
_WAITS = frozenset(
    {
        "AdmissionNotAlive", "BudgetExhausted", "EvictionRequirementNotMet", "PdbRefuses",
        "QosClassWouldChange", "ResizeDeferred", "ResizeInProgress", "TooFewReplicas",
    }
)  # fmt: skip
_FAILS = frozenset({"ResizeError", "ResizeInfeasible"})
_UNSIZED = frozenset({"NoPodsMatched", "TargetNotFound", "TargetNotTopmost",
                      "TargetWithoutSelector", "UsageMissing"})  # fmt: skip
_RECENT_S = 60.0


def sizing_mark(
    at: float, kind: Literal["size", "pod"], title: str, reason: str, direction: Direction
) -> ShownDecision:
    """Return something that happened to pods or their size as a mark on the timeline."""
    return ShownDecision(f"{kind}-{at:.3f}-{title}", at, kind, title, reason, direction)


class Recommended(Struct, frozen=True):
    """What one VPA recommends now, per pod."""

    name: str
    kind: str
    target: str
    selector: str
    mode: str
    state: State
    reason: str
    cpu_cores: float | None
    memory_bytes: float | None
    why: str = ""  # in one sentence
    change: str = ""


def recommended(known: KnownSizing, explained: Explanation, now: float) -> Recommended | None:
    """Return what a VPA recommends; None without a target to show it on."""
    vpa, ref = known.vpa, known.vpa.spec.target_ref
    if ref is None:
        return None
    state, why = _sizing_state(explained.first_reason, known.pods, now)
    return Recommended(
        vpa.metadata.name,
        ref.kind,
        ref.name,
        known.selector,
        update_mode(vpa),
        state,
        why,
        target_of(vpa, "cpu"),
        target_of(vpa, "memory"),
        explained.why,
        explained.change,
    )


def target_of(vpa: Vpa, resource: Resource) -> float | None:
    """Return the published target, summed over the containers of a pod."""
    published = vpa.status.recommendation
    entries = (published.container_recommendations or ()) if published is not None else ()
    amounts = [float(each.target[resource]) for each in entries
               if each.target is not None and resource in each.target]  # fmt: skip
    return sum(amounts) if amounts else None


def _sizing_state(reason: str, pods: Sequence[PodDecision], now: float) -> tuple[State, str]:
    if reason in _UNSIZED:
        return "failing", reason
    firsts = [each.decision.reasons[0] for each in pods if each.decision.reasons]
    for names, state in ((_FAILS, "failing"), (_WAITS, "waiting")):
        found = [first for first in firsts if first in names]
        if found:
            return ("failing" if state == "failing" else "waiting"), found[0]
    for each in pods:
        if each.decision.action != "none" and now - each.time < _RECENT_S:
            return "changing", each.decision.reasons[0] if each.decision.reasons else reason
    return "steady", reason


def usage(
    resource: Resource,
    answer: PodSamples | None,
    pods: Sequence[PodView],
    target: float | None,
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return usage, request, limit and target of a pod, cores or bytes, None for not known.

    Averages over ``pods``, of usage over those that reported; without a limit there is none.
    """
    scale = 1000.0
    used = [sample.value_milli / scale for sample in answer.pods.values()] if answer else []
    requests = [_summed(pod, resource, of_limits=False) for pod in pods]
    limits = [_summed(pod, resource, of_limits=True) for pod in pods]
    return _mean(used), _mean(requests), _mean(limits), target


def _summed(pod: PodView, resource: str, *, of_limits: bool) -> float | None:
    # What the kubelet reports counts before the spec: a resize changes the status last.
    total = 0
    for container in pod.template.containers:
        now = pod.present[container.name]
        found = ((now.limits_milli if of_limits else now.requests_milli) or {}).get(resource)
        if found is None:
            if of_limits:
                return None  # one container without a limit: the pod has none
            continue
        total += found
    return total / 1000.0 if total else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known else None


def changed(before: Recommended | None, now: Recommended) -> tuple[str, Direction] | None:
    """Return the change of a recommendation in words, and its direction; None: no change."""
    if before is None:
        return None
    parts, is_up = [], False
    for resource in RESOURCES:
        old, new = _of(before, resource), _of(now, resource)
        if new is None or old == new:
            continue
        is_up = is_up or old is None or new > old
        shown = "nothing" if old is None else _amount(old, resource)
        parts.append(f"{resource} {shown} → {_amount(new, resource)}")
    return (", ".join(parts), "up" if is_up else "down") if parts else None


def _of(found: Recommended, resource: str) -> float | None:
    return found.cpu_cores if resource == "cpu" else found.memory_bytes


def _amount(value: float, resource: str) -> str:
    return amount(round(value * 1000), resource)
