"""What goes into a VPA's status: the new recommendation, beside what it must not lose. Pure.

A container or resource without a sample keeps the amounts that were published before
(by an earlier process, whose checkpoint is gone): silence is not zero. Nor does a first
sample lower what was learned from many: where a checkpoint is missing or damaged, or Prometheus has
forgotten, the samples in the model begin later than the recommendation in the status was made, and
the larger of both amounts is published until a day is known again. Where an HPA counts on the CPU,
it is the size of the anchor until that moves, with bounds around it, so that no pod is disturbed.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
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
from vpa.model.amounts import EMPTY, RESOURCES, allowed, capped, controlled_resources, is_in_range
from vpa.model.cluster import ClusterModel
from vpa.model.estimation import status
from vpa.model.estimation.estimator import as_quantity
from vpa.model.estimation.recommendation import RecommendationTrace
from vpa.model.groups import VpaEntry
from vpa.model.recommendations import RecommendationReader
from vpa.model.samples.membership import VpaKey

_DAY_S = 86400.0
# Clocks differ: a first sample may be stamped later than the condition that it brought about.
_APART_S = 300.0

Place = tuple[str, str]  # container and resource


class HeldAmounts(Struct, frozen=True):
    """Amounts below which nothing is published yet, and why."""

    amounts: VpaRecommendation
    message: str
    until_s: Mapping[Place, float]  # when a day will be known again


class _Published(Struct, frozen=True):
    # What a VPA's status said when this process saw it first.
    at_s: float
    since_s: float | None  # when RecommendationProvided became true
    recommendation: VpaRecommendation
    was_known: frozenset[Place]  # those with samples from checkpoints or Prometheus
    was_lost: bool  # by an earlier process's condition; checkpoints since then begin late, too

    def is_lost(self, place: Place, begins_s: float) -> bool:
        if place in self.was_known:
            # A container that came later than the recommendation has lost nothing.
            return self.was_lost and self.since_s is not None and begins_s > self.since_s + _APART_S
        # Samples from before this process saw the VPA were loaded after all: nothing is lost.
        return begins_s > self.at_s - _APART_S


class LostHistory:
    """What was published of each VPA, until it is shown that its history is there."""

    def __init__(self, cluster: ClusterModel, reader: RecommendationReader) -> None:
        self._cluster, self._reader = cluster, reader
        self._met: dict[VpaKey, str] = {}  # uids: a VPA that is made anew has lost nothing
        # Those of which it is not yet shown that nothing was lost.
        self._open: dict[VpaKey, tuple[_Published, set[Place]]] = {}

    def meet(self, vpas: Iterable[tuple[VpaKey, Vpa]], now: float) -> None:
        """Remember what is published of VPAs that are new here.

        To be called with everything loaded, and before the first live sample.
        """
        new = [(key, vpa) for key, vpa in vpas if self._met.get(key) != vpa.metadata.uid]
        begins = self._reader.begins() if new else None
        for key, vpa in new:
            self._met[key] = vpa.metadata.uid
            self._open.pop(key, None)
            entries = _entries(vpa.status.recommendation)
            places = {
                (entry.container_name, resource)
                for entry in entries
                for resource in RESOURCES
                if resource in (entry.target or ())
            }
            if not places or begins is None:
                continue
            known = frozenset(place for place in places if begins.of(key, *place) is not None)
            recommendation = VpaRecommendation(entries)
            since_s, was_lost = _provided_since(vpa), _was_lost(vpa)
            found = _Published(now, since_s, recommendation, known, was_lost)
            self._open[key] = found, places

    def held(self, now: float) -> dict[VpaKey, HeldAmounts]:
        """Return what must not be published lower yet, of VPAs that lost their history."""
        found: dict[VpaKey, HeldAmounts] = {}
        begins = self._reader.begins() if self._open else None
        for key in list(self._open) if begins is not None else ():
            published, places = self._open[key]
            entry = self._cluster.vpas.get(key)
            if entry is None or begins is None:
                continue
            lost: dict[Place, float] = {}
            for place in sorted(places):
                first_s = begins.of(key, *place)
                if first_s is None:
                    continue  # no sample yet: what was published stays in any case
                if published.is_lost(place, first_s) and now < first_s + _DAY_S:
                    lost[place] = first_s
                else:
                    places.discard(place)
            if not places:
                del self._open[key]
            if lost:
                found[key] = _held(entry, published.recommendation, lost)
        return found

    def moved(self, key: VpaKey) -> None:
        """Let go what was published before the VPA got another target."""
        self._open.pop(key, None)

    def forget(self, key: VpaKey) -> None:
        """Drop a VPA that is gone."""
        self._met.pop(key, None)
        self._open.pop(key, None)


def _held(
    entry: VpaEntry, published: VpaRecommendation, lost: Mapping[Place, float]
) -> HeldAmounts:
    containers = {container for container, _ in lost}
    amounts = [
        _fitted(entry, each, lost)
        for each in _entries(published)
        if each.container_name in containers
    ]
    told = "; ".join(
        f"{resource} of {container} until {_text(first_s + _DAY_S)}, what is known begins "
        f"{_text(first_s)}"
        for (container, resource), first_s in lost.items()
    )
    message = f"history is lost, nothing goes below what was published before: {told}"
    until_s = {place: first_s + _DAY_S for place, first_s in lost.items()}
    return HeldAmounts(VpaRecommendation(tuple(amounts)), message, until_s)


def _fitted(
    entry: VpaEntry, published: ContainerRecommendation, lost: Mapping[Place, float]
) -> ContainerRecommendation:
    # A policy that was changed meanwhile is heeded.
    name = published.container_name
    policy = container_policy(entry.vpa.spec.resource_policy, name)
    bounds = allowed(policy, entry.settings.recommender.max_allowed)
    anything = allowed(None, EMPTY)

    def fitted(field: str, amounts: ResourceList | None) -> ResourceList | None:
        within = anything if field == "uncapped_target" else bounds
        return ResourceList(
            (resource, capped(resource, value, within)[0])
            for resource, value in (amounts or EMPTY).items()
            if (name, resource) in lost
        ) or None  # fmt: skip

    return published.mapped(fitted)


def _entries(recommendation: VpaRecommendation | None) -> tuple[ContainerRecommendation, ...]:
    return (recommendation.container_recommendations if recommendation else None) or ()


def _provided_since(vpa: Vpa) -> float | None:
    for condition in vpa.status.conditions or ():
        if condition.type == "RecommendationProvided" and condition.status == "True":
            return condition.last_transition_time
    return None


def _was_lost(vpa: Vpa) -> bool:
    return any(
        (each.type, each.status, each.reason) == ("LowConfidence", "True", status.HISTORY_LOST)
        for each in vpa.status.conditions or ()
    )


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%MZ")


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
    found = status.conditions(
        before.conditions or (),
        now,
        has_recommendation=bool(recommendation.container_recommendations),
        pods_matched=pods_matched,
        unsupported=unsupported,
        no_samples=trace.no_samples,
        node_caps=status.node_caps(trace),
        mistakes=[f"{mistake.annotation}: {mistake.message}" for mistake in entry.mistakes],
        history=history,
        lost=held.message if held is not None else None,
    )
    shown = recommendation if recommendation.container_recommendations else None
    return status.status_wire(shown, found, entry.vpa.metadata.generation)


def with_history(vpa: Vpa, history: VpaCondition, now: float) -> dict[str, Any]:
    """Return the status as it is, with the condition that tells of history."""
    before = vpa.status
    found = status.replace_history(before.conditions or (), history, now)
    return status.status_wire(before.recommendation, found, before.observed_generation)


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
    for old in _entries(before):
        name = old.container_name
        if is_off(policy, name) or not (name in new or name in silent or not trace.containers):
            continue
        entry = new.get(name) or ContainerRecommendation(name)
        controlled = controlled_resources(container_policy(policy, name))
        new[name] = _completed(entry, old, controlled, is_young=is_young)
    entries = (new[name] for name in sorted(new))
    return VpaRecommendation(tuple(entry for entry in entries if entry.target is not None))


def _not_below(
    new: VpaRecommendation, floor: VpaRecommendation, policy: ResourcePolicy | None
) -> VpaRecommendation:
    def raised(entry: ContainerRecommendation) -> ContainerRecommendation:
        least = floor.of(entry.container_name)
        if least is None:
            return entry
        controlled = controlled_resources(container_policy(policy, entry.container_name))
        return _completed(entry, least, controlled, is_young=True)

    return VpaRecommendation(tuple(raised(entry) for entry in _entries(new)))


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
        tuple(
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
