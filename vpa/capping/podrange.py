"""The Pod LimitRange: all containers together, scaled until their sum fits.

For one resource and one bound at a time. ``S_l`` is the sum of the containers' limits as
they would become, ``S_r`` that of their recommended requests; within min <= S_r, S_l and
S_l <= max nothing happens.
"""

from collections.abc import Mapping, Sequence

from podscale.core.quantity import Quantity
from vpa.capping.limits import proportional_limit
from vpa.model.api.objects import (
    ContainerRecommendation,
    LimitRangeItem,
    ResourcePolicy,
    SizedPod,
    is_off,
    requests_and_limits,
)
from vpa.model.api.quantities import ResourceList, of, scaled

# One bound of all containers: container name to its resource list.
Bounds = Mapping[str, ResourceList]


def apply_pod_range(
    resource: str, bounds: Bounds, pod: SizedPod, item: LimitRangeItem
) -> dict[str, ResourceList]:
    """Return ``bounds`` scaled into the item. Containers without a list or without this resource
    in it count with what they request now and do not change.
    """
    least, most = of(item.min, resource), of(item.max, resource)
    default = of(item.default, resource)
    recommended: dict[str, Quantity] = {}
    limit_sum = request_sum = 0
    for container in pod.spec.containers:
        requests, limits = requests_and_limits(pod, container.name)
        request = of(requests, resource)
        own = bounds.get(container.name)
        if own is None or resource not in own:
            wanted = request
        else:
            wanted = recommended[container.name] = own[resource]
        limit = proportional_limit(resource, of(limits, resource), request, wanted, default).limit
        limit_sum += limit.nano if limit is not None else 0
        request_sum += wanted.nano
    too_large = most.nano > 0 and most.nano < limit_sum
    if least.nano <= limit_sum and least.nano <= request_sum and not too_large:
        return dict(bounds)
    if limit_sum <= 0:
        return dict(bounds)
    if least.nano > request_sum:
        # Rounded up for both resources: upstream floors memory and so stays a byte under
        # the minimum that it was to reach (D10).
        return _scaled(resource, bounds, recommended, Quantity(request_sum), least, up=True)
    total = most if too_large else least
    return _scaled(resource, bounds, recommended, Quantity(limit_sum), total, up=False)


def with_missing(
    entries: Sequence[ContainerRecommendation], pod: SizedPod, policy: ResourcePolicy | None
) -> list[ContainerRecommendation]:
    """Return the entries, and one with its present requests for every container without.

    They take part in the scaling of the targets; containers with mode Off do not.
    """
    known = {entry.container_name for entry in entries}
    result = list(entries)
    for container in pod.spec.containers:
        if container.name in known or is_off(policy, container.name):
            continue
        requests, _ = requests_and_limits(pod, container.name)
        if requests:
            result.append(ContainerRecommendation(container.name, target=requests))
    return result


def _scaled(
    resource: str,
    bounds: Bounds,
    recommended: Mapping[str, Quantity],
    base: Quantity,
    total: Quantity,
    *,
    up: bool,
) -> dict[str, ResourceList]:
    result = dict(bounds)
    if base.nano <= 0:
        return result
    for name, wanted in recommended.items():
        value, _ = scaled(resource, wanted, base, total, up=up)
        result[name] = ResourceList({**bounds[name], resource: value})
    return result
