"""Decisions made again with one thing changed, or taken away: what an explanation says is tried.

A ``WhatIf`` returns the number without that one thing, or None where it plays no part. Levels are
in a metric's own unit: percent of the request, or milli-units a pod, or of the whole.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from functools import partial
from typing import Literal

from msgspec import Struct, structs

from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.decision import Measured, Trace
from hpa.decide.metrics.measuring import Valid
from hpa.decide.metrics.requests import RequestProblem, requests_of
from hpa.decide.numbers import INT64_MAX
from hpa.decide.observation import MetricAnswer, Observation, Past, Recommendation, Scale
from hpa.decide.reconcile import decide
from hpa.decide.settings import ACTUAL, Bucket, Settings, Variation
from hpa.explain.reading import ReadTrace, tell
from podscale.core.metrics import ExternalSample, ExternalSamples, ObjectSample, PodSamples, Sample
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.objects.pod import TemplateContainer

WhatIf = Callable[[ReadTrace], int | None]

_NO_NUMBER = -1  # of a decision that keeps the size because nothing could be used


class Inputs(Struct, frozen=True):
    """What ``decide`` is called with, in replace mode."""

    observation: Observation
    past: Past
    settings: Settings
    now: float
    variation: Variation = ACTUAL

    @classmethod
    def of(cls, trace: Trace) -> "Inputs":
        settings = structs.replace(trace.settings, mode="replace")
        return cls(trace.observation, trace.past, settings, trace.now)

    def trace(self) -> Trace:
        made = decide(self.observation, self.past, self.settings, self.now, self.variation)
        return made.trace

    def decided(self) -> int | None:
        return self.trace().decided

    def settled(self) -> "Inputs":
        """Return them with every window run out and every policy's period passed."""
        past = structs.replace(self.past, recommendations=(), scale_ups=(), scale_downs=())
        return structs.replace(self, past=past)

    def without_recommendations(self, until: float) -> "Inputs":
        """Return them with the recommendations up to ``until`` out of the windows."""
        kept: tuple[Recommendation, ...] = tuple(
            each for each in self.past.recommendations or () if each.at > until
        )
        return structs.replace(self, past=structs.replace(self.past, recommendations=kept))

    def with_size(self, replicas: int) -> "Inputs":
        scale = self.observation.scale
        if not isinstance(scale, Scale):
            return self
        scaled = structs.replace(scale, spec_replicas=replicas, status_replicas=replicas)
        return self._seen(structs.replace(self.observation, scale=scaled))

    def with_bounds(self, *, minimum: int | None = None, maximum: int | None = None) -> "Inputs":
        hpa = self.observation.hpa
        least = hpa.min_replicas if minimum is None else minimum
        most = hpa.max_replicas if maximum is None else maximum
        return self._with(structs.replace(hpa, min_replicas=least, max_replicas=most))

    def with_policies(self, direction: Literal["up", "down"]) -> "Inputs":
        """Return them with a direction no longer disabled."""
        hpa = self.observation.hpa
        if hpa.behavior is None:
            return self
        rules = hpa.behavior.up if direction == "up" else hpa.behavior.down
        changed = {direction: structs.replace(rules, select="Max")}
        return self._with(structs.replace(hpa, behavior=structs.replace(hpa.behavior, **changed)))

    def with_requests(self, resource: str) -> "Inputs":
        """Return them with a request for ``resource`` in every container."""
        pods = self.observation.pods

        def filled(containers: tuple[TemplateContainer, ...]) -> tuple[TemplateContainer, ...]:
            return tuple(
                structs.replace(each, requests_milli={resource: 1000, **each.requests_milli})
                for each in containers
            )

        templates = tuple(
            structs.replace(
                template,
                containers=filled(template.containers),
                init_containers=filled(template.init_containers),
            )
            for template in pods.templates
        )
        seen = structs.replace(self.observation, pods=structs.replace(pods, templates=templates))
        return self._seen(seen)

    def with_level(self, index: int, level: int, *, is_new: bool = False) -> "Inputs | None":
        """Return them with one metric at ``level``; None where that cannot be made up. Pods that
        told nothing stay silent, unless the answer ``is_new``."""
        seen = self.observation
        known = None if is_new else seen.answers[index]
        made = self._at_level(seen.hpa.metrics[index], known, level)
        if made is None:
            return None
        answers = (*seen.answers[:index], made, *seen.answers[index + 1 :])
        return self._seen(structs.replace(seen, answers=answers))

    def with_target(self, index: int, target: int) -> "Inputs":
        """Return them with another target of one metric, in the unit of its level."""
        hpa = self.observation.hpa
        spec = hpa.metrics[index]
        if spec.average_utilization is not None and spec.average_value_milli is None:
            spec = structs.replace(spec, average_utilization=target)
        elif spec.is_by_value:
            spec = structs.replace(spec, value_milli=target)
        else:
            spec = structs.replace(spec, average_value_milli=target)
        metrics = (*hpa.metrics[:index], spec, *hpa.metrics[index + 1 :])
        return self._with(structs.replace(hpa, metrics=metrics))

    def _at_level(
        self, spec: MetricSpec, answer: MetricAnswer | None, level: int
    ) -> MetricAnswer | None:
        scale, pods = self.observation.scale, self.observation.pods
        if not isinstance(scale, Scale):
            return None
        if level > INT64_MAX:
            return None
        if spec.type in ("Object", "External"):
            whole = level if spec.is_by_value else level * max(scale.status_replicas, 1)
            if whole > INT64_MAX:
                return None
            sample = Sample(whole, self.now)
            if spec.type == "Object":
                return ObjectSample(sample, self.now)
            return ExternalSamples([ExternalSample({}, sample)], self.now)
        told = dict(answer.pods) if isinstance(answer, PodSamples) else {}
        names = list(told) or list(pods.names)
        if not names or spec.type not in ("Resource", "ContainerResource", "Pods"):
            return None
        amounts = dict.fromkeys(names, level)
        if spec.average_value_milli is None:
            gates = self.settings.gates
            requests = requests_of(
                pods, spec.name, spec.container, pod_level=gates.pod_level_resources
            )
            if isinstance(requests, RequestProblem):
                requests = dict.fromkeys(names, 1000)  # it says itself that they lack
            amounts = {name: requests.get(name, 0) * level // 100 for name in names}
        return PodSamples(
            {
                name: structs.replace(told[name], value_milli=milli)
                if name in told
                else Sample(milli, self.now)
                for name, milli in amounts.items()
            },
            self.now,
        )

    def varied(self, variation: Variation) -> "Inputs":
        """Return them with a step of the decision left out."""
        return structs.replace(self, variation=variation)

    def _with(self, hpa: HPA) -> "Inputs":
        return self._seen(structs.replace(self.observation, hpa=hpa))

    def _seen(self, observation: Observation) -> "Inputs":
        return structs.replace(self, observation=observation)


def number(
    told: ReadTrace, variation: Variation = ACTUAL, observation: Observation | None = None
) -> int | None:
    """Return the size decided under a variation, or on another observation."""
    inputs = Inputs.of(told.trace)
    seen = inputs.observation if observation is None else observation
    return structs.replace(inputs, observation=seen, variation=variation).decided()


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
