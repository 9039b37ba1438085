"""A trace taken apart: the steps that explanations ask for, by name; and amounts in the words of
people."""

from typing import TypeVar

from msgspec import Struct

from hpa.decide import decision as steps
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.metrics.measuring import Invalid, Valid
from hpa.decide.observation import Observation, Scale
from hpa.decide.pods import PodGroups, Pods

AStep = TypeVar("AStep", bound=steps.Step)


class ReadTrace(Struct, frozen=True):
    """One trace and its parts; None where the pass did not get that far."""

    trace: steps.Trace
    measured: tuple[steps.Measured, ...]
    chosen: steps.Chosen | None
    blocked: steps.Blocked | None
    window: steps.WindowApplied | None
    limit: steps.LimitApplied | None
    winner: steps.Measured | None  # the metric whose proposal counts
    groups: tuple[PodGroups, ...]  # how pods counted, the winner's view first

    @property
    def observation(self) -> Observation:
        return self.trace.observation

    @property
    def hpa(self) -> HPA:
        return self.trace.observation.hpa

    @property
    def minimum(self) -> int:
        """minReplicas as of the pass: a schedule may have raised it."""
        scheduled = step_of(self.trace, steps.Scheduled)
        return self.hpa.min_replicas if scheduled is None else scheduled.minimum.replicas

    @property
    def scale(self) -> Scale | None:
        scale = self.trace.observation.scale
        return scale if isinstance(scale, Scale) else None

    @property
    def current(self) -> int | None:
        return None if self.scale is None else self.scale.spec_replicas

    @property
    def is_vain(self) -> bool:
        """Whether another size was decided, and is not put into effect (yet)."""
        trace, outcome = self.trace, self.trace.outcome
        if trace.decided is None or trace.decided == self.current:
            return False
        is_written = outcome is None or outcome.scale == "written"
        return trace.settings.mode == "shadow" or not is_written

    @property
    def size_after(self) -> int | None:
        """The size of the target after the pass; what was only decided does not count."""
        decided = self.trace.decided
        is_kept = self.is_vain or decided is None or step_of(self.trace, steps.Paused) is not None
        return self.current if is_kept else decided

    @property
    def pods(self) -> Pods:
        """The pods that counted: all behind the selector, or the target's own."""
        pods = self.observation.pods
        if not self.hpa.options.pods_by_owner:
            return pods
        return pods.chosen(pods.rows_owned_by(self.target))

    @property
    def knows_pods(self) -> bool:
        """Whether the pass came as far as to look for them: not while paused, nor without a
        selector that can be read."""
        for step in self.trace.steps:
            if isinstance(step, steps.Paused):
                return False
            if isinstance(step, steps.Conflict) and step.reason != "AmbiguousSelector":
                return False
        return True

    @property
    def target(self) -> str:
        return f"{self.hpa.target.kind}/{self.hpa.target.name}"

    def spec(self, measured: steps.Measured) -> MetricSpec:
        return self.hpa.metrics[measured.index]

    def invalid(self) -> list[tuple[steps.Measured, Invalid]]:
        """The metrics that could not be used, in the order of the spec."""
        return [(each, each.result) for each in self.measured if isinstance(each.result, Invalid)]

    def valid(self) -> list[tuple[steps.Measured, Valid]]:
        """The metrics that could be used, in the order of the spec."""
        return [(each, each.result) for each in self.measured if isinstance(each.result, Valid)]


def tell(trace: steps.Trace) -> ReadTrace:
    measured: list[steps.Measured] = []
    chosen = blocked = window = limit = None
    for step in trace.steps:
        match step:
            case steps.Measured():
                measured.append(step)
            case steps.Chosen():
                chosen = step
            case steps.Blocked():
                blocked = step
            case steps.WindowApplied():
                window = step
            case steps.LimitApplied():
                limit = step
    winner = None
    ordered = measured
    if chosen is not None and chosen.index is not None:
        winner = measured[chosen.index]
        ordered = [winner, *measured]
    groups = tuple([found for each in ordered if (found := _groups(each)) is not None])
    return ReadTrace(trace, tuple(measured), chosen, blocked, window, limit, winner, groups)


def _groups(measured: steps.Measured) -> PodGroups | None:
    result = measured.result
    return result.groups if isinstance(result, Invalid) else result.calculation.groups


def step_of(trace: steps.Trace, kind: type[AStep]) -> AStep | None:
    """Return the step of that kind, which a pass takes at most once."""
    for step in trace.steps:
        if isinstance(step, kind):
            return step
    return None


_TWO_POWERS = ("", "Ki", "Mi", "Gi", "Ti")


def amount(milli: int, name: str = "") -> str:
    """Return an amount of the metric or resource ``name``.

    Memory reads in powers of two, cpu as in manifests, anything else as a plain number.
    """
    if name == "cpu" and milli % 1000:
        return f"{milli}m"
    if name != "memory":
        whole, fraction = divmod(abs(milli), 1000)
        text = f"{whole}.{fraction:03}".rstrip("0").rstrip(".")
        return f"-{text}" if milli < 0 else text
    size = milli / 1000
    power = 0
    while abs(size) >= 1024 and power < len(_TWO_POWERS) - 1:
        size /= 1024
        power += 1
    return f"{size:.4g}{_TWO_POWERS[power]}"


def age(seconds: float) -> str:
    """Return a span of time, rounded."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def count(number: int, noun: str) -> str:
    """Return ``1 pod``, ``2 pods``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def verb(names: tuple[str, ...] | list[str], one: str, many: str) -> str:
    """Return the form of a verb that goes with so many names."""
    return one if len(names) == 1 else many


def listed(names: tuple[str, ...] | list[str], most: int = 5) -> str:
    """Return the names, cut after ``most``."""
    shown = ", ".join(names[:most])
    rest = len(names) - most
    return f"{shown} and {rest} more" if rest > 0 else shown
