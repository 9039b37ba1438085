"""Whether what was decided may be done: asked when it is, and again before each attempt.

Time passes between a look and a write: the object may have changed, another controller may
have come, and a silent watch may hide what speaks against a smaller size.
"""

from collections.abc import Callable

from msgspec import structs

from hpa.cluster.catalog import Key
from hpa.cluster.foreign import ForeignControllers
from hpa.cluster.stores import HpaStores
from hpa.cluster.targets import ScaleTargets
from hpa.decide import Decision, Scale
from hpa.decide.steps import Corrected
from hpa.history.memory import HistoryMemory
from hpa.loop.observe import Look


class WritePermission:
    """What one term may do, as far as its own process can tell; the Lease is asked later."""

    def __init__(
        self,
        *,
        stores: HpaStores,
        targets: ScaleTargets,
        memory: HistoryMemory,
        foreign: ForeignControllers,
        wall: Callable[[], float],
    ) -> None:
        self._stores = stores
        self._targets = targets
        self._memory = memory
        self._foreign = foreign
        self._wall = wall

    def objection(self, look: Look, decision: Decision, *, since: float) -> str:
        """Return what speaks against writing the size that was decided on, in words for people;
        "" is nothing. ``since`` is when it was looked, by the clock of the watches."""
        scale = look.seen.scale
        if decision.replicas is not None and isinstance(scale, Scale):
            is_up = decision.replicas > scale.spec_replicas
            if not is_up and (doubt := self._doubt(look, since)):
                return doubt
            is_known = self._memory.knows_rescales(look.hpa, is_up=is_up, now=self._wall())
            if not is_known and not _is_corrected(decision):
                return (
                    "the stored histories could not be read, and a policy counts rescales from "
                    "before this process led"
                )
        if not self.is_same(look):
            return "the object has changed since, or another controller scales it"
        return ""

    def is_same(self, look: Look) -> bool:
        """Return whether the object is there as it was looked at, and ours."""
        entry, hpa = look.entry, look.entry.hpa
        if entry.is_gone or hpa is None:
            return False
        if hpa is not look.hpa and structs.replace(hpa, status=look.hpa.status) != look.hpa:
            return False
        return not self.must_watch(entry.key, self._wall())

    def must_watch(self, key: Key, now: float) -> bool:
        """Return whether another controller scales this object, or may yet turn out to."""
        foreign = self._foreign
        return foreign.acting(key, now) is not None or foreign.is_on_probation(key, now)

    def _doubt(self, look: Look, since: float) -> str:
        """Return why nothing may shrink now."""
        if not look.knows_owners:
            return "who owns its pods is not known"
        # A silent watch may hide the pods or the spec that speak against it; and may have then.
        if not (
            self._stores.is_current(since=since, namespace=look.entry.key[0])
            and self._targets.is_current(look.entry, look.seen, since=since)
        ):
            return "the API server does not tell what changes, so that nothing may shrink"
        return ""


def _is_corrected(decision: Decision) -> bool:
    """Whether the size is brought back between the bounds: no policy is asked for that."""
    return any(isinstance(step, Corrected) for step in decision.trace.steps)
