"""How much room is kept for pods that are about to come. Pure.

CPU is in thousandths of a core, memory in bytes.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

HOLD_S = 300.0  # for so long a workload is expected to reach what was once proposed


class HeadroomLimit(Struct, frozen=True):
    """The most that all headroom requests."""

    cpu_milli: int
    memory_bytes: int


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


def headroom(coming: Sequence[ComingPods], limit: HeadroomLimit) -> dict[SizeClass, int]:
    """Return how many pods of each class hold room, within the limit.

    Where it is not enough for all, workloads get one pod each in turn.
    """
    found: dict[SizeClass, int] = {}
    left = {each.workload: each.count for each in coming if each.count > 0}
    cpu, memory = limit.cpu_milli, limit.memory_bytes
    while left:
        for each in sorted(coming, key=lambda each: each.workload):
            if each.workload not in left:
                continue
            size = size_class(each)
            if size.cpu_milli > cpu or size.memory_bytes > memory:
                del left[each.workload]
                continue
            cpu, memory = cpu - size.cpu_milli, memory - size.memory_bytes
            found[size] = found.get(size, 0) + 1
            left[each.workload] -= 1
            if not left[each.workload]:
                del left[each.workload]
    return found


def size_class(pods: ComingPods) -> SizeClass:
    """Return the class of these pods: amounts rounded up, by less than a quarter."""
    cpu, memory = pods.cpu_milli, pods.memory_bytes
    return SizeClass(
        pods.placement,
        _quarter_up(cpu, 10 ** (len(str(cpu)) - 1)),  # people write tenths of cores
        _quarter_up(memory, 1 << max(memory.bit_length() - 1, 0)),  # and powers of two
    )


def totals(counts: Mapping[SizeClass, int]) -> tuple[int, int]:
    return (
        sum(size.cpu_milli * count for size, count in counts.items()),
        sum(size.memory_bytes * count for size, count in counts.items()),
    )


def _quarter_up(amount: int, power: int) -> int:
    # To quarters of ``power``, the largest of its kind up to the amount.
    step = max(power // 4, 1)
    return -(-amount // step) * step
