"""Published amounts whose history was lost: they are held until a day is known again. Pure.

Where a checkpoint is missing or damaged, or Prometheus has forgotten, the samples in the model
begin later than the recommendation in the VPA's status was made. A minute of samples would then
replace weeks, so the larger of both amounts is published for a day.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct

from podscale.kube.objects.vpa import (
    ContainerRecommendation,
    ResourceList,
    Vpa,
    VpaRecommendation,
    container_policy,
)
from vpa.model.api.policy import allowed, capped
from vpa.model.api.quantities import EMPTY, RESOURCES
from vpa.model.cluster import ClusterModel
from vpa.model.estimation.status import HISTORY_LOST
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
            recommendation = VpaRecommendation(container_recommendations=entries)
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
    return HeldAmounts(
        VpaRecommendation(container_recommendations=tuple(amounts)), message, until_s
    )


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
        (each.type, each.status, each.reason) == ("LowConfidence", "True", HISTORY_LOST)
        for each in vpa.status.conditions or ()
    )


def _text(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
