"""How many pods of one controller may be down at once because of the updater, and how fast.

A group is the pods of one VPA with the same direct controller. It has a budget per loop:
evictions and in-place updates that have begun count against it. Follows upstream's
``pods_restriction_factory.go``, except where that leaves a group without any budget.
"""

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct

from podscale.core.disruptions import allowance
from podscale.core.pod_state import PodPhase
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects.vpa import Vpa, update_mode
from vpa.admission.patches.boost import is_boosted
from vpa.updater.decide.priority import UpdaterSettings

# Kinds whose desired size is known to be written in the object.
_SIZED = frozenset({"ReplicationController", "ReplicaSet", "StatefulSet", "DaemonSet"})


class Owner(Struct, frozen=True):
    """A direct controller of pods, within one namespace."""

    kind: str
    name: str


class OwnerSize(Struct, frozen=True):
    """How many pods a controller should have; None: the object does not say."""

    replicas: int | None = None  # spec.replicas, of the object or of its scale
    desired: int | None = None  # status.desiredNumberScheduled of a DaemonSet


class PodGroup(Struct, frozen=True):
    """A group at the begin of the loop."""

    owner: Owner
    live: int
    pending: int
    running: int  # live and not pending, ready or not
    configured: int
    tolerance: int
    required: int  # of live pods, before anything is touched
    eviction_forbidden: bool = False  # too few pods; only in-place updates may go on
    only_unboosts: bool = False  # too few pods; kept for the ends of their boosts


class TooFew(Struct, frozen=True):
    """A group that is not touched: too small, or of unknown size."""

    owner: Owner
    live: int
    required: int


class DisruptionBudget:
    """The groups of one VPA during its turn: what was begun with their pods, what they lost since
    by others, and which of them are left alone."""

    def __init__(self, groups: Mapping[Owner, PodGroup | TooFew]) -> None:
        self.groups = groups
        self.ended: dict[Owner, str] = {}  # groups left alone for the rest of the turn, and why
        self._begun: dict[str, Owner] = {}  # pods that were evicted or resized, by UID
        self._disrupted: dict[Owner, int] = {}
        # UIDs of pods that ran when the turn began, and to which we did nothing since.
        self._running: dict[str, Owner] = {}
        self._gone: dict[Owner, set[str]] = {}  # those of them that are gone
        self._lost: dict[Owner, int] = {}  # so many of them count
        self._least: dict[Owner, float] = {}

    def group(self, pod: PodView) -> PodGroup | TooFew | None:
        """Return the pod's group; None for a pod without a controller."""
        return self.groups.get(Owner(pod.owner.kind, pod.owner.name)) if pod.owner else None

    def disrupted(self, group: PodGroup) -> int:
        """Return how many pods of the group this loop has evicted or begun to resize."""
        return self._disrupted.get(group.owner, 0)

    def allows(self, group: PodGroup) -> bool:
        """Return whether one more running pod may go down."""
        begun = self.disrupted(group)
        running = group.running - self.lost(group)
        configured = max(group.configured, self._least.get(group.owner, 0))
        return begun < allowance(configured, running, group.tolerance)

    def lost(self, group: PodGroup) -> int:
        """Return how many of its running pods the group had lost by others when last counted."""
        return self._lost.get(group.owner, 0)

    def recount(self, group: PodGroup, size: OwnerSize) -> bool:
        """Take in what became of the group since the loop began; returns whether that leaves it
        less. What came back meanwhile counts in the next loop."""
        could = self.allows(group)
        configured = configured_size(group.owner, size, group.live)
        self._lost[group.owner] = len(self._gone.get(group.owner, ()))
        self._least[group.owner] = inf if configured is None else configured
        return could and not self.allows(group)

    def began(self, group: PodGroup, pod: PodView, *, in_place: bool) -> None:
        """Count an eviction or an in-place update; evicting a pending pod costs nothing."""
        uid = pod.uid
        self._begun[uid] = group.owner
        self._running.pop(uid, None)
        self._gone.get(group.owner, set()).discard(uid)
        if in_place or pod.phase != PodPhase.PENDING:
            self._disrupted[group.owner] = self.disrupted(group) + 1

    def watch(self, pod: PodView, *, is_live: bool) -> None:
        """Take in a pod that the turn begins with: that it is gone counts from now on."""
        group, uid = self.group(pod), pod.uid
        is_running = pod.phase != PodPhase.PENDING and uid not in self._begun
        if isinstance(group, PodGroup) and is_running:
            self._running[uid] = group.owner
            self.changed(uid, is_live)

    def changed(self, uid: str, is_live: bool) -> None:
        """Take in what the watch shows of a pod of any group."""
        owner = self._running.get(uid)
        if owner is not None:
            gone = self._gone.setdefault(owner, set())
            (gone.discard if is_live else gone.add)(uid)


