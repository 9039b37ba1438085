"""What goes into a VPA's status: the new recommendation, beside what it must not lose.

Pure. A container or resource without a sample keeps the amounts that were published before
(by an earlier process, whose checkpoint is gone): silence is not zero.
"""

from collections.abc import Mapping
from typing import Any

from vpa.model.conditions import History, conditions, told
from vpa.model.entries import VpaEntry
from vpa.model.objects import (
    ContainerRecommendation,
    Recommendation,
    ResourcePolicy,
    Vpa,
    container_policy,
    is_off,
)
from vpa.model.policy import Windows, settings_of
from vpa.model.quantities import ResourceList
from vpa.model.recommendation import RecommendationTrace
from vpa.model.status import node_caps, status_wire


def status_of(
    vpa: Vpa,
    entry: VpaEntry,
    trace: RecommendationTrace,
    now: float,
    *,
    pods_matched: bool,
    unsupported: str | None,
    history: History | None = None,
    is_young: bool = False,
    has_moved: bool = False,
) -> dict[str, Any]:
    """Return the status to write, of the generation that the model knows.

    ``is_young``: too little is known to lower anything; ``has_moved``: what was published
    before is of another workload.
    """
    before = vpa.status
    policy = vpa.spec.resource_policy
    published = None if has_moved else before.recommendation
    recommendation = with_kept(trace, published, policy, is_young=is_young)
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
    )
    shown = recommendation if recommendation.container_recommendations else None
    return status_wire(shown, found, entry.vpa.metadata.generation)


def with_history(vpa: Vpa, history: History, now: float) -> dict[str, Any]:
    """Return the status as it is, with the condition that tells of history."""
    before = vpa.status
    found = told(before.conditions or (), history, now)
    return status_wire(before.recommendation, found, before.observed_generation)


def with_kept(
    trace: RecommendationTrace,
    before: Recommendation | None,
    policy: ResourcePolicy | None,
    *,
    is_young: bool = False,
) -> Recommendation:
    """Return the new entries, completed from those published before, sorted by name."""
    new = {e.container_name: e for e in trace.recommendation.container_recommendations or ()}
    silent = set(trace.no_samples)
    for old in (before.container_recommendations if before is not None else None) or ():
        name = old.container_name
        if is_off(policy, name) or not (name in new or name in silent or not trace.containers):
            continue
        controlled = settings_of(
            container_policy(policy, name), Windows(), per_vpa_config=False
        ).controlled_resources
        entry = new.get(name) or ContainerRecommendation(name)
        new[name] = _completed(entry, old, controlled, is_young=is_young)
    entries = (new[name] for name in sorted(new))
    return Recommendation(
        container_recommendations=tuple(entry for entry in entries if entry.target)
    )


def _completed(
    new: ContainerRecommendation,
    old: ContainerRecommendation,
    controlled: tuple[str, ...],
    *,
    is_young: bool,
) -> ContainerRecommendation:
    def filled(
        present: ResourceList | None, earlier: Mapping[str, Any] | None
    ) -> ResourceList | None:
        kept = {name: value for name, value in (earlier or {}).items() if name in controlled}
        both = ResourceList({**kept, **(present or {})})
        if is_young:
            for name, value in kept.items():
                both[name] = max(both[name], value, key=lambda each: each.nano)
        return both or None

    return ContainerRecommendation(
        new.container_name,
        filled(new.target, old.target),
        filled(new.lower_bound, old.lower_bound),
        filled(new.upper_bound, old.upper_bound),
        filled(new.uncapped_target, old.uncapped_target),
    )
