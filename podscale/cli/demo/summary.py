"""What happened in each scene, in a sentence: the demo's last words, and whether it worked."""

import itertools
from collections.abc import Mapping, Sequence

from podscale.cli.demo.look import SceneLook


def summary(looks: Mapping[str, Sequence[SceneLook]]) -> list[str]:
    """Return a line for every scene that was seen."""
    lines = []
    for name, seen in looks.items():
        if seen:
            told = {"worker": _worker, "queue": _queue, "both": _both, "nodes": _nodes}
            lines.append(told.get(name, _shop)(seen))
    return lines


def is_measured(looks: Mapping[str, Sequence[SceneLook]]) -> bool:
    """Return whether any scene's metric was ever served."""
    return any(look.is_measured for seen in looks.values() for look in seen)


def _shop(seen: Sequence[SceneLook]) -> str:
    loads = [look.load_value for look in seen]
    sizes = [look.replicas for look in seen]
    ups, downs = _steps(sizes)
    told = (
        f"replicas followed between {min(sizes)} and {max(sizes)}, up {_times(ups)} and down "
        f"{_times(downs)}; now: {sizes[-1]}"
        if ups or downs
        else f"replicas stayed at {sizes[-1]}"
    )
    return (
        f"shop: in {seen[-1].at_s:.0f} s the load went from {min(loads):.0f} to {max(loads):.0f} "
        f"requests/s; {told}."
    )


def _worker(seen: Sequence[SceneLook]) -> str:
    first = next((look.request_mib for look in seen if look.request_mib), (0.0,))
    last = next((look.request_mib for look in reversed(seen) if look.request_mib), (0.0,))
    killed = max(look.restarts for look in seen)
    resized = max(last) != max(first)
    told = (
        f"its memory request was resized from {max(first):.0f} to {max(last):.0f} MiB"
        if resized
        else f"its memory request stayed {max(first):.0f} MiB"
    )
    killing = f"it was killed for memory {_times(killed)}" if killed else "it was not killed"
    return f"worker: {killing}; {told}."


def _queue(seen: Sequence[SceneLook]) -> str:
    sizes = [look.replicas for look in seen]
    zeros = sum(b == 0 and a > 0 for a, b in itertools.pairwise(sizes))
    backs = sum(a == 0 and b > 0 for a, b in itertools.pairwise(sizes))
    waited = max(look.load_value for look in seen)
    told = (
        f"replicas went to zero {_times(zeros)} and came back {_times(backs)}, at most {max(sizes)}"
        if zeros or backs
        else "replicas " + _between(min(sizes), max(sizes))
    )
    return f"queue: up to {waited:.0f} message{'' if round(waited) == 1 else 's'} waited; {told}."


def _both(seen: Sequence[SceneLook]) -> str:
    sizes = [look.replicas for look in seen]
    requests = [look.request_milli for look in seen if look.request_milli] or [0]
    request = f"stayed {requests[-1]}m"
    if requests[0] != requests[-1]:
        request = f"went from {requests[0]}m to {requests[-1]}m"
    return f"both: replicas {_between(min(sizes), max(sizes))}, and the CPU request {request}."


def _nodes(seen: Sequence[SceneLook]) -> str:
    held = [look.load_value for look in seen]
    return f"nodes: ballast of the fullest held up to {max(held):.1f} cores; now: {held[-1]:.1f}."


def _between(least: int, most: int) -> str:
    return f"stayed at {most}" if least == most else f"went between {least} and {most}"


def _steps(sizes: Sequence[int]) -> tuple[int, int]:
    pairs = list(itertools.pairwise(sizes))
    return sum(b > a for a, b in pairs), sum(b < a for a, b in pairs)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
