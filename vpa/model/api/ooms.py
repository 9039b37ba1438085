"""Out-of-memory kills, and how events of evictions tell of them.

What the model records: which container, how much memory it had asked for, when.
Follows ``input/oom/observer.go`` of upstream's recommender.
"""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from podscale.core import quantity
from podscale.core.quantity import QuantityError


class Oom(Struct, frozen=True):
    """One kill; ``memory_bytes`` is the request, or the usage that the kubelet reports."""

    namespace: str
    pod: str
    container: str
    memory_bytes: int
    time: datetime
    source: str = ""  # where the request was read, in upstream's words; empty: nowhere


class InvolvedObject(Struct, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


def from_eviction(
    reason: str, pod: InvolvedObject, annotations: Mapping[str, str], created: datetime | None
) -> list[Oom]:
    """Return the kills that an Event tells of, an eviction for memory; none if its lists do not
    fit together.
    """
    if reason != "Evicted" or pod.kind != "Pod":
        return []
    containers = _listed(annotations, "offending_containers")
    usages = _listed(annotations, "offending_containers_usage")
    starved = _listed(annotations, "starved_resource")
    if not len(containers) == len(usages) == len(starved) or created is None:
        return []
    ooms = []
    for container, usage, resource in zip(containers, usages, starved, strict=True):
        if resource != "memory":
            continue
        try:
            used = quantity.parse(usage).value
        except QuantityError:
            continue
        ooms.append(Oom(pod.namespace, pod.name, container, used, created))
    return ooms


def _listed(annotations: Mapping[str, str], key: str) -> list[str]:
    return annotations[key].split(",") if key in annotations else []
