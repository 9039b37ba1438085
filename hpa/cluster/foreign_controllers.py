"""Whether somebody else scales: read from who wrote an HPA's status or its target's size.

Kubernetes' own controller cannot be asked whether it runs, but it leaves its name in
``managedFields``. A status it wrote before we came is watched for two of its periods
before we touch the object; what it writes while we look makes us a bystander. Pure: the
caller brings the times, which are monotonic.

Whoever edits an HPA may put any name into its ``managedFields``. What a name wrote in one
namespace says that it acts there; that it acts everywhere takes two namespaces.
"""

from itertools import islice

from hpa.cluster.record import ForeignRescale, ForeignWrites
from hpa.cluster.stores import is_unreadable
from podscale.kube.client.wire import UNREADABLE_MANAGER, ManagedField

QUIET_S = 600.0  # silent for so long, another controller counts as gone
IN_TREE_PERIOD_S = 15.0
_OURS = "podscale"
_IN_TREE = "kube-controller-manager"
_PEOPLE = ("kubectl", "k9s", "helm", "argocd", "flux")


class ForeignControllers:
    """What is known of other controllers beside what each did to one autoscaler."""

    def __init__(self, started: float, sync_period_s: float) -> None:
        self._started = started
        self.probation_s = 2 * max(sync_period_s, IN_TREE_PERIOD_S) + 5
        # manager → namespace → when it was seen writing there; the latest last
        self._active: dict[str, dict[str, float]] = {}
        self._written = 0  # autoscalers whose status others wrote last

    def note(
        self, seen: ForeignWrites, writer: ManagedField | None, now: float, *, is_first: bool
    ) -> None:
        """Take in who wrote a status last; ``is_first``: we see the object for the first time."""
        if seen.first_seen is None:
            seen.first_seen = now
        seen.is_unreadable = is_unreadable(writer)
        if writer is not None and not _counts(writer.manager):
            writer = None
        known, seen.writer = seen.writer, writer
        self._written += (writer is not None) - (known is not None)
        if writer is not None and not is_first and (known is None or known.time != writer.time):
            seen.live_at = now
            self._note_active(writer.manager, seen.namespace, now)

    def note_rescale(
        self, seen: ForeignWrites, writer: ManagedField | None, sizes: tuple[int, int], now: float
    ) -> None:
        """Take in that the size of a target changed, from and to ``sizes``, as it happened."""
        # From and to zero is what activators do (KEDA), beside an autoscaler.
        if writer is None or not _counts(writer.manager) or not all(sizes):
            return
        known = seen.rescale
        is_again = (
            known is not None and known.manager == writer.manager and now - known.at < QUIET_S
        )
        # One write by a program nobody knows may be a person's; controllers come again.
        is_autoscaler = is_again or writer.manager == _IN_TREE
        seen.rescale = ForeignRescale(writer.manager, now, is_autoscaler)

    def forget(self, seen: ForeignWrites) -> None:
        """Count a deleted object no more."""
        self._written -= seen.writer is not None

    def acting(self, seen: ForeignWrites, now: float) -> str | None:
        """Return the controller that scales this object, None where nobody else does.

        ``UNREADABLE_MANAGER``: who does cannot be read.
        """
        if seen.is_unreadable or seen.is_target_unreadable:
            return UNREADABLE_MANAGER
        rescale = seen.rescale
        if rescale is not None and rescale.is_autoscaler and now - rescale.at < QUIET_S:
            return rescale.manager
        writer = seen.writer
        if writer is None:
            return None
        is_live = seen.live_at is not None and now - seen.live_at < QUIET_S
        if is_live or self._is_active(writer.manager, seen.namespace, now):
            return writer.manager
        return None

    def is_on_probation(self, seen: ForeignWrites, now: float) -> bool:
        """Whether it is too early to tell, so that nothing may be written yet."""
        since = now if seen.first_seen is None else max(self._started, seen.first_seen)
        if now - since >= self.probation_s:
            return False
        if seen.writer is not None:
            return True
        # Never written: new, and whoever else acts in this cluster will come to it too. A name
        # that somebody made up puts it off once, so that any namespace's counts.
        return self._is_any_writing(now) or (
            self._written > 0 and now - self._started < self.probation_s
        )

    def must_watch(self, seen: ForeignWrites, now: float) -> bool:
        """Whether another controller scales this object, or may yet turn out to."""
        return self.acting(seen, now) is not None or self.is_on_probation(seen, now)

    def _note_active(self, manager: str, namespace: str, now: float) -> None:
        active = self._active.pop(manager, {})
        active.pop(namespace, None)
        active[namespace] = now
        if now - next(iter(active.values())) >= QUIET_S:
            del active[next(iter(active))]
        self._active = {
            name: namespaces
            for name, namespaces in self._active.items()
            if now - next(reversed(namespaces.values())) < QUIET_S
        }
        self._active[manager] = active

    def _is_any_writing(self, now: float) -> bool:
        latest = (next(reversed(active.values())) for active in self._active.values())
        return any(now - at < QUIET_S for at in latest)

    def _is_active(self, manager: str, namespace: str, now: float) -> bool:
        active = self._active.get(manager, {})
        elsewhere = next(islice(reversed(active.values()), 1, None), -QUIET_S)
        return now - max(active.get(namespace, -QUIET_S), elsewhere) < QUIET_S


def _counts(manager: str) -> bool:
    # UNREADABLE_MANAGER begins as ours do: it says nothing of other objects.
    return bool(manager) and not manager.startswith((_OURS, *_PEOPLE))
