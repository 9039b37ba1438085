"""Node awareness: no recommendation whose pod would fit no node.

A pod fits a shape if all its containers together fit what the shape has left beside its
DaemonSets. Capped is the pod, not each container: every container gives up the same share.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

RESOURCES = ("cpu", "memory")


class NodeShape(Struct, frozen=True):
    """A kind of node, one that exists or one of a pool that could make it."""

    shape: str
    allocatable_cpu_milli: int
    allocatable_memory_bytes: int
    daemonsets_cpu_milli: int = 0
    daemonsets_memory_bytes: int = 0

    def available(self, resource: str) -> int:
        """Return what pods other than DaemonSets can have, milli-cores or bytes."""
        if resource == "cpu":
            return max(0, self.allocatable_cpu_milli - self.daemonsets_cpu_milli)
        return max(0, self.allocatable_memory_bytes - self.daemonsets_memory_bytes)


class NodeCap(Struct, frozen=True):
    """One container's amount that was cut, and the node that set it."""

    container: str
    resource: str
    amount: int
    node: str
    available: int  # of the node for the whole pod


def cap_to_nodes(
    pod: Mapping[str, Mapping[str, int]], shapes: Sequence[NodeShape]
) -> list[NodeCap]:
    """Return what has to shrink so that the pod fits the shape that takes most of it.

    ``pod`` is amounts by resource by container. Nothing is returned for a pod that fits
    some shape, nor without shapes: an unknown node cuts nothing.
    """
    if not shapes:
        return []
    sums = {
        resource: sum(amounts.get(resource, 0) for amounts in pod.values())
        for resource in RESOURCES
    }

    def share(shape: NodeShape) -> tuple[float, ...]:
        # How much of each resource the shape can give, the scarcest first.
        parts = (
            min(1.0, shape.available(name) / wanted) for name, wanted in sums.items() if wanted
        )
        return (*sorted(parts), float(shape.available("cpu")), float(shape.available("memory")))

    best = max(shapes, key=share)
    caps = []
    for resource, wanted in sums.items():
        available = best.available(resource)
        if wanted <= available:
            continue
        for container, amounts in pod.items():
            amount = amounts.get(resource)
            if amount:
                cut = amount * available // wanted
                caps.append(NodeCap(container, resource, cut, best.shape, available))
    return caps


def largest(shapes: Iterable[NodeShape]) -> tuple[NodeShape, ...]:
    """Return the shapes that no other one is at least as large as, in both resources.

    A pod that fits any of ``shapes`` fits one of these; of equal ones the first counts.
    """
    by_size = sorted(shapes, key=lambda s: (-s.available("cpu"), -s.available("memory")))
    found: list[NodeShape] = []
    most = -1
    for shape in by_size:
        if shape.available("memory") > most:
            found.append(shape)
            most = shape.available("memory")
    return tuple(found)
