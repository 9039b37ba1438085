"""Whether evicted pods come back sized: where they do not, evicting more of them helps nobody.

The Lease says that a webhook runs, not that the API server reaches it, for these pods. What
comes back says it: both our webhook and upstream's write ``vpaObservedContainers`` on every
pod that a VPA sizes.
"""

import time
from collections.abc import Callable, Sequence, Set

from podscale.kube.columns.pod_set import PodView
from vpa.admission.patches.patch import OBSERVED
from vpa.model.samples.membership import VpaKey
from vpa.updater.decide.disruption_budget import Owner

_WATCHED_S = 600.0  # what comes so long after an eviction came because of it
_PAUSE_S, _MOST_PAUSE_S = 600.0, 3600.0  # doubled with every try that fails


class _Group:
    def __init__(self) -> None:
        self.known: Set[str] = frozenset()  # UIDs of pods that no eviction of ours brought
        self.evicted_at = 0.0
        self.held_until: float | None = None  # None: they come back sized, as far as we know
        self.pause_s = _PAUSE_S
        self.is_tried = False  # one was evicted to see whether it is mended


class ResizedReturns:
    """What came back after our evictions, by VPA and direct controller."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._groups: dict[tuple[VpaKey, Owner], _Group] = {}

    def evicted(self, key: VpaKey, owner: Owner, known: Set[str]) -> None:
        """Note an eviction; ``known``: UIDs of the group's pods when its turn began, those that no
        node had been found for with them: they are no answer to it."""
        group = self._groups.setdefault((key, owner), _Group())
        group.known |= known
        group.evicted_at = self._clock()
        group.is_tried = group.held_until is not None

    def look(self, key: VpaKey, owner: Owner, pods: Sequence[PodView]) -> bool:
        """Look at a group's pods, scheduled or not; returns whether it is held from now on."""
        group, now = self._groups.get((key, owner)), self._clock()
        if group is None:
            return False
        new = [pod for pod in pods if pod.uid not in group.known]
        group.known = {pod.uid for pod in pods}
        if not new:
            return False
        if all(OBSERVED in pod.annotations for pod in new):
            group.held_until, group.pause_s, group.is_tried = None, _PAUSE_S, False
            return False
        is_ours = now - group.evicted_at < _WATCHED_S
        # The others that were evicted with the first one are no try of their own.
        if not is_ours or (group.held_until is not None and not group.is_tried):
            return False
        if group.is_tried:
            group.pause_s = min(group.pause_s * 2, _MOST_PAUSE_S)
        group.held_until, group.is_tried = now + group.pause_s, False
        return True

    def held_s(self, key: VpaKey, owner: Owner) -> float | None:
        """Return in how long the next pod of the group may go; None: now."""
        group, now = self._groups.get((key, owner)), self._clock()
        if group is None or group.held_until is None:
            return None
        # After the pause one goes, and what comes back decides about the others.
        until = group.evicted_at + _WATCHED_S if group.is_tried else group.held_until
        return until - now if until > now else None

    def forget(self) -> None:
        """Drop groups about which nothing was learned for long."""
        now = self._clock()
        for place, group in list(self._groups.items()):
            if now - max(group.evicted_at, group.held_until or 0.0) > _MOST_PAUSE_S:
                del self._groups[place]
