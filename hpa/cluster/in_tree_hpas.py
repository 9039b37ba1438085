"""In-tree HPAs that name a target of ours, in own mode: their controller cannot be switched off.

Both would scale it. The in-tree controller does not read our objects, so it is ours that
stands still, and says so.
"""

from hpa.machine.objects import Claim, TargetKey, target_of
from podscale.core.value_index import ValueIndex
from podscale.kube.informer.listeners import Change
from podscale.kube.informer.store import Store


class InTreeHpas:
    """The names of in-tree HPAs by target."""

    def __init__(self, store: Store[Claim]) -> None:
        self._by_target: ValueIndex[TargetKey, str] = ValueIndex()
        self.changed = 0  # how often ``of`` may have come to answer differently
        for claim in store.values():
            meta = claim.metadata
            self._note(Change(meta.namespace, meta.name, None, claim))
        store.subscribe(self._note)

    def of(self, target: TargetKey) -> tuple[str, ...]:
        """Return the in-tree HPAs on ``target``, sorted, as they are named to people."""
        names = self._by_target.get(target)
        return tuple(f"HorizontalPodAutoscaler/{name}" for name in sorted(names))

    def _note(self, change: Change[Claim]) -> None:
        self.changed += 1
        for claim, put in (
            (change.old, self._by_target.discard),
            (change.new, self._by_target.add),
        ):
            if claim is not None:
                put(target_of(change.namespace, claim.spec.scale_target_ref), change.name)
