"""What is remembered about every autoscaler: in memory, and (in replace mode) stored.

A history taken over from another leader is completed when its object is first decided
on: only then the size of the target is known. Where histories cannot be read for long, a
term begins without them, and joins them to its own when they come.
"""

import math
from collections.abc import Callable, Container

from msgspec import Struct, structs

from hpa.cluster.catalog import AutoscalerEntry, Key
from hpa.decide.history import remember_scale
from hpa.decide.observation import Past
from hpa.decide.spec import HPA
from hpa.history import history
from hpa.history.configmaps import HistoryConfigMaps
from hpa.history.history import HistoryMark, HistoryRecord

# Longer than a hand-over, under the default lease. Under a longer one each crash is a silence,
# and rightly so: nobody recommended anything for as long, and a window may have run out.
_SILENT_S = 60.0


class _Loaded(Struct, frozen=True):
    """A stored history that has not been looked at yet."""

    # All times are by the clock of who stored it.
    record: HistoryRecord
    alive_until: float | None
    taken_over_at: float
    is_silent: bool  # nobody led for so long that nobody recommended anything


class _Sent(Struct, frozen=True):
    """A size that was sent, of which nobody said whether it went in."""

    before: int
    after: int
    at: float


class HistoryMemory:
    """The pasts of one term of leadership."""

    def __init__(self, shards: HistoryConfigMaps | None) -> None:
        """``shards`` None: nothing is stored (shadow)."""
        self._shards = shards
        self._pasts: dict[Key, Past] = {}
        self._sizes: dict[Key, int] = {}  # of the targets, when last known
        self._marks: dict[Key, HistoryMark] = {}
        self._loaded: dict[Key, _Loaded] = {}
        self._sent: dict[Key, tuple[_Sent, ...]] = {}
        self._doubted: dict[Key, int] = {}  # sizes that a watch tells which may be behind
        self._behind_s = 0.0
        self._unread_since: float | None = None  # None: what is stored was read
        self._found: dict[Key, tuple[int, float]] = {}  # sizes and when, found while it was not

    def begin(self, now: float, behind_s: float = 0.0) -> None:
        """Forget the term before: until ``load``, nothing is known of what was stored.

        Who stored it had a clock that was ``behind_s`` behind ours.
        """
        self._behind_s = behind_s
        self._unread_since = None if self._shards is None else now
        self._found.clear()
        self._pasts.clear()
        self._sizes.clear()
        self._marks.clear()
        self._loaded.clear()
        self._sent.clear()
        self._doubted.clear()

    async def load(self, alive_until: float | None, now: float) -> int:
        """Take over what is stored; returns for how many objects. Raises ``KubeError``.

        ``alive_until`` is the renewTime of the Lease that we took: the leader before us
        recommended the same until then, by its own clock.
        """
        if self._shards is None:
            return 0
        if alive_until is not None:
            alive_until = float(alive_until)  # the wire's own class of float is none in a trace
        at = now - self._behind_s
        is_silent = alive_until is None or at - alive_until > _SILENT_S
        records = await self._shards.load()
        for key, record in records.items():
            self._loaded[key] = _Loaded(record, alive_until, at, is_silent)
        self._unread_since = None
        return len(records)

    @property
    def is_read(self) -> bool:
        """Whether what is stored was read in this term; until then nothing is stored."""
        return self._unread_since is None

    def knows_rescales(self, hpa: HPA, *, is_up: bool, now: float) -> bool:
        """Return whether every rescale that the policies of a direction may count is known: an
        earlier leader's are not while its histories are not read, until all are too old."""
        if self._unread_since is None or hpa.behavior is None:
            return True
        rules = hpa.behavior.up if is_up else hpa.behavior.down
        longest_s = max((policy.period_seconds for policy in rules.policies), default=0)
        return now - self._unread_since >= longest_s

    def prune(self, known: Container[Key]) -> None:
        """Drop what is stored of objects that went while nobody led.

        Not at once: a new leader's watch may be behind what the last one decided on.
        """
        for key in [key for key in self._loaded if key not in known]:
            self.forget(key)

    def past(
        self,
        entry: AutoscalerEntry,
        hpa: HPA,
        size: int | None,
        now: float,
        is_current: Callable[[], bool] = lambda: True,
    ) -> Past:
        """Return the past of one object; ``size`` is its target's now (None: not known).

        A history taken over is completed once the size ``is_current``: what a watch tells that
        is behind would count as a rescale that never was.
        """
        known = self._pasts.get(entry.key)
        if known is not None:
            if self._loaded and entry.key in self._loaded:
                known = self._joined(entry, hpa, known, now)
            return self._settled(entry, hpa, known, size)
        loaded = self._loaded.get(entry.key)
        if loaded is not None and loaded.record.uid not in ("", entry.uid):
            # An earlier object of this name; "" is of a release that stored no uid.
            self.forget(entry.key)
            loaded = None
        past, expected = self._before(entry, hpa)
        is_taken_over = loaded is not None or not self.is_read
        if size is not None and is_taken_over and not is_current():
            self._doubted[entry.key] = size
            size = None
        if loaded is not None:
            is_unknown = loaded.is_silent or history.is_behind(loaded.record, hpa)
            if size is not None and is_unknown:
                past = history.resumed(past, size, loaded.taken_over_at)
        past, expected = history.recovered(past, hpa, expected)
        past = history.shifted(past, self._behind_s, now)
        if size is not None:
            if not self.is_read and expected is None:
                self._found[entry.key] = size, now
            known_at = -math.inf if loaded is None else loaded.record.at + self._behind_s
            earliest = max(known_at, history.newest_rescale(past))
            past = history.drifted(past, hpa, expected, size, now, earliest)
            self._loaded.pop(entry.key, None)
            self._pasts[entry.key] = past
        return past

    def is_in_question(self, entry: AutoscalerEntry, hpa: HPA, size: int) -> bool:
        """Return whether a history is to be taken over that tells of another size.

        The watch may be behind the writes of the leader before by moments, and the difference
        would count as a rescale that never was: the API server itself is to be asked. Not where
        there is no policy that counts any: it may fail to answer, and many may differ at once.
        """
        if (self.is_read and not self._loaded) or entry.key in self._pasts:
            return False
        if hpa.behavior is None:
            return False
        past, expected = self._before(entry, hpa)
        _, expected = history.recovered(past, hpa, expected)
        return expected is not None and expected != size

    def put(
        self,
        entry: AutoscalerEntry,
        past: Past,
        size: int | None,
        now: float,
        *,
        is_stored: bool = True,
    ) -> None:
        """Remember; what is stored is written only where something in it changed.

        ``size`` None: it was not looked at, or could not be; or it is the one in doubt, and not
        one that was just written. The last known one stays, and a history taken over stays as
        it is until it can be completed.
        """
        key = entry.key
        doubted = self._doubted.pop(key, None)
        if size is None or size == doubted:
            if key not in self._pasts:
                return
            size = self._sizes.get(key)
        elif (sent := self._sent.get(key)) is not None and size != sent[0].before:
            del self._sent[key]  # a later write went in: ours, and in ``past``
        self._pasts[key] = past
        if size is not None:
            self._sizes[key] = size
        if self._shards is None or not is_stored or self._unread_since is not None:
            return
        if key in self._loaded:
            return  # read during this pass: it stands there until the next one has joined both
        mark = history.mark(past, size)
        if self._marks.get(key) != mark:
            self._marks[key] = mark
            self._shards.put(key, history.to_record(past, size, now, entry.uid))

    def sent(self, entry: AutoscalerEntry, before: int, after: int, at: float) -> None:
        """Note a rescale at ``at`` whose answer was lost: it counts once its size is seen."""
        known = self._sent.get(entry.key, ())
        others = tuple(each for each in known if each.after != after and each.before == before)
        self._sent[entry.key] = (*others, _Sent(before, after, at))

    def _before(self, entry: AutoscalerEntry, hpa: HPA) -> tuple[Past, int | None]:
        """Return the history of the leaders before us, and the size that they left."""
        loaded = self._loaded.get(entry.key)
        if loaded is None or loaded.record.uid not in ("", entry.uid):
            return Past(), None
        return history.taken_over(loaded.record, loaded.alive_until, hpa), loaded.record.size

    def _joined(self, entry: AutoscalerEntry, hpa: HPA, known: Past, now: float) -> Past:
        """Return a history of this term with the stored one, which could be read only now."""
        loaded, found = self._loaded.pop(entry.key), self._found.pop(entry.key, None)
        if loaded.record.uid not in ("", entry.uid):
            return known
        past = history.from_record(loaded.record, loaded.alive_until)
        past = history.joined(history.shifted(past, self._behind_s, now), known)
        if found is not None:
            earliest = loaded.record.at + self._behind_s
            past = history.drifted(past, hpa, loaded.record.size, *found, earliest)
        self._pasts[entry.key] = past
        return past

    def _settled(self, entry: AutoscalerEntry, hpa: HPA, past: Past, size: int | None) -> Past:
        sent = self._sent.get(entry.key)
        if sent is None or size is None or size == sent[0].before:
            return past  # the watch may be behind
        del self._sent[entry.key]
        for each in sent:
            if each.after == size:
                past = remember_scale(past, hpa.behavior, each.before, size, each.at)
                self._pasts[entry.key] = past
        return past

    def adopt(self, entry: AutoscalerEntry, hpa: HPA) -> None:
        """Count a rescale of another controller as ours, once it stands in the status."""
        past = self._pasts.get(entry.key)
        if past is not None:
            self._pasts[entry.key] = history.adopted(past, hpa)

    def shift(self, by_s: float) -> None:
        """Follow a clock that was set; what is stored follows with the next pass."""
        self._behind_s += by_s  # of histories not looked at yet
        if self._unread_since is not None:
            self._unread_since += by_s
        for key, (size, at) in self._found.items():
            self._found[key] = size, at + by_s
        self._marks.clear()
        for key, past in self._pasts.items():
            self._pasts[key] = history.shifted(past, by_s)
        for key, sent in self._sent.items():
            self._sent[key] = tuple(structs.replace(each, at=each.at + by_s) for each in sent)

    def forget(self, key: Key) -> None:
        """Drop a deleted object."""
        self._pasts.pop(key, None)
        self._sizes.pop(key, None)
        self._marks.pop(key, None)
        self._loaded.pop(key, None)
        self._sent.pop(key, None)
        self._doubted.pop(key, None)
        self._found.pop(key, None)
        if self._shards is not None:
            self._shards.put(key, None)
