"""How the groups of one VPA stand during its turn: what was begun with their pods, what they
lost since by others, and which of them are left alone.

The watch's own events count the losses, so that every act may ask for them.
"""

from collections.abc import Sequence
from typing import Self

from vpa.loop_turns import LoopTurns
from vpa.model.api.objects import SizedPod
from vpa.updater.cluster.pod_observer import PodObservation, PodObserver
from vpa.updater.decide.disruption_budget import (
    DisruptionBudget,
    Owner,
    OwnerSize,
    PodGroup,
    configured_size,
)


class GroupStates:
    """The groups of a budget; a context within which it follows the watch."""

    def __init__(self, observer: PodObserver, budget: DisruptionBudget) -> None:
        self._observer, self._budget = observer, budget
        self._ended: dict[Owner, str] = {}
        # UIDs of pods that ran when the turn began and that we did nothing to since.
        self._running: dict[str, Owner] = {}
        self._lost: dict[Owner, set[str]] = {}  # those of them that are gone
        self._begun: set[str] = set()  # UIDs of pods that count against their group's budget

    def __enter__(self) -> Self:
        self._leave = self._observer.follow(self._changed)
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    async def begin(self, pods: Sequence[PodObservation]) -> None:
        """Take in the live pods that the turn begins with."""
        turns = LoopTurns()
        for seen in pods:
            group, uid = self._budget.group(seen.pod), seen.pod.metadata.uid
            if not isinstance(group, PodGroup) or uid in self._begun:
                continue
            if seen.pod.status.phase != "Pending":
                self._running[uid] = group.owner
                self._changed(uid, not self._observer.is_lost(seen))
            await turns.step()

    def end(self, owner: Owner, why: str) -> None:
        """Leave a group alone for the rest of the turn."""
        self._ended[owner] = why

    def ended(self, pod: SizedPod) -> str | None:
        """Return why the pod's group is left alone; None: it is not."""
        group = self._budget.group(pod)
        return self._ended.get(group.owner) if isinstance(group, PodGroup) else None

    def began(self, pod: SizedPod, *, in_place: bool) -> None:
        """Count an act against the budget of the pod's group."""
        uid = pod.metadata.uid
        self._begun.add(uid)
        owner = self._running.pop(uid, None)
        if owner is not None:
            self._lost.get(owner, set()).discard(uid)
        group = self._budget.group(pod)
        if isinstance(group, PodGroup):
            self._budget.began(group, pod, in_place=in_place)

    async def recount(self, pod: SizedPod) -> bool:
        """Take in what became of the pod's group since the turn began; returns whether that
        leaves it less."""
        group = self._budget.group(pod)
        if not isinstance(group, PodGroup):
            return False
        could = self._budget.allows(group)
        sizes = await self._observer.sizes([pod])
        size = sizes.get(group.owner, OwnerSize())
        lost = len(self._lost.get(group.owner, ()))
        self._budget.recount(group, lost, configured_size(group.owner, size, group.live))
        return could and not self._budget.allows(group)

    def _changed(self, uid: str, is_live: bool) -> None:
        owner = self._running.get(uid)
        if owner is None:
            return
        lost = self._lost.setdefault(owner, set())
        if is_live:
            lost.discard(uid)
        else:
            lost.add(uid)
