"""What a pod requests, and what one on a node holds while it is resized. Pure.

Follows ``PodRequests`` of k8s.io/component-helpers/resource, Kubernetes 1.37. Thousandths; all
but CPU in whole units, rounded up.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from podscale.kube.columns.pod_shapes import amounts
from podscale.nodes.scheduling.objects import ScheduledContainer, ScheduledPod

Requests = dict[str, int]
_Amounts = Callable[[ScheduledContainer], Mapping[str, int]]


class ContainerAmounts(Struct, frozen=True):
    """One container's requests, in thousandths."""

    requests: Mapping[str, int]
    is_sidecar: bool = False  # an init container that stays


def pod_request(
    resource: str,
    containers: Sequence[ContainerAmounts],
    init_containers: Sequence[ContainerAmounts],
    *,
    pod_level: Mapping[str, int] | None = None,
    overhead: Mapping[str, int] | None = None,
) -> int:
    """Return thousandths of ``resource``: the containers with the sidecars, or the init container
    that needs most beside the sidecars before it; the pod's own word goes before theirs."""
    total = (pod_level or {}).get(resource)
    if total is None:
        running = sum(each.requests.get(resource, 0) for each in containers)
        sidecars = peak = 0
        for each in init_containers:
            amount = each.requests.get(resource, 0)
            if each.is_sidecar:
                sidecars += amount
                peak = max(peak, sidecars)
            else:
                peak = max(peak, sidecars + amount)
        total = max(running + sidecars, peak)
    return total + (overhead or {}).get(resource, 0)


def requests(pod: ScheduledPod) -> Requests:
    """Return what the pod's spec requests of every resource."""
    spec = pod.spec
    pod_level = None if spec.resources is None else amounts(spec.resources.requests)
    return _with_overhead(pod, _summed(pod, _wanted) | (pod_level or {}))


def limits(pod: ScheduledPod) -> Requests:
    """Return what the pod's spec limits it to, of the resources that it has limits of."""
    pod_level = None if pod.spec.resources is None else amounts(pod.spec.resources.limits)
    found = _summed(pod, lambda container: amounts(container.resources.limits))
    return _with_overhead(pod, found | (pod_level or {}))


def held_requests(pod: ScheduledPod) -> Requests:
    """Return what counts of a pod on a node: the most of what its spec wants, what the kubelet
    allocated and what is in force; the spec not, where the node can never give it."""
    spec, status = pod.spec, pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return requests(pod)
    pending = next((each for each in status.conditions if each.type == "PodResizePending"), None)
    is_infeasible = pending is not None and pending.reason == "Infeasible"
    given = {each.name: each
             for each in (*status.init_container_statuses, *status.container_statuses)}  # fmt: skip

    def allocated(container: ScheduledContainer) -> Mapping[str, int]:
        found = given.get(container.name)
        if found is not None and found.allocated_resources is not None:
            return amounts(found.allocated_resources)
        return {} if is_infeasible else _wanted(container)

    def in_force(container: ScheduledContainer) -> Mapping[str, int]:
        found = given.get(container.name)
        if found is None or found.resources is None or found.resources.requests is None:
            return allocated(container)
        return amounts(found.resources.requests)

    pod_allocated = amounts(status.allocated_resources)
    pod_in_force = {} if status.resources is None else amounts(status.resources.requests)
    if pod_allocated and pod_in_force:
        lists = [pod_allocated, pod_in_force]
    else:
        lists = [_summed(pod, allocated), _summed(pod, in_force)]
    if not is_infeasible:
        lists.append(_summed(pod, _wanted))
    found = _most(*lists)
    if spec.resources is not None and spec.resources.requests:
        own = amounts(spec.resources.requests)
        if status.resources is not None:
            own = _most({} if is_infeasible else own, pod_in_force, pod_allocated)
        found |= own
    return _with_overhead(pod, found)


def _wanted(container: ScheduledContainer) -> Mapping[str, int]:
    return amounts(container.resources.requests)


def _summed(pod: ScheduledPod, of: _Amounts) -> Requests:
    containers, init = (
        [ContainerAmounts(of(each), each.restart_policy == "Always") for each in some]
        for some in (pod.spec.containers, pod.spec.init_containers)
    )
    names = {name for each in (*containers, *init) for name in each.requests}
    return {name: pod_request(name, containers, init) for name in names}


def _most(*lists: Mapping[str, int]) -> Requests:
    names = {name for each in lists for name in each}
    return {name: max(each.get(name, 0) for each in lists) for name in names}


def _with_overhead(pod: ScheduledPod, found: Requests) -> Requests:
    overhead = amounts(pod.spec.overhead)
    for name in overhead:
        found[name] = found.get(name, 0) + overhead[name]
    return {name: amount if name == "cpu" else -(-amount // 1000) * 1000
            for name, amount in found.items()}  # fmt: skip
