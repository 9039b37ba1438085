"""What a decision that left its target alone says about the next one.

A metric is decided on by one whole number: the sum over its pods, or of its series. While the
rest of what is looked at stays as it is, there are bounds for these totals within which the next
pass decides the same in all but the numbers it shows, and remembers nothing but its time. Pure;
``decide`` is the measure of everything here, and a property test holds it to that.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Literal

import numpy as np
from msgspec import Struct, structs

from hpa.decide.answers import summed
from hpa.decide.decision import Decision, Labels
from hpa.decide.metrics import Valid, is_plain
from hpa.decide.observation import MetricAnswer, Past, Recommendation, Scale
from hpa.decide.pods import Groups, Pods
from hpa.decide.ratios import Tolerance
from hpa.decide.reconcile import longest_window_s, tolerance_of
from hpa.decide.replicas import Calculation, by_average_value, by_plain_average, by_value
from hpa.decide.spec import MetricSpec
from hpa.decide.steps import Chosen, LimitApplied, Measured, WindowApplied
from podscale.core.metrics import ExternalSamples, ObjectSample, PodSamples

_MOST = 2**50  # the quotient of a larger total may be rounded to a whole number as a float
_TIMES = 16  # the bounds of totals that miss their target by more than this are not looked for
_FAR = 2**62  # further than any of them

Bounds = tuple[int, int]  # the lowest and the highest
Margin = tuple[int, int]  # a number that the status shows, how far the next may be from it


class Steady(Struct, frozen=True, gc=False):
    """One decision, as far as it holds for others on the same hpa, scale, pods and settings, and
    on the past that it left: what is recommended again and again, no window holds back later."""

    labels: Labels
    desired: int  # what the metrics ask for together, and the windows let through
    window_s: float  # the longest one: older recommendations make room for new ones
    # Lowest and highest totals, metric by metric, as int64: ten thousand are kept.
    bounds: bytes
    unmoved: bytes  # where the status is right as it is; empty where nobody writes it


def repeated(past: Past, added: Sequence[Recommendation], window_s: float) -> Past:
    """Return what ``decide`` makes of ``past`` when it recommends ``added``, one after another,
    and none counts for longer than ``window_s``."""
    found = list(past.recommendations or ())
    for each in added:
        cutoff = each.at - window_s
        for slot in range(len(found) - 1, -1, -1):
            if found[slot].at < cutoff:
                found[slot] = each
                break
        else:
            found.append(each)
    return structs.replace(past, recommendations=tuple(found))


def totals_of(
    metrics: Sequence[MetricSpec], answers: Sequence[MetricAnswer | None], pods: Pods
) -> list[int] | None:
    """Return the total of each metric; None where more than a total may count, or less."""
    if len(answers) != len(metrics):
        return None
    found = []
    for spec, answer in zip(metrics, answers, strict=True):
        kind = spec.type
        if type(answer) is PodSamples:
            if kind != "Pods" or not is_plain(answer.pods, pods):
                return None
            found.append(answer.pods.total_milli)
        elif type(answer) is ExternalSamples:
            if kind != "External" or answer.left_out or not answer.series:
                return None
            found.append(summed([each.sample.value_milli for each in answer.series]))
        elif type(answer) is ObjectSample:
            if kind != "Object":
                return None
            found.append(answer.sample.value_milli)
        else:
            return None
    return found


def are_within(totals: Sequence[Sequence[int]], bounds: Sequence[bytes]) -> list[bool]:
    """Return, decision by decision, whether its totals (at least one) lie within its bounds."""
    flat = [*chain.from_iterable(totals)]
    try:
        numbers = np.array(flat, np.int64)
    except OverflowError:  # further than any bound
        numbers = np.array([min(max(each, -_FAR - 1), _FAR + 1) for each in flat], np.int64)
    ends = np.frombuffer(b"".join(bounds), np.int64).reshape(-1, 2)
    starts = [*accumulate(map(len, totals[:-1]), initial=0)]
    found = (ends[:, 0] <= numbers) & (numbers <= ends[:, 1])
    held: list[bool] = np.logical_and.reduceat(found, starts).tolist()
    return held


def steady(decision: Decision, margins: Sequence[Margin] | None) -> Steady | None:
    """Return what ``decision`` says about the next one, if bounds can say it.

    ``margins`` are those of the status, metric by metric; None: nobody writes it.
    """
    trace = decision.trace
    seen, settings = trace.observation, trace.settings
    scale, hpa = seen.scale, seen.hpa
    if (
        not isinstance(scale, Scale)
        or totals_of(hpa.metrics, seen.answers, seen.pods) is None
        or scale.spec_replicas <= 0
        or scale.status_replicas <= 0
        or decision.error is not None
        or trace.decided != scale.spec_replicas
        or hpa.options.fallbacks
        or hpa.options.pods_by_owner
        or settings.metric_max_age_s is not None
    ):
        return None
    tolerance = tolerance_of(hpa, settings)
    desired = None
    bounds: list[Bounds] = []
    unmoved: list[Bounds] = []
    for step in trace.steps:
        if isinstance(step, WindowApplied):
            return None  # until what it holds on to grows too old
        if isinstance(step, LimitApplied) and step.reason in ("ScaleUpLimit", "ScaleDownLimit"):
            return None  # how far policies let it go changes with the time; bounds stay
        if isinstance(step, Chosen):
            desired = max(step.replicas, 0)
        elif isinstance(step, Measured):
            spec, result = hpa.metrics[step.index], step.result
            shape = _shape(spec, scale, seen.pods)
            if shape is None or not isinstance(result, Valid):
                return None
            like = shape.like(_kind(result.calculation), tolerance)
            if margins is not None:
                was, margin = margins[step.index]
                like = _both(like, shape.showing(was - margin, was + margin))
                unmoved.append(shape.showing(was, was))
            bounds.append(like)
    if desired is None:
        return None
    return Steady(
        _shared(decision.labels),
        desired,
        longest_window_s(hpa, settings),
        _packed(bounds),
        _packed(unmoved),
    )


class _Shape(Struct, frozen=True):
    """How a total becomes a proposal, and a number of the status."""

    kind: Literal["pods", "average", "value"]
    target: int
    current: int
    among: int  # pods with a sample, pods that the target's status tells of, ready pods

    def like(self, kind: tuple[int, int], tolerance: Tolerance) -> Bounds:
        """Return the totals whose calculation is of this kind."""
        return _like(self, kind, tolerance)

    def showing(self, lowest: int, highest: int) -> Bounds:
        """Return the totals for which the status shows these numbers."""
        match self.kind:
            case "pods":  # rounded down
                return lowest * self.among, (highest + 1) * self.among - 1
            case "average":  # rounded up
                return (lowest - 1) * self.among + 1, highest * self.among
        return lowest, highest

    def calculation(self, total: int, tolerance: Tolerance) -> Calculation:
        match self.kind:
            case "pods":
                groups = Groups(self.among)
                return by_plain_average(self.current, self.target, total, groups, tolerance)
            case "average":
                return by_average_value(self.among, self.target, total, tolerance, guards_zero=True)
        return by_value(self.current, self.target, total, self.among, tolerance)


def _shape(spec: MetricSpec, scale: Scale, pods: Pods) -> _Shape | None:
    current = scale.spec_replicas
    average, value = spec.average_value_milli, spec.value_milli
    match spec.type:
        case "Pods" if average and pods.all_run():
            return _Shape("pods", average, current, len(pods))
        case "External" if average:
            return _Shape("average", average, current, scale.status_replicas)
        case "Object" if average and spec.target_type == "AverageValue":
            return _Shape("average", average, current, scale.status_replicas)
        case "External" if value and average is None and len(pods):
            return _Shape("value", value, current, pods.ready_count())
        case "Object" if value and spec.target_type == "Value" and len(pods):
            return _Shape("value", value, current, pods.ready_count())
    return None


@lru_cache(maxsize=20_000)
def _like(shape: _Shape, kind: tuple[int, int], tolerance: Tolerance) -> Bounds:
    # Larger totals are never of a lower kind.
    def of(total: int) -> tuple[int, int]:
        return _kind(shape.calculation(total, tolerance))

    totals = range(min(_TIMES * shape.target * max(shape.among, 1), _MOST))
    return bisect_left(totals, kind, key=of), bisect_right(totals, kind, key=of) - 1


def _kind(found: Calculation) -> tuple[int, int]:
    """Return what has to stay: on which side of the target it is, and the size asked for."""
    if found.outcome == "WithinTolerance":
        return 0, found.replicas
    return (1 if (found.ratio or 0.0) > 1.0 else -1), found.replicas


def _both(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), min(one[1], other[1])


def _packed(bounds: Sequence[Bounds]) -> bytes:
    return array("q", [min(max(each, -_FAR), _FAR) for each in chain(*bounds)]).tobytes()


@lru_cache(maxsize=1000)
def _shared(labels: Labels) -> Labels:
    """Return an equal one, if there is one."""
    return labels
