"""Why a new pod got the request or limit that it has.

The first gate that says no; else the last step that changed the value. It stands on the pod:
written by the webhook, read for explanations, and not under ``vpa``, whose annotations the pod
stores keep in memory for every pod.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import decode_json
from podscale.explain.explanation import Explanation, Fact, Facts
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects import vpa as objects
from vpa.admission.patches import resources as sizing
from vpa.admission.patches.boost import boost_of, boosted
from vpa.admission.patches.patch import BoostSettings
from vpa.capping import Capped, LimitRanges
from vpa.explain.words import explanation
from vpa.model.amounts import EMPTY, RESOURCES, controlled_resources, of

REASONS = "podscale.io/admission"
Field = Literal["request", "limit"]
_MOST_BYTES = 16 * 1024  # all annotations of a pod together may have 256 KiB
# The order in which caps are applied; the last one that changed the value is named first.
_CAPS = ("LimitRangeMin", "LimitRangeMax", "MinAllowed", "MaxAllowed", "ContainerLimit")


class ValueQuestion(Struct, frozen=True):
    container: str
    resource: str
    field: Field


class AdmittedPod:
    """What admission makes of one pod, by the VPA that decides; computed once for all values."""

    def __init__(
        self,
        pod: PodView,
        vpa: objects.Vpa,
        ranges: LimitRanges,
        boost: BoostSettings,
        found: sizing.PodResources | sizing.ResourcesUnavailable | None = None,
    ) -> None:
        """``found`` is ``pod_resources``, where it is known already."""
        self._pod, self._vpa, self._ranges, self._boost = pod, vpa, ranges, boost
        self._found = found or sizing.pod_resources(pod, vpa, ranges)
        self._containers: dict[str, int] = {}
        for number, each in enumerate(pod.template.containers):
            self._containers.setdefault(each.name, number)

    def explain(self, question: ValueQuestion) -> Explanation:
        """Return why one value is what it is."""
        resources, is_boosted = self._resources(question.container)
        listed = resources.requests if question.field == "request" else resources.limits
        value = listed.get(question.resource)
        reasons: list[str] = []
        facts: list[Facts] = []
        if question.field == "limit" and value is not None:
            requests, limits = self._pod.requests_and_limits(question.container)
            request, limit = of(requests, question.resource), of(limits, question.resource)
            ratio = limit.nano / request.nano if request.nano and limit.nano else 1.0
            reasons.append("LimitKeptProportional")
            facts.append({"ratio": ratio, "limit": str(limit), "request": str(request)})
        if is_boosted and question.resource == "cpu":
            reasons.append("StartupBoost")
            facts.append(_boost_facts(self._vpa, question.container))
        gate = _gate(question, self._vpa)
        if gate is not None:
            reasons.append(gate[0])
            facts.append(gate[1])
        else:
            self._add_recommendation(question, reasons, facts)
        decision: Facts = {"value": str(value) if value is not None else None}
        return explanation(reasons, facts, decision)

    def _add_recommendation(
        self, question: ValueQuestion, reasons: list[str], facts: list[Facts]
    ) -> None:
        container, resource = question.container, question.resource
        found, item = self._found, self._ranges.pod
        capped = Capped(None) if isinstance(found, sizing.ResourcesUnavailable) else found.capped
        caps = [cap for cap in capped.caps.get(container, ()) if cap.resource == resource]
        caps.sort(key=lambda cap: _CAPS.index(cap.reason), reverse=True)
        reasons += [cap.reason for cap in caps]
        facts += [cap.fact for cap in caps]
        if (container, resource) in capped.pod_range and item is not None:
            reasons.append("PodLimitRange")
            bounds = (("min", item.min), ("max", item.max))
            facts.append({name: str(each[resource]) for name, each in bounds
                          if each is not None and resource in each})  # fmt: skip
        recommended = (self._vpa.status.recommendation or objects.VpaRecommendation()).of(container)
        target = recommended.target if recommended is not None else None
        reasons.append("RecommendationApplied")
        facts.append({"recommended": str(of(target, resource))})

    def _resources(self, container: str) -> tuple[sizing.ContainerResources, bool]:
        # What is set on a container, and whether a boost raised it.
        vpa, found = self._vpa, self._found
        index = self._containers.get(container)
        wanted = sizing.ContainerResources()
        if index is None:
            return wanted, False
        if isinstance(found, sizing.PodResources) and objects.update_mode(vpa) != "Off":
            wanted = found.containers[index]
        if not self._boost.enabled or objects.is_off(vpa.spec.resource_policy, container):
            return wanted, False
        raised = boosted(self._pod.template.containers[index], vpa, wanted, self._boost.max_cpu)
        return (raised, True) if isinstance(raised, sizing.ContainerResources) else (wanted, False)


def _gate(question: ValueQuestion, vpa: objects.Vpa) -> tuple[str, Facts] | None:
    if objects.update_mode(vpa) == "Off":
        return "UpdateModeOff", {"mode": "Off"}
    recommendation = vpa.status.recommendation
    if recommendation is None or not recommendation.container_recommendations:
        return "NoRecommendation", {}
    policy = vpa.spec.resource_policy
    container: Facts = {"container": question.container}
    if objects.is_off(policy, question.container):
        return "ContainerModeOff", container
    found = recommendation.of(question.container)
    if found is None:
        return "NoRecommendationForContainer", container
    entry = objects.container_policy(policy, question.container)
    controlled = controlled_resources(entry)
    if question.resource not in controlled or question.resource not in (found.target or EMPTY):
        return "ResourceNotControlled", {**container, "resource": question.resource}
    if question.field == "limit" and objects.controlled_values(policy, question.container) != (
        "RequestsAndLimits"
    ):
        return "ContainerLimit", {**container, "controlledValues": "RequestsOnly"}
    return None


def _boost_facts(vpa: objects.Vpa, container: str) -> Facts:
    boost = boost_of(vpa, container)
    if boost is None or boost.cpu is None:
        return {}
    facts: dict[str, Fact] = {"type": boost.cpu.type or "Factor"}
    if boost.cpu.factor is not None:
        facts["factor"] = boost.cpu.factor
    if boost.cpu.quantity is not None:
        facts["quantity"] = str(boost.cpu.quantity)
    if boost.cpu.duration_seconds is not None:
        facts["duration_s"] = boost.cpu.duration_seconds
    return facts


class AdmittedValue(Struct, frozen=True):
    """One value of a container, and why it is so; ``value`` None: left as it was."""

    value: str | None
    reasons: tuple[str, ...]
    facts: Mapping[str, Any]


class AdmissionReasons(Struct, frozen=True):
    """What one annotation says."""

    vpa: str
    containers: Mapping[str, Mapping[str, AdmittedValue]]  # by name, then "cpu request", ...

    def explanations(self) -> list[tuple[str, str, Explanation]]:
        """Return container, value's name and explanation, in their order."""
        return [
            (container, name, explanation(value.reasons, [value.facts], {"value": value.value}))
            for container, values in self.containers.items()
            for name, value in values.items()
        ]


