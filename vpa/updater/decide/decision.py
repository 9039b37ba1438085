"""What the updater does with one pod, and why: every gate in one order.

The controller acts on the answer and ``explain`` shows it; both run this function on the
same observation, so they cannot disagree.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from podscale.core.disruptions import DisruptionPace
from podscale.core.pod_state import PodPhase
from podscale.core.quantity import Quantity
from podscale.explain.explanation import Fact, Facts
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import Vpa, VpaRecommendation, update_mode
from vpa.admission.matching import seniority
from vpa.admission.patches import resources as sizing
from vpa.capping import Capped, LimitRanges
from vpa.updater.decide import priority, resize
from vpa.updater.decide.disruption_budget import DisruptionBudget, PodGroup, TooFew
from vpa.updater.decide.priority import Due, UpdaterSettings
from vpa.updater.decide.resize import Action


class AdmissionLease(Struct, frozen=True):
    """The Lease that the admission webhook renews; unix seconds, None: never."""

    name: str
    created_s: float | None
    renewed_s: float | None

    @property
    def was_read(self) -> bool:
        """Whether there is one that could be read; every object was made some time."""
        return self.created_s is not None or self.renewed_s is not None

    def age_s(self, now: float) -> float:
        """Return seconds since the last sign of life; infinite if there is none."""
        signs = [sign for sign in (self.created_s, self.renewed_s) if sign is not None]
        return now - max(signs) if signs else float("inf")

    def is_alive(self, now: float, timeout_s: float) -> bool:
        """Return whether the Lease was made or renewed less than the timeout ago."""
        return self.age_s(now) < timeout_s


class Pdb(Struct, frozen=True):
    """What the PodDisruptionBudget of the pod says to an eviction now."""

    name: str
    refuses: bool


class UpdatedPod(Struct, frozen=True):
    """One pod and what surrounds it, as seen in this loop."""

    pod: PodView
    vpa: Vpa
    rivals: tuple[Vpa, ...] = ()  # other VPAs that match the pod
    ranges: LimitRanges = LimitRanges()
    resize_since_s: float = 0.0  # for how long the updater has seen the pod's resize
    was_refused: VpaRecommendation | None = None  # a size that the node could not give
    allocatable: Mapping[str, Quantity] | None = None  # of the pod's node
    pdb: Pdb | None = None
    disrupted_today: int = 0  # pods of this VPA
    held_by: str | None = None  # what ended the turn of the pod's group
    unsized_s: float | None = None  # evicted pods came back unsized: tried again in so long


class LoopView(Struct, frozen=True):
    """What is the same for all pods of the loop."""

    now: float
    lease: AdmissionLease | None  # None: the check is switched off
    lease_timeout_s: float = 60.0
    present: float | None = None  # where the loop has lasted: windows close meanwhile


class UpdateDecision(Struct, frozen=True):
    """What to do with the pod; ``reasons`` are tokens, the one to name first in front."""

    action: Action
    reasons: tuple[str, ...]
    facts: Facts
    record_infeasible: bool = False
    due: Due | None = None
    resources: tuple[sizing.ContainerResources, ...] = ()  # what the pod should get


class AppliedDecision(Struct, frozen=True):
    """What was done to a pod, and the decision that it carried out."""

    at: float
    in_place: bool  # False: evicted, which a resize that was refused may end in
    decision: UpdateDecision


class PodDecision(Struct, frozen=True):
    """What the updater last said about a pod."""

    pod: str
    time: float
    decision: UpdateDecision
    act: AppliedDecision | None = None  # the last decision that was carried out


def decide_update(
    view: UpdatedPod,
    budget: DisruptionBudget,
    loop: LoopView,
    settings: UpdaterSettings,
    pace: DisruptionPace,
) -> UpdateDecision:
    """Return the decision about one pod; ``budget`` counts what this loop has begun.

    A gate that says no ends it; ``reasons`` then begin with that gate, and name why the
    pod would have been updated where that was known by then.
    """
    vpa, pod = view.vpa, view.pod
    mode = update_mode(vpa)
    if loop.lease is not None and not loop.lease.is_alive(loop.now, loop.lease_timeout_s):
        age = loop.lease.age_s(loop.now)
        return _no("AdmissionNotAlive", {"lease": loop.lease.name, "age_s": age})
    if mode in ("Off", "Initial"):
        return _no(f"UpdateMode{mode}", {"mode": mode})
    if not resize.updates(mode, in_place_gate=settings.in_place):
        # Mode InPlace without its gate is switched off as upstream has it, not Recreate.
        return _no("UpdateModeOff", {"mode": mode, "feature_gate": "InPlace"})
    eldest = min((vpa, *view.rivals), key=seniority)
    if eldest is not vpa:
        return _no("OlderVpaWins", {"vpa": eldest.metadata.name})
    if not (vpa.status.recommendation or VpaRecommendation()).container_recommendations:
        return _no("NoRecommendation", {})
    wanted = sizing.pod_resources(pod, vpa, view.ranges)
    if isinstance(wanted, sizing.ResourcesUnavailable):
        return _no("NoRecommendation", {"message": wanted.message})
    capped = wanted.capped
    if not changes(pod, wanted.containers):
        return _no("NothingToChange", _cap_facts(capped), *_cap_reasons(capped))
    # What admission would not set, nobody is disturbed for.
    barred = sizing.refused(pod, wanted.containers, view.ranges)
    if barred is not None:
        reason = "NoRecommendation" if barred.reason == sizing.REFUSED else barred.reason
        return _no(reason, {"message": barred.message})
    due = priority.due(pod, vpa, capped.recommendation, settings, loop.now)
    why = _due_facts(due, settings)
    if not due.is_due:
        return _no(due.reason, why)
    policy = vpa.spec.update_policy
    unmet = priority.unmet(
        pod, capped.recommendation, policy.eviction_requirements if policy is not None else None
    )
    if unmet is not None:
        resources = ", ".join(unmet.resources)
        facts: dict[str, Fact] = {"changeRequirement": unmet.change_requirement}
        facts["resources"] = resources
        return _no("EvictionRequirementNotMet", {**facts, **why}, due.reason)
    group = budget.group(pod)
    if not isinstance(group, PodGroup):
        return _no("TooFewReplicas", {**_group_facts(group), **why}, due.reason)
    held = view.held_by or pace.allows(
        loop.now if loop.present is None else loop.present, view.disrupted_today
    )
    if held is not None:
        return _no("BudgetExhausted", {"held_by": held, **why}, due.reason)
    gate = _Gate(view, budget, group, settings, due, why, wanted.containers, capped.recommendation)
    if resize.wants_in_place(mode, in_place_gate=settings.in_place):
        return gate.in_place()
    return gate.evict()


def changes(pod: PodView, wanted: Sequence[sizing.ContainerResources]) -> bool:
    """Return whether any container would have other requests or limits than it has now."""
    return any(
        resources.beyond(*pod.requests_and_limits(container.name)).is_set
        for container, resources in zip(pod.template.containers, wanted, strict=True)
    )


def asks_anew(pod: PodView, wanted: Sequence[sizing.ContainerResources]) -> bool:
    """Return whether any container would get other requests or limits than its spec asks
    for, which are those of the last resize.
    """
    return any(
        resources.beyond(container.requests, container.limits).is_set
        for container, resources in zip(pod.template.containers, wanted, strict=True)
    )


class _Gate(Struct, frozen=True):
    # The gates after the pod is known to be due: resize, budget, PodDisruptionBudget.

    view: UpdatedPod
    budget: DisruptionBudget
    group: PodGroup
    settings: UpdaterSettings
    due: Due
    why: Facts
    wanted: tuple[sizing.ContainerResources, ...]
    capped: VpaRecommendation | None

    @property
    def state(self) -> resize.ResizeState:
        return resize.state_of(self.view.pod)

    def in_place(self) -> UpdateDecision:
        view = self.view
        # A lower recommendation that the namespace raises again asks the node for no less.
        tried = any(
            priority.was_tried(view.vpa, recommendation, view.was_refused)
            for recommendation in (view.vpa.status.recommendation, self.capped)
        )
        step = resize.can_update_in_place(
            view.pod,
            view.vpa,
            self.budget,
            self.settings,
            has_recommendation=True,
            was_tried=tried,
            since_s=view.resize_since_s,
        )
        if step == "InPlaceInfeasibleCached":
            return self._no(["ResizeInfeasible"], self._resize_facts())
        if view.pod.phase == PodPhase.PENDING:
            # Nothing runs yet that could be resized, or whose resize could have failed; the
            # kubelet starts it with its requests.
            return self._no(["ResizeDeferred"], {"phase": "Pending"})
        is_revised = self._is_revised()
        if self.state != "ResizeNone" and not is_revised:
            return self._resizing(step)
        refusal = resize.refusal(view.pod, self.wanted, view.allocatable)
        if refusal is not None:
            facts: dict[str, Fact] = {**refusal.facts, "message": refusal.message}
            if update_mode(view.vpa) == "InPlace":
                return self._no([refusal.reason], facts)
            return self.evict(refusal.reason, facts)
        if not resize.has_room(view.pod, self.budget, self.group, self.settings):
            return self._no(["BudgetExhausted"], self._budget_facts())
        if is_revised:
            return self._go("resize", [self.due.reason, self._state_reason()], self._resize_facts())
        return self._go("resize", [self.due.reason], {})

    def evict(self, fallback: str | None = None, facts: Facts | None = None) -> UpdateDecision:
        """Evict, or say what forbids it; ``fallback`` is why no resize was possible."""
        first = [fallback] if fallback is not None else []
        given = dict(facts or {})
        view = self.view
        pending = view.pod.phase == PodPhase.PENDING
        if self.group.only_unboosts or (not pending and self.group.eviction_forbidden):
            return self._no([*first, "TooFewReplicas"], {**given, **_group_facts(self.group)})
        overdue = resize.is_overdue(self.state, view.resize_since_s)
        if not pending and self.state != "ResizeNone" and not overdue and fallback is None:
            return self._no([self._state_reason()], self._resize_facts())
        if view.unsized_s is not None:
            given |= {"held_by": "PodsReturnUnsized", "again_s": view.unsized_s}
            return self._no([*first, "AdmissionNotAlive"], given)
        if not pending and not self.budget.allows(self.group):
            return self._no([*first, "BudgetExhausted"], {**given, **self._budget_facts()})
        if view.pdb is not None and view.pdb.refuses:
            return self._no([*first, "PdbRefuses"], {**given, "pdb": view.pdb.name})
        if fallback is not None:
            return self._go("evict", [fallback, "FellBackToEviction", self.due.reason], given)
        return self._go("evict", [self.due.reason], given)

    def _is_revised(self) -> bool:
        # Mode InPlace waits for ever for a resize, but not for one that nobody wants any
        # more. The API server takes another size at any time, and the kubelet works towards
        # the last one; the same size once more would only be noise (D4). An infeasible
        # resize has a record, which says what is worth a try.
        waits = self.state not in ("ResizeNone", "ResizeInfeasible")
        pod = self.view.pod
        return waits and update_mode(self.view.vpa) == "InPlace" and asks_anew(pod, self.wanted)

    def _resizing(self, step: resize.InPlace) -> UpdateDecision:
        reason, facts = self._state_reason(), self._resize_facts()
        if step == "InPlaceInfeasible":
            decision = self._go("resize", [reason, self.due.reason], facts)
            return structs.replace(decision, record_infeasible=True)
        in_place_only = update_mode(self.view.vpa) == "InPlace"
        overdue = resize.is_overdue(self.state, self.view.resize_since_s)
        if in_place_only or not overdue:
            return self._no([reason], facts)
        return self.evict(reason, facts)

    def _state_reason(self) -> str:
        # An unknown condition of the kubelet is treated, and named, as an error.
        return "ResizeError" if self.state == "ResizeUnknown" else self.state

    def _resize_facts(self) -> dict[str, Fact]:
        facts: dict[str, Fact] = {"since_s": self.view.resize_since_s}
        limit = resize.limit_s(self.state)
        if limit:
            facts["limit_s"] = limit
        message = resize.message_of(self.view.pod)
        if message:
            facts["message"] = message
        return facts

    def _budget_facts(self) -> dict[str, Fact]:
        group, begun = self.group, self.budget.disrupted(self.group)
        facts: dict[str, Fact] = {**_group_facts(group), "disrupted": begun}
        lost = self.budget.lost(group)
        return {**facts, "lost": lost} if lost else facts

    def _no(self, reasons: Sequence[str], facts: Facts) -> UpdateDecision:
        return self._go("none", [*reasons, self.due.reason], facts)

    def _go(self, action: Action, reasons: Sequence[str], facts: Facts) -> UpdateDecision:
        return UpdateDecision(
            action,
            tuple(dict.fromkeys(reasons)),
            {**self.why, **facts},
            due=self.due,
            resources=self.wanted,
        )


def _no(reason: str, facts: Facts, *also: str) -> UpdateDecision:
    return UpdateDecision("none", tuple(dict.fromkeys((reason, *also))), dict(facts))


def _group_facts(group: PodGroup | TooFew | None) -> dict[str, Fact]:
    if group is None:
        return {"live": 0}
    facts: dict[str, Fact] = {"live": group.live, "required": group.required}
    facts["owner"] = f"{group.owner.kind}/{group.owner.name}"
    if isinstance(group, PodGroup):
        facts |= {
            "configured": group.configured,
            "replicas": group.configured,
            "running": group.running,
            "pending": group.pending,
            "tolerance": group.tolerance,
        }
    return facts


def _due_facts(due: Due, settings: UpdaterSettings) -> dict[str, Fact]:
    facts: dict[str, Fact] = {
        "threshold": settings.update_threshold,
        "difference": due.priority.resource_diff,
        "lifetime_s": settings.lifetime_s,
    }
    if due.age_s is not None:
        facts["age_s"] = due.age_s
    outside = due.outside
    if outside is not None:
        facts |= {
            "container": outside.container,
            "resource": outside.resource,
            "request": str(outside.request) if outside.request is not None else None,
        }
        for name, bound in (("lowerBound", outside.lower), ("upperBound", outside.upper)):
            if bound is not None:
                facts[name] = str(bound)
    if due.oom is not None:
        facts |= {
            "container": due.oom.container,
            "ran_s": due.oom.ran_s,
            "threshold_s": due.oom.threshold_s,
        }
    return facts


def _cap_reasons(capped: Capped) -> list[str]:
    reasons = [cap.reason for caps in capped.caps.values() for cap in caps]
    return [*reasons, *(["PodLimitRange"] if capped.pod_range else [])]


def _cap_facts(capped: Capped) -> dict[str, Fact]:
    return {
        name: limit
        for caps in capped.caps.values()
        for cap in caps
        for name, limit in cap.fact.items()
    }
