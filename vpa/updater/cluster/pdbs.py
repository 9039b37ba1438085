"""Which PodDisruptionBudget would refuse to let a pod go: a look before an eviction is sent.

The API server decides; this only spares it questions whose answer is known. Follows the
eviction subresource (``pkg/registry/core/pod/storage/eviction.go``, Kubernetes 1.36).
"""

from msgspec import Struct

from podscale.core.pod_state import PodPhase, PodReadiness
from podscale.kube.columns.pods import PodView
from podscale.kube.informer.store import Store
from podscale.kube.objects.cluster import PodDisruptionBudget
from vpa.updater.decide.decision import Pdb

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
    covering = frozenset(
        budget.metadata.name
        for budget in budgets.values(pod.namespace)
        if budget.covers(pod.labels)
    )
    labels = frozenset(
        (key, value)
        for key, value in pod.labels.items()
        if key not in _PER_POD and value != pod.name
    )
    return BudgetedPods(name, covering, frozenset() if covering else labels, pod.phase, pod.ready)


def refusal(pod: PodView, budgets: Store[PodDisruptionBudget]) -> Pdb | None:
    """Return the budget that covers the pod and what it says now; None where none is known.

    A watch that is not current says nothing: then the API server is asked.
    """
    # A pod that does not run yet may always go.
    if pod.phase == PodPhase.PENDING or not budgets.is_synced or not budgets.is_current():
        return None
    covering = [budget for budget in budgets.values(pod.namespace) if budget.covers(pod.labels)]
    if not covering:
        return None
    if len(covering) > 1:
        # The eviction subresource answers 500 to a pod with several budgets, always.
        return Pdb(", ".join(sorted(budget.metadata.name for budget in covering)), True)
    return Pdb(covering[0].metadata.name, _refuses(covering[0], pod))


def _refuses(budget: PodDisruptionBudget, pod: PodView) -> bool:
    status = budget.status
    if status.observed_generation < budget.metadata.generation:
        return False  # the status is of an older spec
    # A pod that is not ready may go while enough others are (unhealthyPodEvictionPolicy), which
    # is left to the API server.
    return status.disruptions_allowed <= 0 and pod.ready == PodReadiness.TRUE
