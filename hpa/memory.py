"""What is remembered about every autoscaler: in memory, and (in replace mode) stored.

A history taken over from another leader is completed when its object is first decided
on: only then the size of the target is known.
"""

from msgspec import Struct

from hpa import history
from hpa.catalog import Entry, Key
from hpa.decide.observation import Past
from hpa.decide.spec import HPA
from hpa.history import Mark
from hpa.shards import Shards


class _Loaded(Struct, frozen=True):
    """A stored history that has not been looked at yet."""

    past: Past
    size: int | None


class Memory:
    """The pasts of one term of leadership."""

    def __init__(self, shards: Shards | None) -> None:
        """``shards`` None: nothing is stored (shadow)."""
        self._shards = shards
        self._pasts: dict[Key, Past] = {}
        self._marks: dict[Key, Mark] = {}
        self._loaded: dict[Key, _Loaded] = {}

    async def load(self, alive_until: float | None) -> int:
        """Take over what is stored; returns for how many objects. Raises ``KubeError``.

        ``alive_until`` is the renewTime of the Lease that we took: the leader before us
        recommended the same until then.
        """
        self._pasts.clear()
        self._marks.clear()
        self._loaded.clear()
        if self._shards is None:
            return 0
        if alive_until is not None:
            alive_until = float(alive_until)  # the wire's own class of float is none in a trace
        records = await self._shards.load()
        for key, record in records.items():
            self._loaded[key] = _Loaded(history.from_record(record, alive_until), record.size)
        return len(records)

    def past(self, entry: Entry, hpa: HPA, size: int | None, now: float) -> Past:
        """Return the past of one object; ``size`` is its target's now (None: not known)."""
        known = self._pasts.get(entry.key)
        if known is not None:
            return known
        loaded = self._loaded.get(entry.key)
        past = Past() if loaded is None else loaded.past
        expected = None if loaded is None else loaded.size
        past, expected = history.recovered(past, hpa, expected)
        if size is not None:
            past = history.drifted(past, hpa, expected, size, now)
            self._loaded.pop(entry.key, None)
            self._pasts[entry.key] = past
        return past

    def put(
        self, entry: Entry, past: Past, size: int | None, now: float, *, is_stored: bool = True
    ) -> None:
        """Remember; what is stored is written only where something in it changed."""
        self._pasts[entry.key] = past
        if self._shards is None or not is_stored:
            return
        mark = history.mark(past, size)
        if self._marks.get(entry.key) != mark:
            self._marks[entry.key] = mark
            self._shards.put(entry.key, history.to_record(past, size, now))

    def adopt(self, entry: Entry, hpa: HPA) -> None:
        """Count a rescale of another controller as ours, once it stands in the status."""
        past = self._pasts.get(entry.key)
        if past is not None:
            self._pasts[entry.key] = history.adopted(past, hpa)

    def forget(self, key: Key) -> None:
        """Drop a deleted object."""
        self._pasts.pop(key, None)
        self._marks.pop(key, None)
        self._loaded.pop(key, None)
        if self._shards is not None:
            self._shards.put(key, None)
