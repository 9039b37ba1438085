"""Whether somebody else scales: read from who wrote an HPA's status or its target's size.

Kubernetes' own controller cannot be asked whether it runs, but it leaves its name in
``managedFields``. A status it wrote before we came is watched for two of its periods
before we touch the object; what it writes while we look makes us a bystander. Pure: times
are the caller's wall clock.
"""

from msgspec import Struct, structs

from hpa.cluster.catalog import Key
from hpa.cluster.objects import ManagedField

QUIET_S = 600.0  # silent for so long, another controller counts as gone
IN_TREE_PERIOD_S = 15.0
_OURS = "podscale"
_IN_TREE = "kube-controller-manager"
_PEOPLE = ("kubectl", "k9s", "helm", "argocd", "flux")


class _Rescales(Struct, frozen=True):
    """Who wrote the size of one target lately."""

    manager: str
    at: float
    is_autoscaler: bool


class ForeignControllers:
    """What is known of other controllers."""

    def __init__(self, started: float, sync_period_s: float) -> None:
        self._started = started
        self.probation_s = 2 * max(sync_period_s, IN_TREE_PERIOD_S) + 5
        self._writers: dict[Key, ManagedField] = {}  # the last foreign writer of each status
        self._first_seen: dict[Key, float] = {}
        self._live: dict[Key, float] = {}  # when a foreign write was seen as it happened
        self._active: dict[str, float] = {}  # manager → when it was seen writing anything
        self._rescales: dict[Key, _Rescales] = {}

    def note(self, key: Key, writer: ManagedField | None, now: float, *, is_first: bool) -> None:
        """Take in who wrote a status last; ``is_first``: we see the object for the first time."""
        self._first_seen.setdefault(key, now)
        if writer is None or not _counts(writer.manager):
            self._writers.pop(key, None)
            return
        known = self._writers.get(key)
        self._writers[key] = writer
        if not is_first and (known is None or known.time != writer.time):
            self._live[key] = now
            self._active[writer.manager] = now

    def note_rescale(
        self, key: Key, writer: ManagedField | None, sizes: tuple[int, int], now: float
    ) -> None:
        """Take in that the size of a target changed, from and to ``sizes``, as it happened."""
        # From and to zero is what activators do (KEDA), beside an autoscaler.
        if writer is None or not _counts(writer.manager) or not all(sizes):
            return
        known = self._rescales.get(key)
        is_again = (
            known is not None and known.manager == writer.manager and now - known.at < QUIET_S
        )
        # One write by a program nobody knows may be a person's; controllers come again.
        is_autoscaler = is_again or writer.manager == _IN_TREE
        self._rescales[key] = _Rescales(writer.manager, now, is_autoscaler)

    def shift(self, by_s: float) -> None:
        """Follow a clock that was set."""
        self._started += by_s
        for times in (self._first_seen, self._live):
            for key in times:
                times[key] += by_s
        for manager in self._active:
            self._active[manager] += by_s
        for key, each in self._rescales.items():
            self._rescales[key] = structs.replace(each, at=each.at + by_s)

    def forget(self, key: Key) -> None:
        """Drop what is known of a deleted object."""
        for known in (self._writers, self._first_seen, self._live, self._rescales):
            known.pop(key, None)

    def acting(self, key: Key, now: float) -> str | None:
        """Return the controller that scales this object, None where nobody else does."""
        rescales = self._rescales.get(key)
        if rescales is not None and rescales.is_autoscaler and now - rescales.at < QUIET_S:
            return rescales.manager
        writer = self._writers.get(key)
        if writer is None:
            return None
        if now - self._live.get(key, -QUIET_S) < QUIET_S:
            return writer.manager
        return writer.manager if self._is_active(writer.manager, now) else None

    def is_anyone_active(self, now: float) -> bool:
        """Whether any other controller was seen writing lately."""
        return any(self._is_active(manager, now) for manager in self._active) or any(
            each.is_autoscaler and now - each.at < QUIET_S for each in self._rescales.values()
        )

    def is_on_probation(self, key: Key, now: float) -> bool:
        """Whether it is too early to tell, so that nothing may be written yet."""
        since = max(self._started, self._first_seen.get(key, now))
        if now - since >= self.probation_s:
            return False
        if key in self._writers:
            return True
        # Never written: new, and whoever else acts in this cluster will come to it too.
        return any(self._is_active(manager, now) for manager in self._active) or (
            bool(self._writers) and now - self._started < self.probation_s
        )

    def _is_active(self, manager: str, now: float) -> bool:
        return now - self._active.get(manager, -QUIET_S) < QUIET_S


def _counts(manager: str) -> bool:
    return bool(manager) and not manager.startswith((_OURS, *_PEOPLE))
