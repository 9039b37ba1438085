"""What a pod requests, and what one on a node holds while it is resized. Pure.

Follows ``PodRequests`` of k8s.io/component-helpers/resource, Kubernetes 1.37. Thousandths; all
but CPU in whole units, rounded up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from podscale.kube.columns.pod_set import amounts
from podscale.kube.objects.pod import Container, PodCondition
from podscale.nodes.scheduling.objects import ScheduledPod

Requests = dict[str, int]
_Amounts = Mapping[str, int]


def summed(
    containers: Iterable[_Amounts], init_containers: Iterable[tuple[_Amounts, bool]]
) -> Requests:
    """Return the containers with the sidecars, or the init container that needs most beside the
    sidecars before it; of each init container it is said whether it is one."""
    running, sidecars = Counter[str](), Counter[str]()
    peak: _Amounts = {}
    for each in containers:
        running.update(each)
    for each, is_sidecar in init_containers:
        beside = sidecars + Counter(each)
        peak = _most(peak, beside)
        if is_sidecar:
            sidecars = beside
    running.update(sidecars)
    return _most(running, peak)


def requests(pod: ScheduledPod) -> Requests:
    """Return what the pod's spec requests of every resource."""
    pod_level = None if pod.spec.resources is None else amounts(pod.spec.resources.requests)
    return _with_overhead(pod, _summed(pod, _wanted) | (pod_level or {}))


def limits(pod: ScheduledPod) -> Requests:
    """Return what the pod's spec limits it to, of the resources that it has limits of."""
    pod_level = None if pod.spec.resources is None else amounts(pod.spec.resources.limits)
    found = _summed(pod, lambda container: amounts(container.resources.limits))
    return _with_overhead(pod, found | (pod_level or {}))


def pending_resize(pod: ScheduledPod) -> PodCondition | None:
    """Return the condition by which a resize waits."""
    return next((each for each in pod.status.conditions if each.type == "PodResizePending"), None)


def held_requests(pod: ScheduledPod, *, is_later: bool = False) -> Requests:
    """Return what counts of a pod on a node: the most of what its spec wants, what the kubelet
    allocated and what is in force; the spec not, where the node can never give it, nor where the
    resize's turn ``is_later``."""
    spec, status = pod.spec, pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return requests(pod)
    pending = pending_resize(pod)
    is_left_out = is_later or (pending is not None and pending.reason == "Infeasible")
    known = {each.name: each
             for each in (*status.init_container_statuses, *status.container_statuses)}  # fmt: skip

    def allocated(container: Container) -> _Amounts:
        own = known.get(container.name)
        if own is not None and own.allocated_resources is not None:
            return amounts(own.allocated_resources)
        return {} if is_left_out else _wanted(container)

    def in_force(container: Container) -> _Amounts:
        own = known.get(container.name)
        if own is None or own.resources is None or own.resources.requests is None:
            return allocated(container)
        return amounts(own.resources.requests)

    pod_allocated = amounts(status.allocated_resources)
    pod_in_force = {} if status.resources is None else amounts(status.resources.requests)
    if pod_allocated and pod_in_force:
        lists = [pod_allocated, pod_in_force]
    else:
        lists = [_summed(pod, allocated), _summed(pod, in_force)]
    if not is_left_out:
        lists.append(_summed(pod, _wanted))
    found = _most(*lists)
    if spec.resources is not None and spec.resources.requests:
        own = amounts(spec.resources.requests)
        if status.resources is not None:
            own = _most({} if is_left_out else own, pod_in_force, pod_allocated)
        found |= own
    return _with_overhead(pod, found)


def _wanted(container: Container) -> _Amounts:
    return amounts(container.resources.requests)


def _summed(pod: ScheduledPod, of: Callable[[Container], _Amounts]) -> Requests:
    init = ((of(each), each.restart_policy == "Always") for each in pod.spec.init_containers)
    return summed(map(of, pod.spec.containers), init)


def _most(*lists: _Amounts) -> Requests:
    names = {name for each in lists for name in each}
    return {name: max(each.get(name, 0) for each in lists) for name in names}


def _with_overhead(pod: ScheduledPod, found: Requests) -> Requests:
    total = Counter(found)
    total.update(amounts(pod.spec.overhead))
    return {name: amount if name == "cpu" else -(-amount // 1000) * 1000
            for name, amount in total.items()}  # fmt: skip
