"""What a decision about a pod looks at: its VPA's pods, their owners, node, budgets and resizes.

Reads the watches, asks for nothing that they show, and remembers what no object says: since
when a resize is seen, and which acts have not shown their effect yet.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog
from msgspec import Struct

from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.core.pace import LoopPace
from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.client.api import WATCH_OPENS_S
from podscale.kube.columns.pods import PodView
from podscale.kube.informer.fed_store import Change
from podscale.kube.informer.list_watch import DEFAULT_RHYTHM
from podscale.kube.informer.store import Store
from podscale.kube.objects import vpa as objects
from podscale.kube.objects.cluster import PodDisruptionBudget
from podscale.kube.objects.scale import ReplicationController, Workload
from vpa.admission.matching import (
    Candidate,
    OwningController,
    TargetIndex,
    match,
    seniority,
    target_of,
)
from vpa.model.samples.membership import VpaKey
from vpa.stores import VpaStores
from vpa.updater.cluster.pod_disruptor import INFEASIBLE
from vpa.updater.decide import resize
from vpa.updater.decide.decision import Pdb, UpdatedPod
from vpa.updater.decide.disruption_budget import Owner, OwnerSize

# Labels that differ between pods of one controller by themselves, so that no budget is meant
# to tell pods apart by them.
_PER_POD = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "leaderworkerset.sigs.k8s.io/group-index",
        "leaderworkerset.sigs.k8s.io/worker-index",
        "apps.kruise.io/cloneset-instance-id",
    }
)


class BudgetedPods(Struct, frozen=True):
    """What pods have in common of which the API server says the same."""

    controller: str
    budgets: frozenset[str]  # names of those that cover the pod, as far as they are known
    labels: frozenset[tuple[str, str]]  # where none is: what one may select by
    phase: int
    ready: int  # a budget may let those go that are not (unhealthyPodEvictionPolicy)


def alike_to(pod: PodView, budgets: Store[PodDisruptionBudget]) -> BudgetedPods:
    """Return what a pod has in common with those that hear the same as it."""
    name = pod.owner.name if pod.owner is not None else pod.name
    covering = frozenset(budget.metadata.name for budget in _covering(pod, budgets))
    labels = frozenset(
        (key, value)
        for key, value in pod.labels.items()
        if key not in _PER_POD and value != pod.name
    )
    return BudgetedPods(name, covering, frozenset() if covering else labels, pod.phase, pod.ready)


def refusal(pod: PodView, budgets: Store[PodDisruptionBudget]) -> Pdb | None:
    """Return the budget that covers the pod and what it says now; None where none is known.

    The API server decides; this only spares it questions whose answer is known. A watch that is
    not current says nothing: then it is asked. Follows the eviction subresource
    (``pkg/registry/core/pod/storage/eviction.go``, Kubernetes 1.36).
    """
    # A pod that does not run yet may always go.
    if pod.phase == PodPhase.PENDING or not budgets.is_synced or not budgets.is_current():
        return None
    covering = _covering(pod, budgets)
    if not covering:
        return None
    if len(covering) > 1:
        # The eviction subresource answers 500 to a pod with several budgets, always.
        return Pdb(", ".join(sorted(budget.metadata.name for budget in covering)), True)
    (budget,) = covering
    # A pod that is not ready may go while enough others are (unhealthyPodEvictionPolicy), which
    # is left to the API server; and a status may be of an older spec.
    refuses = (
        budget.status.observed_generation >= budget.metadata.generation
        and budget.status.disruptions_allowed <= 0
        and pod.ready == PodReadiness.TRUE
    )
    return Pdb(budget.metadata.name, refuses)


def _covering(pod: PodView, budgets: Store[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    return [budget for budget in budgets.values(pod.namespace) if budget.covers(pod.labels)]


_log = structlog.get_logger()

_UPDATING = frozenset({"Recreate", "Auto", "InPlaceOrRecreate", "InPlace"})
_ANSWER_S = 10.0  # the answer to an act may take as long, and the act be later than we think
_MOST_RIVALS = 8  # of a VPA that are looked at
_SIZE_S = 20.0  # how long the size of a scale is believed before pods are disturbed


class PodObserver:
    """Reads the surroundings of pods; ``forget`` after every complete pass."""

    def __init__(
        self,
        stores: VpaStores,
        interval_s: float = 60.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is monotonic: neither a resize nor an act grows older because somebody sets
        the time."""
        self._stores = stores
        self._clock = clock
        # Only then the watch has shown an act, had it happened: what is believed may be as old
        # as the silence and a new watch's answer, and is looked at once per interval.
        self._settled_s = interval_s + DEFAULT_RHYTHM.silence_s + WATCH_OPENS_S + _ANSWER_S
        self._resizing: dict[str, float] = {}  # pod UID: when its resize was first seen
        self._refused: dict[
            str, objects.VpaRecommendation
        ] = {}  # pod UID: what its node cannot give
        self._acted: dict[str, tuple[float, bool]] = {}  # pod UID: when, in place
        self._topmost: dict[str, OwningController | None] = {}

    async def index(self, *, unboosts: bool = False) -> Mapping[VpaKey, Sequence[Candidate]]:
        """Return the VPAs that may act, each with all that share its target, itself first.

        ``unboosts``: those too that can only take back a boost which somebody configured
        once, of pods that no other VPA acts on.
        """
        self._topmost.clear()
        acting, idle = TargetIndex(), TargetIndex()
        named: dict[VpaKey, Candidate] = {}
        self._stores.workloads.ask_ahead(
            (key.namespace, vpa.spec.target_ref) for key, vpa in self._stores.all_vpas()
        )
        for key, vpa in self._stores.all_vpas():
            # Modes that touch no running pod still win over younger VPAs only if they would act.
            if target_of(vpa) is None or not (unboosts or acts(vpa)):
                continue
            try:
                resolved = await self._stores.workloads.resolve(key.namespace, vpa.spec.target_ref)
            except Exception:  # noqa: BLE001 - a bad VPA affects itself only
                _log.exception("VPA passed over", **key._asdict())
                continue
            named[key] = Candidate(vpa, resolved.selector)
            (acting if acts(vpa) else idle).put(named[key])
        found: dict[VpaKey, Sequence[Candidate]] = {}
        for target in {target_of(candidate.vpa): None for candidate in named.values()}:
            # One target has one selector: who shares the target shares all pods, and of those
            # the eldest decide, however many somebody made.
            rivals = (acting.of(target) or idle.of(target)) if target is not None else ()
            eldest = sorted(rivals, key=lambda each: (each.selector is None, seniority(each.vpa)))
            for candidate in rivals:
                others = tuple(each for each in eldest[:_MOST_RIVALS] if each is not candidate)
                meta = candidate.vpa.metadata
                found[VpaKey(meta.namespace, meta.name)] = (candidate, *others)
        return found

    async def pods_of(self, rivals: Sequence[Candidate]) -> tuple[list[PodView], list[PodView]]:
        """Return the pods about which the first of ``rivals`` decides: those that live, and those
        that no node has been found for."""
        candidate = rivals[0]
        vpa, selector = candidate.vpa, candidate.selector
        if selector is None or any(
            other.selector == selector and seniority(other.vpa) < seniority(vpa)
            for other in rivals[1:]
        ):
            return [], []
        live: list[PodView] = []
        unscheduled: list[PodView] = []
        pace = LoopPace()
        for view in self._stores.pods.select(vpa.metadata.namespace, selector).views():
            await pace.rest()
            if (
                _is_there(view)
                and await self._top(view) == target_of(vpa)
                and match(view.labels, rivals) is candidate
            ):
                (live if view.node else unscheduled).append(view)
        return live, unscheduled

    def again(self, pod: PodView) -> PodView | None:
        """Return the pod as it is by now; None if it is gone, leaving or another one."""
        present = self._stores.pods.get(pod.namespace, pod.name)
        return present if present and present.uid == pod.uid and _is_live(present) else None

    def follow(self, told: Callable[[str, bool], None]) -> Callable[[], None]:
        """Call ``told`` with the UID of a pod that changes and whether it lives; returns the way
        out."""

        def changed(change: Change[PodView]) -> None:
            if change.new is not None:
                told(change.new.uid, _is_live(change.new))
            elif change.old is not None:
                told(change.old.uid, False)

        return self._stores.pods.subscribe(changed)

    def look(
        self,
        pod: PodView,
        vpa: objects.Vpa,
        rivals: Sequence[objects.Vpa],
        *,
        disrupted_today: int,
        asks_budgets: bool,
    ) -> UpdatedPod:
        """Return all that a decision about one pod looks at.

        ``asks_budgets``: also the PodDisruptionBudgets, which only matters just before an act.
        """
        return UpdatedPod(
            pod=pod,
            vpa=vpa,
            rivals=tuple(rivals),
            ranges=self._stores.ranges(pod.namespace),
            resize_since_s=self.resize_since_s(pod),
            was_refused=self._refused.get(pod.uid) or remembered_recommendation(pod),
            allocatable=self._allocatable(pod.node),
            pdb=refusal(pod, self._stores.budgets) if asks_budgets else None,
            disrupted_today=disrupted_today,
        )

    def resize_since_s(self, pod: PodView) -> float:
        """Return for how long the pod's resize has been seen, in whatever states: one that
        alternates between them is waited for no longer than one that stays in the last.
        """
        uid = pod.uid
        if resize.state_of(pod) == "ResizeNone":
            self._resizing.pop(uid, None)
            return 0.0
        now = self._clock()
        return now - self._resizing.setdefault(uid, now)

    def acted(self, pod: PodView, *, in_place: bool) -> None:
        """Note an act whose effect no watch has shown yet, or that may have had none."""
        self._acted[pod.uid] = (self._clock(), in_place)

    def unsettled(self, pod: PodView) -> bool | None:
        """Return whether what was begun with a live pod was in place; None: nothing was."""
        known = self._acted.get(pod.uid)
        if known is None or self._clock() - known[0] >= self._settled_s:
            return None
        return known[1]

    def refused(self, pod: PodView, recommendation: objects.VpaRecommendation) -> None:
        """Remember a size that the pod's node cannot give."""
        self._refused[pod.uid] = recommendation

    def forget(self, seen: set[str]) -> None:
        """Drop what is known about pods that a complete pass did not see."""
        for known in (self._resizing, self._refused, self._acted):
            for uid in [uid for uid in known if uid not in seen]:
                del known[uid]

    async def sizes(self, pods: Sequence[PodView]) -> dict[Owner, OwnerSize]:
        """Return how many pods their direct controllers should have."""
        sizes: dict[Owner, OwnerSize] = {}
        for pod in pods:
            controller = pod.owner
            if controller is None:
                continue
            owner = Owner(controller.kind, controller.name)
            if owner in sizes:
                continue
            found = self._stores.workloads.find(pod.namespace, owner.kind, owner.name)
            if isinstance(found, Workload):
                status = found.status
                sizes[owner] = OwnerSize(found.spec.replicas, status.desired_number_scheduled)
            elif isinstance(found, ReplicationController):
                sizes[owner] = OwnerSize(found.spec.replicas)
            elif found is None:
                sizes[owner] = await self._scaled(pod.namespace, controller.api_version, owner)
        return sizes

    async def _scaled(self, namespace: str, api_version: str, owner: Owner) -> OwnerSize:
        # Unlike the selector, the size is somebody's to change at any time.
        asked = await self._stores.workloads.scales.get(
            namespace, api_version, owner.kind, owner.name, fresh_s=_SIZE_S
        )
        return OwnerSize(asked.scale.spec.replicas if asked.scale is not None else None)

    async def _top(self, view: PodView) -> OwningController | None:
        owner = view.owner
        if owner is None:
            return None
        if owner.uid not in self._topmost:
            top = await self._stores.workloads.topmost(view.namespace, owner)
            self._topmost[owner.uid] = top
        return self._topmost[owner.uid]

    def _allocatable(self, node: str) -> objects.ResourceList | None:
        found = self._stores.nodes.get("", node)
        if found is None or found.status.allocatable is None:
            return None
        try:
            return objects.ResourceList(
                {name: quantity.from_wire(v) for name, v in found.status.allocatable.items()}
            )
        except quantity.QuantityError:
            return None


def acts(vpa: objects.Vpa) -> bool:
    """Return whether the VPA may touch running pods, be it to end the boosts that it gives."""
    return objects.update_mode(vpa) in _UPDATING or objects.has_startup_boost(vpa)


def _is_live(view: PodView) -> bool:
    return bool(view.node) and _is_there(view)


def _is_there(view: PodView) -> bool:
    is_over = view.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
    return not is_over and view.deleted != view.deleted  # NaN: not deleted


def remembered_recommendation(pod: PodView) -> objects.VpaRecommendation | None:
    """Return what the annotation says was infeasible; None where that cannot be read."""
    text = pod.annotations.get(INFEASIBLE)
    if text is None:
        return None
    try:
        return objects.decode(decode_json(text), objects.VpaRecommendation)
    except (objects.ObjectError, msgspec.DecodeError):
        return None