class AnnotationWriter:
    """The annotation of a pod that a VPA decides about, made container by container."""

    def __init__(self, vpa: str, view: AdmittedPod) -> None:
        self._vpa = vpa
        self._view = view
        self._containers: dict[str, dict[str, AdmittedValue]] = {}
        self._bytes = 0

    def add(self, container: str) -> bool:
        """Explain one container; False: the annotation would be too long, and there is none.

        A limit stands there only where one is set: without it there is nothing to explain.
        """
        values = self._containers[container] = {}
        for resource in RESOURCES:
            for field in get_args(Field):
                found = self._view.explain(ValueQuestion(container, resource, field))
                value = found.decision["value"]
                if value is not None or field == "request":
                    told = None if value is None else str(value)
                    values[f"{resource} {field}"] = AdmittedValue(told, found.reasons, found.facts)
        self._bytes += len(msgspec.json.encode(values))
        return self._bytes <= _MOST_BYTES

    def value(self) -> str | None:
        """Return the annotation; None if it would be too long."""
        text = msgspec.json.encode(AdmissionReasons(self._vpa, self._containers)).decode()
        return text if len(text) <= _MOST_BYTES else None


def read(annotations: Mapping[str, str] | None) -> AdmissionReasons | None:
    """Return what the webhook wrote; None where it wrote nothing that can be read."""
    text = (annotations or {}).get(REASONS)
    # Whoever may make pods may write it, too: longer, or nested deeper, it is not the webhook's.
    if text is None or len(text) > _MOST_BYTES:
        return None
    try:
        return decode_json(text, AdmissionReasons)
    except msgspec.DecodeError:
        return None
