"""Out-of-memory kills, read from pod updates and from eviction events.

Gives the model what it records: which container, how much memory it had asked for, when.
Follows ``input/oom/observer.go`` of upstream's recommender.
"""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from podscale.core import quantity
from podscale.core.quantity import QuantityError
from vpa.model.api.objects import (
    ContainerTermination,
    SizedContainerStatus,
    SizedPod,
    requests_and_limits,
    source_of_requests,
)
from vpa.model.api.quantities import of

_KILLED = "OOMKilled"


class Oom(Struct, frozen=True):
    """One kill; ``memory_bytes`` is the request, or the usage that the kubelet reports."""

    namespace: str
    pod: str
    container: str
    memory_bytes: int
    time: datetime
    source: str = ""  # where the request was read, as ``source_of_requests``; empty: nowhere


class InvolvedObject(Struct, frozen=True):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


def from_pod_update(before: SizedPod, after: SizedPod) -> list[Oom]:
    """Return the kills that happened between two versions of a pod, by container.

    Either the container is now terminated by one, or it has been restarted meanwhile and
    its last run ended so. Waiting to running (the end of a back-off) is not a new kill.
    """
    statuses = {status.name: status for status in before.status.container_statuses or ()}
    ooms = []
    for status in after.status.container_statuses or ():
        earlier = statuses.get(status.name)
        found = _kill(earlier, status) if earlier is not None else None
        if found is None:
            continue
        run, is_current = found
        # The run that was killed had the resources of the version that shows it running.
        if run.finished_at is None:
            continue
        ooms.append(_oom(after if is_current else before, status.name, run.finished_at))
    return ooms


def from_last_state(pod: SizedPod) -> list[Oom]:
    """Return kills that a pod still shows as its containers' last run.

    For a pod first seen after the kill: after a restart, or when its update was missed.
    """
    ooms = []
    for status in pod.status.container_statuses or ():
        run = status.state.terminated or status.last_state.terminated
        if run is None or run.reason != _KILLED or run.finished_at is None:
            continue
        ooms.append(_oom(pod, status.name, run.finished_at))
    return ooms


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


def _oom(killed: SizedPod, container: str, time: datetime) -> Oom:
    requests, _ = requests_and_limits(killed, container)
    memory, source = of(requests, "memory"), source_of_requests(killed, container)
    meta = killed.metadata
    return Oom(meta.namespace, meta.name, container, memory.value, time, source)


def _kill(
    before: SizedContainerStatus, after: SizedContainerStatus
) -> tuple[ContainerTermination, bool] | None:
    restarted = after.restart_count > before.restart_count
    now, last = after.state.terminated, after.last_state.terminated
    if now is not None and now.reason == _KILLED:
        # Too fast a failure shows terminated twice in a row; the count tells them apart.
        if before.state.terminated is None or restarted:
            return now, True
        return None
    was_running = before.state.running is not None
    is_running = after.state.running is not None
    if restarted and was_running and is_running and last is not None and last.reason == _KILLED:
        return last, False
    return None


def _listed(annotations: Mapping[str, str], key: str) -> list[str]:
    return annotations[key].split(",") if key in annotations else []
