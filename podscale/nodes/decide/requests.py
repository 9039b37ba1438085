"""What a pod requests, as the scheduler counts it. Pure.

Follows ``PodRequests`` of k8s.io/component-helpers/resource, Kubernetes 1.37.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct


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
    found = (pod_level or {}).get(resource)
    if found is None:
        running = sum(each.requests.get(resource, 0) for each in containers)
        sidecars = peak = 0
        for each in init_containers:
            amount = each.requests.get(resource, 0)
            if each.is_sidecar:
                sidecars += amount
                peak = max(peak, sidecars)
            else:
                peak = max(peak, sidecars + amount)
        found = max(running + sidecars, peak)
    return found + (overhead or {}).get(resource, 0)
