"""The inputs of a decision with one thing changed: what an explanation promises is tried on them.

Levels are in a metric's own unit: percent of the request, or milli-units a pod, or of the whole.
"""

from typing import Literal

from msgspec import Struct, structs

from hpa.decide import Observation, Scale, decide
from hpa.decide.api.spec import HPA, MetricSpec
from hpa.decide.decision import Trace
from hpa.decide.metrics.requests import RequestProblem, requests_of
from hpa.decide.numbers import INT64_MAX
from hpa.decide.observation import MetricAnswer, Past, Recommendation
from hpa.decide.settings import Settings
from hpa.decide.variation import ACTUAL, Variation
from podscale.core.metrics import ExternalSample, ExternalSamples, ObjectSample, PodSamples, Sample


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
        """Return the trace of the decision on them."""
        made = decide(self.observation, self.past, self.settings, self.now, self.variation)
        return made.trace

    def decided(self) -> int | None:
        """Return the size decided on them."""
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
        """Return them with the target at that size."""
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
        templates = tuple(
            structs.replace(
                template,
                containers=tuple(
                    structs.replace(each, requests={resource: 1000} | dict(each.requests))
                    for each in template.containers
                ),
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
