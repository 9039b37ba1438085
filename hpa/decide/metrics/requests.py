"""What pods request of a resource: the base of utilization.

Follows ``calculateRequests``, Kubernetes 1.37. All listed pods are read, ignored ones
included: one pod without a request makes the metric unusable.
"""

from msgspec import Struct

from hpa.decide.pods import Pods
from podscale.kube.objects.pod import WirePodTemplate


class RequestProblem(Struct, frozen=True):
    """Why utilization has no base; ``pod`` is the first one by name that lacks it."""

    text: str
    reason: str  # RequestMissing | ContainerNotFound
    pod: str
    container: str = ""


def requests_of(
    pods: Pods, resource: str, container: str, *, pod_level: bool
) -> dict[str, int] | RequestProblem:
    """Return milli-units by pod; ``container`` "" sums the whole pod.

    ``pod_level`` is the gate PodLevelResources.
    """
    by_template = [
        _of_template(template, resource, container, pod_level=pod_level)
        for template in pods.templates
    ]
    found: dict[str, int] = {}
    problem: tuple[str, _Lack] | None = None
    for name, index in zip(pods.names, pods.template, strict=True):
        amount = by_template[index]
        if isinstance(amount, int):
            found[name] = amount
        elif problem is None or name < problem[0]:
            problem = (name, amount)
    if problem is None:
        return found
    pod, lack = problem
    return RequestProblem(lack.text.format(pod=pod), lack.reason, pod, lack.container)


class _Lack(Struct, frozen=True):
    text: str  # with {pod}
    reason: str
    container: str


def _of_template(
    template: WirePodTemplate, resource: str, container: str, *, pod_level: bool
) -> int | _Lack:
    if pod_level and not container and template.pod_requests_milli:
        amount = _pod_level(template, resource)
        if amount is None:
            text = f"missing pod-level request for {resource} in Pod {{pod}}"
            return _Lack(text, "RequestMissing", "")
        return amount
    total = 0
    seen = False
    for each in template.running:
        if container and each.name != container:
            continue
        seen = True
        if resource not in each.requests_milli:
            text = f"missing request for {resource} in container {each.name} of Pod {{pod}}"
            return _Lack(text, "RequestMissing", each.name)
        total += each.requests_milli[resource]
    if container and not seen:
        text = f"container {container} not found in Pod {{pod}}"
        return _Lack(text, "ContainerNotFound", container)
    return total


def _pod_level(template: WirePodTemplate, resource: str) -> int | None:
    # Follows component-helpers' PodRequests: what the pod level leaves open comes from
    # the containers, and overhead is added to either.
    overhead = template.overhead_milli.get(resource)
    base = (template.pod_requests_milli or {}).get(resource)
    if base is None:
        base = _aggregate(template, resource)
    if base is None and overhead is None:
        return None
    return (base or 0) + (overhead or 0)


def _aggregate(template: WirePodTemplate, resource: str) -> int | None:
    every = (*template.containers, *template.init_containers)
    if not any(resource in each.requests_milli for each in every):
        return None
    running = sum(each.requests_milli.get(resource, 0) for each in template.containers)
    sidecars = peak = 0
    for each in template.init_containers:
        amount = each.requests_milli.get(resource, 0)
        peak = max(peak, sidecars + amount)
        sidecars += amount if each.is_sidecar else 0
    return max(running + sidecars, peak)
