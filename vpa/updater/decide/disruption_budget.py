"""How many pods of one controller may be down at once because of the updater.

A group is the pods of one VPA with the same direct controller. It has a budget per loop:
evictions and in-place updates that have begun count against it. Follows upstream's
``pods_restriction_factory.go``, except where that leaves a group without any budget.
"""

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct

from podscale.core.disruptions import allowance
from vpa.admission.patches.boost import is_boosted
from vpa.model.api.objects import SizedPod, Vpa, controller_of, update_mode
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
    """The groups of one VPA during one loop, and what was done to them so far."""

    def __init__(self, groups: Mapping[Owner, PodGroup | TooFew]) -> None:
        self.groups = groups
        self._disrupted: dict[Owner, int] = {}
        self._lost: dict[Owner, int] = {}
        self._least: dict[Owner, float] = {}

    def group(self, pod: SizedPod) -> PodGroup | TooFew | None:
        """Return the pod's group; None for a pod without a controller."""
        controller = controller_of(pod)
        if controller is None:
            return None
        return self.groups.get(Owner(controller.kind, controller.name))

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
        """Return how many of its running pods the group has lost by others since."""
        return self._lost.get(group.owner, 0)

    def recount(self, group: PodGroup, lost: int, configured: int | None) -> None:
        """Take in what became of the group since the loop began; None: nobody can say.

        What came back meanwhile counts in the next loop.
        """
        self._lost[group.owner] = lost
        self._least[group.owner] = inf if configured is None else configured

    def began(self, group: PodGroup, pod: SizedPod, *, in_place: bool) -> None:
        """Count an eviction or an in-place update; evicting a pending pod costs nothing."""
        if in_place or pod.status.phase != "Pending":
            self._disrupted[group.owner] = self.disrupted(group) + 1


def budget_for(
    pods: Sequence[SizedPod], vpa: Vpa, sizes: Mapping[Owner, OwnerSize], settings: UpdaterSettings
) -> DisruptionBudget:
    """Return the budget of the VPA's live pods; ``sizes`` of their direct controllers."""
    policy = vpa.spec.update_policy
    required = settings.min_replicas
    if policy is not None and policy.min_replicas is not None:
        required = policy.min_replicas
    in_place = update_mode(vpa) in ("InPlace", "InPlaceOrRecreate")
    skips_count = in_place and settings.skip_disruption_budget
    members: dict[Owner, list[SizedPod]] = {}
    for pod in pods:
        controller = controller_of(pod)
        # A pod that nobody would replace is never touched.
        if controller is not None:
            members.setdefault(Owner(controller.kind, controller.name), []).append(pod)
    groups: dict[Owner, PodGroup | TooFew] = {}
    for owner, live in members.items():
        small = len(live) < required
        is_unboosting = any(is_boosted(pod.metadata.annotations) for pod in live)
        if small and not is_unboosting and not skips_count:
            groups[owner] = TooFew(owner, len(live), required)
            continue
        size = sizes.get(owner, OwnerSize())
        configured = configured_size(owner, size, len(live))
        if configured is None:
            groups[owner] = TooFew(owner, len(live), required)
            continue
        pending = sum(pod.status.phase == "Pending" for pod in live)
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
