"""What the page shows of one HPA decision. Pure: a trace in, the newest facts out."""

from msgspec import Struct

from hpa.decide.api.spec import MetricSpec, MetricStatus
from hpa.decide.decision import Conflict, Measured, Paused, TargetUnreadable, Trace
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.explain.reading import ReadTrace, step_of, tell
from podscale.page.values.json_values import Direction, ShownDecision, State

_KEY = "scale-"
_AT_THE_FLOOR = frozenset({"MinReplicasReached", "MinEqualsMax"})


class MetricReading(Struct, frozen=True, gc=False):
    """What was measured against what is wanted, in one unit."""

    metric: str = ""
    unit: str = ""  # "", "%", "B", "cores"
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


def facts(trace: Trace, reason: str) -> ScalingFacts:
    """Return what the list and the lines show of ``trace``."""
    told = tell(trace)
    size = told.size_after
    wants = told.chosen.replicas if told.chosen is not None else None
    return ScalingFacts(
        trace.now,
        told.hpa.target.kind,
        told.hpa.target.name,
        _state(told, reason, wants, size),
        reason,
        told.current,
        size,
        wants if wants != size else None,
        told.hpa.min_replicas,
        told.hpa.max_replicas,
        told.scale.selector if told.scale is not None else "",
        reading(told),
    )


def mark(hpa: str, found: ScalingFacts) -> ShownDecision:
    """Return the decision as a mark on the timeline."""
    before, after = found.before, found.replicas
    direction: Direction = "failed" if found.state == "failing" else "held"
    if before is None or after is None:
        title = "size not known"
    elif before != after:
        title, direction = f"{before} → {after} replicas", "up" if after > before else "down"
    else:
        title = f"stays at {after}"
        if found.wants is not None:
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


def _state(told: ReadTrace, reason: str, wants: int | None, size: int | None) -> State:
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

    One metric is shown in its own unit. Several have none in common, so the largest
    share of its target is, which is what the size follows.
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
        return MetricReading(f"{len(metrics)} metrics", "%", None, 100.0)
    ratio, name = max(shares)
    return MetricReading(f"{name} (largest of {len(metrics)})", "%", ratio * 100, 100.0)


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
