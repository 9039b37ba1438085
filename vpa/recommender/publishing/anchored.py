"""The CPU of a recommendation where an HPA counts on it: the size of the anchor, until it moves.

Pure. Bounds hold the target between them, so that no pod is disturbed for a size that stays.
"""

from collections.abc import Mapping

from msgspec import Struct, structs

from vpa.model.api.objects import ContainerRecommendation, VpaRecommendation
from vpa.model.api.quantities import ResourceList
from vpa.model.estimation.amounts import as_quantity


class AnchoredSize(Struct, frozen=True):
    """What a pod is to have; milli-cores."""

    container: str  # "": all containers together
    size: int | None  # None: what was published last
    requests: Mapping[str, int]  # of what counts, by container: also what the VPA does not size
    may_shrink: bool = True  # False: there are not as many pods yet as smaller ones need


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
