"""How much room is kept for pods that are about to come. Pure.

CPU is in thousandths of a core, memory in bytes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

_Key = tuple[str, str]

HOLD_S = 300.0  # for so long a workload is expected to reach what was once proposed


class HeadroomLimit(Struct, frozen=True):
    """The most that all headroom requests."""

    cpu_milli: int
    memory_bytes: int
    pods: int = 50


class ExpectedSize(Struct, frozen=True):
    """The pods that a workload is expected to have."""

    replicas: int
    until: float  # unix seconds


class ComingPods(Struct, frozen=True):
    """Pods of one workload that are expected and not there yet."""

    workload: str  # namespace/kind/name
    count: int
    cpu_milli: int
    memory_bytes: int
    placement: str = ""  # JSON of what decides about their nodes; equal texts are one class
    # What one takes of its namespace's ResourceQuotas, in thousandths by their names for it.
    quota: Mapping[str, int] = MappingProxyType({})

    @property
    def namespace(self) -> str:
        return self.workload.partition("/")[0]


class SizeClass(Struct, frozen=True, order=True):
    """Pods that one size of pause pod holds room for."""

    placement: str
    cpu_milli: int
    memory_bytes: int


def expected(known: ExpectedSize | None, proposed: int | None, now: float) -> ExpectedSize | None:
    """Return the size to expect: the largest that was proposed within ``HOLD_S``, so that a
    number that wavers does not; None where nothing was proposed for so long."""
    if known is not None and now > known.until:
        known = None
    if proposed is None or (known is not None and proposed < known.replicas):
        return known
    return ExpectedSize(proposed, now + HOLD_S)


def headroom(
    coming: Sequence[ComingPods], limit: HeadroomLimit, quotas: Mapping[str, Mapping[str, int]]
) -> dict[SizeClass, int]:
    """Return how many pods of each class hold room: within the limit, of whose pods one namespace
    has a third, and within ``quotas``, by namespace what its ResourceQuotas leave, in thousandths.

    Where it is not enough for all, workloads get one pod each in turn; those that request nothing
    need no room.
    """
    pods = [each for each in sorted(coming, key=lambda each: each.workload)
            if each.count > 0 and (each.cpu_milli or each.memory_bytes)]  # fmt: skip
    # By namespace ("": of all together) and resource; of namespaces in thousandths.
    room = {("", "cpu"): limit.cpu_milli, ("", "memory"): limit.memory_bytes}
    room["", "pods"] = limit.pods
    third = 1000 * max(limit.pods // 3, 1)
    for namespace in {each.namespace for each in pods}:
        quota = quotas.get(namespace, {})
        room |= {(namespace, resource): amount for resource, amount in quota.items()}
        room[namespace, "pods"] = min(quota.get("pods", third), third)
    takes = {each.workload: _takes(each, room) for each in pods}
    left = {each.workload: each.count for each in pods}
    found = Counter[SizeClass]()
    while pods:
        together = Counter[_Key]()
        for each in pods:
            together.update(takes[each.workload])
        # As many turns as all have room for are one step, a last one for each by itself another.
        turns = min(_times(room, together), *(left[each.workload] for each in pods))
        for each in pods:
            own = takes[each.workload]
            count = turns or min(_times(room, own), 1)
            for key, amount in own.items():
                room[key] -= count * amount
            found[size_class(each)] += count
            left[each.workload] = left[each.workload] - count if count else 0
        pods = [each for each in pods if left[each.workload]]
    return +found


def _takes(pods: ComingPods, room: Mapping[_Key, int]) -> dict[_Key, int]:
    # What one of them takes of it.
    size = size_class(pods)
    found = {("", "cpu"): size.cpu_milli, ("", "memory"): size.memory_bytes, ("", "pods"): 1}
    found[pods.namespace, "pods"] = 1000
    found |= {(pods.namespace, resource): amount for resource, amount in pods.quota.items()}
    return {key: amount for key, amount in found.items() if amount and key in room}


def _times(room: Mapping[_Key, int], takes: Mapping[_Key, int]) -> int:
    return max(min(room[key] // amount for key, amount in takes.items()), 0)


def size_class(pods: ComingPods) -> SizeClass:
    """Return the class of these pods: amounts rounded up, by less than a quarter."""
    cpu, memory = pods.cpu_milli, pods.memory_bytes
    return SizeClass(
        pods.placement,
        _quarter_up(cpu, 10 ** (len(str(cpu)) - 1)),  # people write tenths of cores
        _quarter_up(memory, 1 << max(memory.bit_length() - 1, 0)),  # and powers of two
    )


def _quarter_up(amount: int, power: int) -> int:
    # To quarters of ``power``, the largest of its kind up to the amount.
    step = max(power // 4, 1)
    return -(-amount // step) * step
