"""The CPU of a recommendation where an HPA counts on it: the size of the anchor, until it moves.

Pure. Bounds hold the target between them, so that no pod is disturbed for a size that stays.
"""

from msgspec import Struct, structs

from vpa.model.api.objects import ContainerRecommendation, VpaRecommendation
from vpa.model.api.quantities import ResourceList
from vpa.model.estimation.amounts import as_quantity


class AnchoredSize(Struct, frozen=True):
    """What a pod is to have; milli-cores."""

    container: str  # "": all containers together
    size: int | None  # None: what was published last
    others: int  # of it, what containers have that the VPA does not size


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
    size = None if wanted.size is None else max(wanted.size - wanted.others, len(measured))
    targets = published
    if published.keys() != measured.keys() or (
        size is not None and sum(published.values()) != size
    ):
        targets = _divided(measured, size)
    return VpaRecommendation(
        container_recommendations=tuple(
            _with_target(entry, targets[entry.container_name])
            if entry.container_name in targets
            else entry
            for entry in entries
        )
    )


def _divided(measured: dict[str, int], size: int | None) -> dict[str, int]:
    total = sum(measured.values())
    if size is None or not total:
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
