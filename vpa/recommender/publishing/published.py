"""What goes into a VPA's status: the new recommendation, beside what it must not lose.

Pure. A container or resource without a sample keeps the amounts that were published before
(by an earlier process, whose checkpoint is gone): silence is not zero. Nor does a first
sample lower what was learned from many (``lost``). Where an HPA counts on the CPU, it is the size
of the anchor until that moves, with bounds around it, so that no pod is disturbed for it.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    ResourceList,
    ResourcePolicy,
    Vpa,
    VpaCondition,
    VpaRecommendation,
    container_policy,
    is_off,
)
from vpa.model.api.policy import controlled_resources
from vpa.model.api.quantities import EMPTY, is_in_range
from vpa.model.estimation.estimator import as_quantity
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.model.estimation.status import conditions, node_caps, replace_history, status_wire
from vpa.model.groups import VpaEntry
from vpa.recommender.publishing.lost_history import HeldAmounts


class AnchoredSize(Struct, frozen=True):
    """What a pod is to have; milli-cores."""

    container: str  # "": all containers together
    size: int | None  # None: what was published last
    requests: Mapping[str, int]  # of what counts, by container: also what the VPA does not size
    may_shrink: bool = True  # False: there are not as many pods yet as smaller ones need


def status_of(
    vpa: Vpa,
    entry: VpaEntry,
    trace: RecommendationTrace,
    now: float,
    *,
    pods_matched: bool,
    unsupported: str | None,
    history: VpaCondition | None = None,
    is_young: bool = False,
    has_moved: bool = False,
    held: HeldAmounts | None = None,
    size: AnchoredSize | None = None,
) -> dict[str, Any]:
    """Return the status to write, of the generation that the model knows.

    ``is_young``: too little is known to lower anything, ``held``: to lower these amounts;
    ``has_moved``: what was published before is of another workload; ``size``: what an HPA counts
    on.
    """
    before = vpa.status
    policy = vpa.spec.resource_policy
    published = None if has_moved else before.recommendation
    recommendation = with_kept(trace, published, policy, is_young=is_young)
    if held is not None:
        recommendation = _not_below(recommendation, held.amounts, policy)
    if size is not None:
        recommendation = anchored(recommendation, published, size)
    found = conditions(
        before.conditions or (),
        now,
        has_recommendation=bool(recommendation.container_recommendations),
        pods_matched=pods_matched,
        unsupported=unsupported,
        no_samples=trace.no_samples,
        node_caps=node_caps(trace),
        mistakes=[f"{mistake.annotation}: {mistake.message}" for mistake in entry.mistakes],
        history=history,
        lost=held.message if held is not None else None,
    )
    shown = recommendation if recommendation.container_recommendations else None
    return status_wire(shown, found, entry.vpa.metadata.generation)


def with_history(vpa: Vpa, history: VpaCondition, now: float) -> dict[str, Any]:
    """Return the status as it is, with the condition that tells of history."""
    before = vpa.status
    found = replace_history(before.conditions or (), history, now)
    return status_wire(before.recommendation, found, before.observed_generation)


def with_kept(
    trace: RecommendationTrace,
    before: VpaRecommendation | None,
    policy: ResourcePolicy | None,
    *,
    is_young: bool = False,
) -> VpaRecommendation:
    """Return the new entries, completed from those published before, sorted by name."""
    new = {e.container_name: e for e in trace.recommendation.container_recommendations or ()}
    silent = set(trace.no_samples)
    for old in (before.container_recommendations if before is not None else None) or ():
        name = old.container_name
        if is_off(policy, name) or not (name in new or name in silent or not trace.containers):
            continue
        entry = new.get(name) or ContainerRecommendation(name)
        controlled = controlled_resources(container_policy(policy, name))
        new[name] = _completed(entry, old, controlled, is_young=is_young)
    entries = (new[name] for name in sorted(new))
    return VpaRecommendation(
        container_recommendations=tuple(entry for entry in entries if entry.target is not None)
    )


def _not_below(
    new: VpaRecommendation, floor: VpaRecommendation, policy: ResourcePolicy | None
) -> VpaRecommendation:
    def raised(entry: ContainerRecommendation) -> ContainerRecommendation:
        least = floor.of(entry.container_name)
        if least is None:
            return entry
        controlled = controlled_resources(container_policy(policy, entry.container_name))
        return _completed(entry, least, controlled, is_young=True)

    entries = new.container_recommendations or ()
    return VpaRecommendation(container_recommendations=tuple(raised(entry) for entry in entries))


def _completed(
    new: ContainerRecommendation,
    old: ContainerRecommendation,
    controlled: tuple[str, ...],
    *,
    is_young: bool,
) -> ContainerRecommendation:
    def filled(field: str, present: ResourceList | None) -> ResourceList | None:
        # Whoever may write statuses may have written what no container can have.
        earlier: ResourceList | None = getattr(old, field)
        kept = {
            name: value
            for name, value in (earlier or EMPTY).items()
            if name in controlled and is_in_range(name, value)
        }
        both = ResourceList({**kept, **(present or {})})
        if is_young:
            for name, value in kept.items():
                both[name] = max(both[name], value, key=lambda each: each.nano)
        return both or present

    completed = new.mapped(filled)
    if completed.target is None and not controlled:
        return structs.replace(completed, target=EMPTY)  # the entry stays, without amounts
    return completed


def anchored(
    new: VpaRecommendation, before: VpaRecommendation | None, wanted: AnchoredSize
) -> VpaRecommendation:
    """Return ``new`` with targets of CPU that add up to the size; those published before, where
    they do."""
    entries = new.container_recommendations or ()
    measured = {
        entry.container_name: entry.target["cpu"].milli
        for entry in entries
        if entry.target and "cpu" in entry.target and wanted.container in ("", entry.container_name)
    }
    published = {
        name: old.target["cpu"].milli
        for name in measured
        if before is not None and (old := before.of(name)) and old.target and "cpu" in old.target
    }
    targets = {**measured, **published}
    if wanted.size is not None:
        others = sum(each for name, each in wanted.requests.items() if name not in measured)
        size = max(wanted.size - others, len(measured))
        waits = sum(published.values()) > size and not wanted.may_shrink
        if sum(targets.values()) != size and not waits:
            targets = _divided(measured, size)
    return VpaRecommendation(
        container_recommendations=tuple(
            _with_target(entry, targets[entry.container_name])
            if entry.container_name in targets
            else entry
            for entry in entries
        )
    )


def _divided(measured: dict[str, int], size: int) -> dict[str, int]:
    total = sum(measured.values())
    if not total:
        return measured
    found = {name: max(size * amount // total, 1) for name, amount in measured.items()}
    largest = max(found, key=lambda name: found[name])
    found[largest] += size - sum(found.values())  # what rounding left
    return found


def _with_target(entry: ContainerRecommendation, milli: int) -> ContainerRecommendation:
    def bounded(bound: ResourceList | None, *, is_upper: bool) -> ResourceList:
        present = dict(bound or {})
        found = present.get("cpu", target)
        pick = max if is_upper else min
        return ResourceList({**present, "cpu": pick(found, target, key=lambda each: each.nano)})

    target = as_quantity("cpu", milli)
    return structs.replace(
        entry,
        target=ResourceList({**(entry.target or {}), "cpu": target}),
        lower_bound=bounded(entry.lower_bound, is_upper=False),
        upper_bound=bounded(entry.upper_bound, is_upper=True),
    )
