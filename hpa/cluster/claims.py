"""In-tree HPAs that name a target of ours, in own mode: their controller cannot be switched off.

Both would scale it. The in-tree controller does not read our objects, so it is ours that
stands still, and says so.
"""

from hpa.machine.objects import Claim, TargetKey, target_of
from podscale.kube.informer.listeners import Change
from podscale.kube.informer.store import Store


class InTreeClaims:
    """The names of in-tree HPAs by target."""

    def __init__(self, store: Store[Claim]) -> None:
        self._by_target: dict[TargetKey, set[str]] = {}
        self.changed = 0  # how often ``of`` may have come to answer differently
        for claim in store.values():
            self._put(claim)
        store.subscribe(self._note)

    def of(self, target: TargetKey) -> tuple[str, ...]:
        """Return the in-tree HPAs on ``target``, sorted, as they are named to people."""
        names = self._by_target.get(target, ())
        return tuple(f"HorizontalPodAutoscaler/{name}" for name in sorted(names))

    def _note(self, change: Change[Claim]) -> None:
        self.changed += 1
        if change.old is not None:
            target = target_of(change.namespace, change.old.spec.scale_target_ref)
            names = self._by_target.get(target, set())
            names.discard(change.name)
            if not names:
                self._by_target.pop(target, None)
        if change.new is not None:
            self._put(change.new)

    def _put(self, claim: Claim) -> None:
        meta = claim.metadata
        target = target_of(meta.namespace, claim.spec.scale_target_ref)
        self._by_target.setdefault(target, set()).add(meta.name)
