"""Why a new pod got the request or limit that it has.

The first gate that says no; else the last step that changed the value.
"""

from typing import Literal

from msgspec import Struct

from podscale.core.quantity import Quantity
from vpa.admission.patches.boost import BoostInvalid, boost_of, boosted
from vpa.admission.patches.patch import BoostSettings
from vpa.admission.patches.resources import (
    ContainerResources,
    PodResources,
    ResourcesUnavailable,
    pod_resources,
)
from vpa.capping.processor import Capped, LimitRanges
from vpa.explain.explanation import Fact, Facts, SizingExplanation, explanation
from vpa.model.api.objects import (
    SizedPod,
    Vpa,
    VpaRecommendation,
    container_policy,
    controlled_values,
    is_off,
    requests_and_limits,
    update_mode,
)
from vpa.model.api.policy import controlled_resources
from vpa.model.api.quantities import EMPTY, of

# The order in which caps are applied; the last one that changed the value is named first.
_CAPS = ("LimitRangeMin", "LimitRangeMax", "MinAllowed", "MaxAllowed", "ContainerLimit")


class ValueQuestion(Struct, frozen=True):
    container: str
    resource: str
    field: Literal["request", "limit"]


class AdmittedPod:
    """What admission makes of one pod, by the VPA that decides; computed once for all values."""

    def __init__(
        self,
        pod: SizedPod,
        vpa: Vpa,
        ranges: LimitRanges,
        boost: BoostSettings,
        found: PodResources | ResourcesUnavailable | None = None,
    ) -> None:
        """``found`` is ``pod_resources``, where it is known already."""
        self._pod, self._vpa, self._ranges, self._boost = pod, vpa, ranges, boost
        self._found = found or pod_resources(pod, vpa, ranges)
        self._containers: dict[str, int] = {}
        for number, each in enumerate(pod.spec.containers):
            self._containers.setdefault(each.name, number)

    def explain(self, question: ValueQuestion) -> SizingExplanation:
        """Return why one value is what it is."""
        resources = self.resources(question.container)
        value = _value(resources.set, question)
        decision: Facts = {"value": str(value) if value is not None else None}
        raised = resources.boosted and question.resource == "cpu"
        capped = (
            Capped(None) if isinstance(self._found, ResourcesUnavailable) else self._found.capped
        )
        reasons, facts = _reasons(
            question, self._pod, self._vpa, self._ranges, capped, resources, raised
        )
        return explanation(reasons, facts, decision)

    def resources(self, container: str) -> "_Resources":
        """Return what is set on a container."""
        vpa, found = self._vpa, self._found
        index = self._containers.get(container)
        wanted = ContainerResources()
        if index is None:
            return _Resources(wanted, False)
        if isinstance(found, PodResources) and update_mode(vpa) != "Off":
            wanted = found.containers[index]
        if not self._boost.enabled or is_off(vpa.spec.resource_policy, container):
            return _Resources(wanted, False)
        raised = boosted(self._pod.spec.containers[index], vpa, wanted, self._boost.max_cpu)
        if raised is None or isinstance(raised, BoostInvalid):
            return _Resources(wanted, False)
        return _Resources(raised, True)


class _Resources(Struct, frozen=True):
    # What admission sets on the container asked for.
    set: ContainerResources
    boosted: bool


def _value(resources: ContainerResources, question: ValueQuestion) -> Quantity | None:
    listed = resources.requests if question.field == "request" else resources.limits
    return listed.get(question.resource)


def _reasons(
    question: ValueQuestion,
    pod: SizedPod,
    vpa: Vpa,
    ranges: LimitRanges,
    capped: Capped,
    resources: _Resources,
    raised: bool,
) -> tuple[list[str], list[Facts]]:
    reasons: list[str] = []
    facts: list[Facts] = []
    requests, limits = requests_and_limits(pod, question.container)
    if question.field == "limit" and question.resource in resources.set.limits:
        request, limit = of(requests, question.resource), of(limits, question.resource)
        ratio = limit.nano / request.nano if request.nano and limit.nano else 1.0
        reasons.append("LimitKeptProportional")
        facts.append({"ratio": ratio, "limit": str(limit), "request": str(request)})
    if raised:
        reasons.append("StartupBoost")
        facts.append(_boost_facts(vpa, question.container))
    gate = _gate(question, vpa)
    if gate is not None:
        reasons.append(gate[0])
        facts.append(gate[1])
        return reasons, facts
    caps = [
        cap for cap in capped.caps.get(question.container, ()) if cap.resource == question.resource
    ]
    caps.sort(key=lambda cap: _CAPS.index(cap.reason), reverse=True)
    reasons += [cap.reason for cap in caps]
    facts += [cap.fact for cap in caps]
    _add_pod_range(question, capped, ranges, reasons, facts)
    recommendation = vpa.status.recommendation or VpaRecommendation()
    recommended = recommendation.of(question.container)
    target = (recommended.target if recommended is not None else None) or EMPTY
    facts.append({"recommended": str(of(target, question.resource))})
    reasons.append("RecommendationApplied")
    return reasons, facts


def _add_pod_range(
    question: ValueQuestion,
    capped: Capped,
    ranges: LimitRanges,
    reasons: list[str],
    facts: list[Facts],
) -> None:
    if (question.container, question.resource) not in capped.pod_range or ranges.pod is None:
        return
    reasons.append("PodLimitRange")
    bounds: dict[str, Fact] = {}
    for name, listed in (("min", ranges.pod.min), ("max", ranges.pod.max)):
        if question.resource in (listed or EMPTY):
            bounds[name] = str(of(listed, question.resource))
    facts.append(bounds)


def _gate(question: ValueQuestion, vpa: Vpa) -> tuple[str, Facts] | None:
    if update_mode(vpa) == "Off":
        return "UpdateModeOff", {"mode": "Off"}
    recommendation = vpa.status.recommendation
    if recommendation is None or not recommendation.container_recommendations:
        return "NoRecommendation", {}
    policy = vpa.spec.resource_policy
    container: Facts = {"container": question.container}
    if is_off(policy, question.container):
        return "ContainerModeOff", container
    found = recommendation.of(question.container)
    if found is None:
        return "NoRecommendationForContainer", container
    entry = container_policy(policy, question.container)
    controlled = controlled_resources(entry)
    if question.resource not in controlled or question.resource not in (found.target or EMPTY):
        return "ResourceNotControlled", {**container, "resource": question.resource}
    if question.field == "limit" and controlled_values(policy, question.container) != (
        "RequestsAndLimits"
    ):
        return "ContainerLimit", {**container, "controlledValues": "RequestsOnly"}
    return None


def _boost_facts(vpa: Vpa, container: str) -> Facts:
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
