"""What the number would have been: a decision made again with one thing taken away.

A ``WhatIf`` returns the number without that one thing, or None where it plays no part.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import partial

from msgspec import structs

from hpa.decide import Observation, decide
from hpa.decide.api.spec import MetricSpec
from hpa.decide.metrics.measuring import Valid
from hpa.decide.observation import MetricAnswer
from hpa.decide.steps import Measured
from hpa.decide.variation import ACTUAL, Bucket, Variation
from hpa.explain.reading import ReadTrace, tell
from podscale.core.metrics import ExternalSample, ExternalSamples, PodSamples
from podscale.core.pod_state import PodPhase, PodReadiness

WhatIf = Callable[[ReadTrace], int | None]

_NO_NUMBER = -1  # of a decision that keeps the size because nothing could be used


def number(
    told: ReadTrace, variation: Variation = ACTUAL, observation: Observation | None = None
) -> int | None:
    """Return the size decided under a variation, or on another observation."""
    trace = told.trace
    seen = trace.observation if observation is None else observation
    settings = structs.replace(trace.settings, mode="replace")
    return decide(seen, trace.past, settings, trace.now, variation).trace.decided


def foreign_pods(told: ReadTrace) -> list[str]:
    """Return the pods that count and are not the target's own."""
    pods = told.pods
    if not pods.owner or not any(map(_counts_pods, told.hpa.metrics)):
        return []
    own = set(pods.rows_owned_by(told.target))
    return [name for row, name in enumerate(pods.names) if row not in own]


def _counts_pods(spec: MetricSpec) -> bool:
    return spec.type not in ("Object", "External") or spec.is_by_value


def gone_pods(told: ReadTrace) -> list[str]:
    """Return the pods that metrics tell of and that do not exist (any more)."""
    if told.hpa.options.pods_by_owner:
        return []  # their samples are left out
    known = set(told.pods.names)
    gone: set[str] = set()
    for answer in told.observation.answers:
        if isinstance(answer, PodSamples) and not answer.pods.keys() <= known:
            gone |= answer.pods.keys() - known
    return sorted(gone)


def unready_pods(told: ReadTrace) -> list[str]:
    """Return the pods that a Value target leaves out."""
    pods = told.pods
    return [
        name
        for row, name in enumerate(pods.names)
        if pods.phase[row] not in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        and not (pods.phase[row] == PodPhase.RUNNING and pods.ready[row] == PodReadiness.TRUE)
    ]


def without_foreign_pods(told: ReadTrace) -> int | None:
    """Count the target's own pods only."""
    foreign = set(foreign_pods(told))
    if not foreign:
        return None
    seen = told.observation
    rows = [row for row, name in enumerate(seen.pods.names) if name not in foreign]
    return number(
        told,
        observation=structs.replace(
            seen, pods=seen.pods.chosen(rows), answers=_without(seen.answers, foreign)
        ),
    )


def without_gone_pods(told: ReadTrace) -> int | None:
    """Drop the samples of pods that do not exist."""
    gone = set(gone_pods(told))
    if not gone:
        return None
    answers = _without(told.observation.answers, gone)
    return number(told, observation=structs.replace(told.observation, answers=answers))


def with_one_series(told: ReadTrace) -> int | None:
    """Take single series in place of their sum; the actual number if one of them gives it.

    A larger value never asks for fewer pods: of thousands of series a dozen are tried.
    """
    decided = told.trace.decided
    if decided is None:
        return None
    found = None
    for index, answer in enumerate(told.observation.answers):
        if not isinstance(answer, ExternalSamples) or len(answer.series) < 2:
            continue
        alone = partial(_alone, told, index, answer)
        ordered = sorted(answer.series, key=lambda each: each.sample.value_milli)
        at = bisect_left(ordered, decided, key=alone)
        if at == len(ordered) or alone(ordered[at]) != decided:
            first = alone(answer.series[0])
            return None if first == _NO_NUMBER else first
        found = decided
    return found


def _alone(told: ReadTrace, index: int, answer: ExternalSamples, one: ExternalSample) -> int:
    answers = told.observation.answers
    varied = (*answers[:index], structs.replace(answer, series=[one]), *answers[index + 1 :])
    found = number(told, observation=structs.replace(told.observation, answers=varied))
    return _NO_NUMBER if found is None else found


def without_rollout(told: ReadTrace) -> int | None:
    """Let status.replicas be spec.replicas."""
    scale = told.scale
    if scale is None or scale.status_replicas == scale.spec_replicas:
        return None
    settled = structs.replace(scale, status_replicas=scale.spec_replicas)
    return number(told, observation=structs.replace(told.observation, scale=settled))


def with_all_pods_ready(told: ReadTrace) -> int | None:
    """Let a Value target multiply by every pod that has not ended."""
    pods = told.pods
    if pods.phase.count(PodPhase.RUNNING) == pods.ready.count(PodReadiness.TRUE) == len(
        pods
    ) or not any(
        spec.type in ("Object", "External") and spec.value_milli for spec in told.hpa.metrics
    ):
        return None
    return number(told, Variation(ready_only=False))


def averaging(bucket: Bucket) -> WhatIf:
    """Let the pods of ``bucket`` count as the average of the others."""

    def ask(told: ReadTrace) -> int | None:
        if not any(getattr(groups, bucket) for groups in told.groups):
            return None
        return number(told, Variation(averaged=bucket))

    return ask


def without_largest(told: ReadTrace) -> int | None:
    """Leave only the metrics that ask for fewer pods, where another one holds the number."""
    current, chosen = told.current, told.chosen
    if current is None or chosen is None or chosen.replicas != current:
        return None
    fewer = [
        each.index
        for each in told.measured
        if each.replicas is not None and each.replicas < current
    ]
    if not fewer:
        return None
    seen = told.observation
    hpa = structs.replace(seen.hpa, metrics=tuple(seen.hpa.metrics[index] for index in fewer))
    answers = tuple(seen.answers[index] for index in fewer)
    return number(told, observation=structs.replace(seen, hpa=hpa, answers=answers))


def is_within_tolerance(result: Valid, current: int | None) -> bool:
    """Return whether the metric keeps the size because its ratio lies in the band."""
    return result.calculation.outcome == "WithinTolerance" and result.replicas == current


def within_tolerance(told: ReadTrace) -> Measured | None:
    """Return the metric that the tolerance holds: the winner, or of the others the one that
    would ask for most without it."""
    held = [each for each, result in told.valid() if is_within_tolerance(result, told.current)]
    if told.winner in held or len(held) < 2:
        return told.winner if told.winner in held else next(iter(held), None)
    trace = told.trace
    free = Variation(tolerance=False)
    other = tell(decide(trace.observation, trace.past, trace.settings, trace.now, free).trace)
    return max(held, key=lambda each: other.measured[each.index].replicas or 0)


def _without(
    answers: tuple[MetricAnswer | None, ...], names: Collection[str]
) -> tuple[MetricAnswer | None, ...]:
    return tuple(
        structs.replace(
            answer, pods={pod: each for pod, each in answer.pods.items() if pod not in names}
        )
        if isinstance(answer, PodSamples)
        else answer
        for answer in answers
    )