def budget_for(
    pods: Sequence[PodView], vpa: Vpa, sizes: Mapping[Owner, OwnerSize], settings: UpdaterSettings
) -> DisruptionBudget:
    """Return the budget of the VPA's live pods; ``sizes`` of their direct controllers."""
    policy = vpa.spec.update_policy
    required = settings.min_replicas
    if policy is not None and policy.min_replicas is not None:
        required = policy.min_replicas
    in_place = update_mode(vpa) in ("InPlace", "InPlaceOrRecreate")
    skips_count = in_place and settings.skip_disruption_budget
    members: dict[Owner, list[PodView]] = {}
    for pod in pods:
        # A pod that nobody would replace is never touched.
        if pod.owner is not None:
            members.setdefault(Owner(pod.owner.kind, pod.owner.name), []).append(pod)
    groups: dict[Owner, PodGroup | TooFew] = {}
    for owner, live in members.items():
        small = len(live) < required
        is_unboosting = any(is_boosted(pod) for pod in live)
        if small and not is_unboosting and not skips_count:
            groups[owner] = TooFew(owner, len(live), required)
            continue
        size = sizes.get(owner, OwnerSize())
        configured = configured_size(owner, size, len(live))
        if configured is None:
            groups[owner] = TooFew(owner, len(live), required)
            continue
        pending = sum(pod.phase == PodPhase.PENDING for pod in live)
        groups[owner] = PodGroup(
            owner=owner,
            live=len(live),
            pending=pending,
            running=len(live) - pending,
            configured=configured,
            tolerance=int(configured * settings.eviction_tolerance),
            required=required,
            eviction_forbidden=small and skips_count,
            only_unboosts=small and not skips_count,
        )
    return DisruptionBudget(groups)


def configured_size(owner: Owner, size: OwnerSize, live: int) -> int | None:
    """Return how many pods the group should have; None if that must be known and is not.

    A Job, and a controller of a kind that we do not know and that has no scale, has the
    pods that live: upstream gives unknown kinds 0, and with it no budget at all (D2).
    """
    if owner.kind == "DaemonSet":
        # Not numberReady: daemons that all fail for lack of memory need the update most.
        return size.desired or None
    if owner.kind in _SIZED:
        return size.replicas or None
    if owner.kind == "Job":
        return live
    # A scale that was read before it grew must not make all that came since dispensable.
    return max(size.replicas or live, live)


SPENT = "vpa.podscale.io/disruptions"  # ours: "2026-11-21T14:3, …", hours of UTC, their counts


class EvictionRate(Struct, frozen=True):
    """Actions per second and how many at once; None: no limit."""

    rate: float | None
    burst: int


class TokenBucket:
    """Actions at a rate, for those who may wait, and may find that it takes too long."""

    def __init__(self, limit: EvictionRate) -> None:
        self._interval_s = 1.0 / limit.rate if limit.rate else 0.0
        self._slack_s = self._interval_s * (max(limit.burst, 1) - 1)
        self._next = float("-inf")

    def wait_s(self, now: float) -> float:
        """Return seconds until the next action; asking takes nothing."""
        return max(self._next - now, 0.0) if self._interval_s else 0.0

    def take(self, now: float) -> None:
        """Count an action that begins."""
        self._next = max(self._next, now - self._slack_s) + self._interval_s


def rate_limit(rate: float, burst: int) -> EvictionRate:
    """Return the limiter of ``--eviction-rate-limit`` and ``-burst``: 0 or less is none."""
    return EvictionRate(None, 0) if rate <= 0 else EvictionRate(rate, burst)


def is_unchanged(present: Vpa | None, known: Vpa) -> bool:
    """Return whether what an owner wrote is unchanged; the day's count is our own."""
    return present is known or (
        present is not None
        and present.metadata.uid == known.metadata.uid
        and present.spec == known.spec
        and _wishes(present) == _wishes(known)
    )


def _wishes(vpa: Vpa) -> dict[str, str]:
    given = vpa.metadata.annotations or {}
    return {key: value for key, value in given.items() if key != SPENT}
