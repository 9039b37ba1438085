"""What speaks for and against a write, as far as this process can tell; the Lease is asked later.

Time passes between a look and a write: the object may have changed, another controller may
have come, and a silent watch may hide what speaks against a smaller size.
"""

from msgspec import structs

from hpa.cluster.stores import HpaStores
from hpa.decide import Decision, Scale
from hpa.history.clock import SteadyClock
from hpa.loop.state import ControllerState
from hpa.machine.events import WriteGuards
from hpa.machine.record import Look


class GuardReader:
    """Finds the guards of one term's writes."""

    def __init__(self, stores: HpaStores, state: ControllerState, clock: SteadyClock) -> None:
        self._stores = stores
        self._state = state
        self._clock = clock

    def of(self, look: Look, decision: Decision, *, since: float) -> WriteGuards:
        """Return what is known now; ``since`` is when it was looked, by the clock of the
        watches."""
        scale = look.seen.scale
        if decision.replicas is None or not isinstance(scale, Scale):
            return WriteGuards()
        is_up = decision.replicas > scale.spec_replicas
        return WriteGuards(
            "" if is_up else self._doubt(look, since),
            self._state.memory.knows_rescales(look.hpa, is_up=is_up),
            self.is_same(look),
        )

    def is_same(self, look: Look) -> bool:
        """Return whether the object is there as it was looked at, and ours."""
        record, hpa = look.record, look.record.hpa
        if record.is_gone or hpa is None:
            return False
        if hpa is not look.hpa and structs.replace(hpa, status=look.hpa.status) != look.hpa:
            return False
        return not self._state.foreign.must_watch(record.foreign, self._clock.now())

    def _doubt(self, look: Look, since: float) -> str:
        """Return why nothing may shrink now."""
        if not look.knows_owners:
            return "who owns its pods is not known"
        # A silent watch may hide the pods or the spec that speak against it; and may have then.
        if not (
            self._stores.is_current(since=since, namespace=look.record.key[0])
            and self._state.targets.is_current(look.record, look.seen, since=since)
        ):
            return "the API server does not tell what changes, so that nothing may shrink"
        return ""
