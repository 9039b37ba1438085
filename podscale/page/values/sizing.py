"""What the page shows of a VPA and of the pods' resources. Pure."""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from hpa.explain.amounts import amount
from podscale.core.metrics import PodSamples
from podscale.explain.explanation import Explanation
from podscale.kube.columns.pod_set import PodView
from podscale.page.values.json_values import Direction, ShownDecision, State
from vpa.decisions.decisions import KnownSizing
from vpa.model.api.objects import Vpa, update_mode
from vpa.model.api.quantities import RESOURCES
from vpa.updater.decide.decision import PodDecision

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


class SizingMark(Struct, frozen=True):
    """Something that happened to the size of pods."""

    at: float
    kind: Literal["size", "pod"]
    title: str
    direction: Direction
    explained: Explanation

    @property
    def key(self) -> str:
        """Name the mark within its workload."""
        return f"{self.kind}-{self.at:.3f}-{self.title}"

    @property
    def shown(self) -> ShownDecision:
        """Return it as a mark on the timeline."""
        reason = self.explained.first_reason
        return ShownDecision(self.key, self.at, self.kind, self.title, reason, self.direction)


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
    sentences: tuple[str, ...] = ()
    change: str = ""


class ContainerUsagePoint(Struct, frozen=True):
    """One resource on average over the pods, in cores or bytes. None: not known, or unlimited."""

    used: float | None = None
    request: float | None = None
    limit: float | None = None
    recommended: float | None = None

    @property
    def row(self) -> tuple[float | None, ...]:
        """The values in a ring's order."""
        return (self.used, self.request, self.limit, self.recommended)


def recommended(known: KnownSizing, explained: Explanation, now: float) -> Recommended | None:
    """Return what a VPA recommends; None without a target to show it on."""
    vpa, ref = known.vpa, known.vpa.spec.target_ref
    if ref is None:
        return None
    state, why = _state(explained.first_reason, known.pods, now)
    sentences = explained.sentences
    if known.usage_problem:
        # No sentence of an amount says it: it stands above them.
        sentences = (explained.why, *sentences)
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
        sentences,
        explained.change,
    )


def target_of(vpa: Vpa, resource: Resource) -> float | None:
    """Return the published target, summed over the containers of a pod."""
    published = vpa.status.recommendation
    entries = (published.container_recommendations or ()) if published is not None else ()
    amounts = [float(each.target[resource]) for each in entries
               if each.target is not None and resource in each.target]  # fmt: skip
    return sum(amounts) if amounts else None


def _state(reason: str, pods: Sequence[PodDecision], now: float) -> tuple[State, str]:
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
) -> ContainerUsagePoint:
    """Return the averages over ``pods``; usage over those that reported."""
    scale = 1000.0
    used = [sample.value_milli / scale for sample in answer.pods.values()] if answer else []
    requests = [_summed(pod, resource, of_limits=False) for pod in pods]
    limits = [_summed(pod, resource, of_limits=True) for pod in pods]
    return ContainerUsagePoint(_mean(used), _mean(requests), _mean(limits), target)


def _summed(pod: PodView, resource: str, *, of_limits: bool) -> float | None:
    # What the kubelet reports counts before the spec: a resize changes the status last.
    now = {state.name: state for state in pod.states if not state.is_init}
    total = 0
    for container in pod.template.containers:
        state = now.get(container.name)
        reported = None
        if state is not None:
            reported = state.limits_milli if of_limits else state.requests_milli
        written = container.limits_milli if of_limits else container.requests_milli
        found = (written if reported is None else reported).get(resource)
        if found is None:
            if of_limits:
                return None  # one container without a limit: the pod has none
            continue
        total += found
    return total / 1000.0 if total else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known else None


def changed(before: Recommended | None, now: Recommended) -> tuple[str, bool] | None:
    """Return the change of a recommendation in words and whether it went up; None: no change."""
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
    return (", ".join(parts), is_up) if parts else None


def _of(found: Recommended, resource: str) -> float | None:
    return found.cpu_cores if resource == "cpu" else found.memory_bytes


def _amount(value: float, resource: str) -> str:
    return amount(round(value * 1000), resource)
