"""The anchor of a workload that is sized in both directions, and the target that hangs on it.

It is an annotation of the VPA, written by the recommender alone, before the size that belongs to
it. The HPA multiplies its utilization with ``milli``, not with what the pods request today, so
that no change of the request moves replicas by itself. Pure.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from podscale.core.json_decoder import JsonDecoder

ANNOTATION = "podscale.io/anchor"  # of the VPA
MOST_MILLI = 10**9  # a million cores
_LONGEST = 512  # characters of the annotation that are read


class Anchor(Struct, frozen=True, forbid_unknown_fields=True):
    """Milli-units a pod. ``size`` is the request that was last chosen, of all containers that
    count for the HPA; times are unix seconds."""

    milli: int
    size: int
    uid: str  # of the workload: another one of the same name has other pods
    moved: int = 0  # when ``milli`` was last changed
    sized: int = 0  # when ``size`` was
    container: str = ""  # whose requests ``size`` is; "": those of the whole pod


_DECODER = JsonDecoder(Anchor)


def parse(text: str | None, uid: str, container: str = "") -> Anchor | None:
    """Return the anchor; None where there is none, it cannot be read, or is another workload's or
    of other containers."""
    if text is None or len(text) > _LONGEST:
        return None
    try:
        found = _DECODER.decode(text)
    except msgspec.DecodeError:
        return None
    in_range = all(0 < each <= MOST_MILLI for each in (found.milli, found.size))
    is_own = bool(uid) and (found.uid, found.container) == (uid, container)
    return found if in_range and is_own else None


def format_anchor(anchor: Anchor) -> str:
    """Return the text of the annotation; ``parse`` reads it back."""
    return msgspec.json.encode(anchor).decode()


def anchor_clause(anchor: Anchor) -> str:
    """Return the end of the condition with which the HPA says that it follows the anchor."""
    return f"100 % are the {anchor.milli}m of its anchor, to which pods of {anchor.size}m belong"


def counted_requests(requests: Mapping[str, int], anchor: Anchor) -> dict[str, int]:
    """Return what each pod counts for, milli-units by pod: the anchor, or its share of it while
    the pod is smaller than the size that belongs to the anchor.

    So a pod that waits to grow, or may not grow, is not given the load of a grown one, whatever
    crashed between the anchor and the size.
    """
    return {
        pod: max(anchor.milli * min(request, anchor.size) // anchor.size, 1)
        for pod, request in requests.items()
    }
