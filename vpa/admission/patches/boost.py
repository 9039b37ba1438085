"""CPU startup boost: more CPU while a pod starts, and when it has had it long enough.

The original resources stay in an annotation of the pod, so that anybody can undo it.
"""

import math
from typing import Any

import msgspec

from podscale.core import quantity
from podscale.core.json_decoder import decode_json
from podscale.core.pod_state import PodReadiness
from podscale.core.quantity import MICRO, Quantity, QuantityError
from podscale.kube.columns.pod_set import PodView
from podscale.kube.objects import vpa as objects
from podscale.kube.objects.pod import TemplateContainer
from vpa.admission.patches.resources import ContainerResources, ResourcesUnavailable
from vpa.capping import proportional_limit
from vpa.model.amounts import EMPTY, RESOURCES, ZERO, of, wire

ANNOTATION_PREFIX = "vpaCpuStartupBoost/"


def boost_of(vpa: objects.Vpa, container: str) -> objects.StartupBoost | None:
    """Return the boost of a container: its own replaces that of the VPA as a whole."""
    entry = objects.container_policy(vpa.spec.resource_policy, container)
    own = entry.startup_boost if entry is not None else None
    return own if own is not None else vpa.spec.startup_boost


def boosted(
    container: TemplateContainer, vpa: objects.Vpa, resources: ContainerResources, max_cpu: Quantity
) -> ContainerResources | ResourcesUnavailable | None:
    """Return the resources with CPU raised; None without a boost. ``max_cpu`` 0: no cap."""
    boost = boost_of(vpa, container.name)
    if boost is None or boost.cpu is None:
        return None
    base = of(resources.requests, "cpu")
    base = base if base.nano else of(container.requests, "cpu")
    cpu = _boosted_cpu(base, boost)
    if isinstance(cpu, ResourcesUnavailable):
        return cpu
    if max_cpu.nano and cpu.nano > max_cpu.nano:
        cpu = max_cpu
    limits = resources.limits
    if objects.controlled_values(vpa.spec.resource_policy, container.name) == "RequestsOnly":
        cpu = _below(cpu, (container.limits or EMPTY).get("cpu"))
    else:
        limit = proportional_limit(
            "cpu", of(container.limits, "cpu"), of(container.requests, "cpu"), cpu, ZERO
        ).limit
        if limit is not None:
            limits = objects.ResourceList({**limits, "cpu": limit})
    return ContainerResources(objects.ResourceList({**resources.requests, "cpu": cpu}), limits)


def original_resources(container: TemplateContainer) -> str:
    """Return the annotation's value: the container's own CPU and memory, as JSON."""
    kept = {
        field: wire({name: listed[name] for name in RESOURCES if name in listed})
        for field, listed in (
            ("requests", container.requests or EMPTY),
            ("limits", container.limits or EMPTY),
        )
    }
    return msgspec.json.encode(kept).decode()


def read_original(pod: PodView, container: str) -> objects.Resources | objects.ObjectError | None:
    """Return the resources that the boost's annotation keeps; None without annotation."""
    text = pod.annotations.get(ANNOTATION_PREFIX + container)
    if text is None:
        return None
    try:
        value: Any = decode_json(text)
        return objects.decode(value, objects.Resources)
    except msgspec.DecodeError as error:
        return objects.ObjectError(f"annotation {ANNOTATION_PREFIX}{container}: {error}")
    except objects.ObjectError as error:
        return error


def is_boosted(pod: PodView) -> bool:
    """Return whether any container still carries a boost's annotation."""
    return any(key.startswith(ANNOTATION_PREFIX) for key in pod.annotations)


def expired(pod: PodView, vpa: objects.Vpa, now: float) -> list[str]:
    """Return the annotations whose boost is over: the pod is Ready for longer than the
    container's durationSeconds, or at once where that is 0.
    """
    if pod.ready != PodReadiness.TRUE:
        return []
    since, over = pod.ready_since, []
    for key in sorted(pod.annotations):
        if not key.startswith(ANNOTATION_PREFIX):
            continue
        seconds = duration(vpa, key[len(ANNOTATION_PREFIX) :])
        # A condition without a time has been so for ever, as Go's zero time has.
        if seconds == 0 or math.isnan(since) or now - since > seconds:
            over.append(key)
    return over


def duration(vpa: objects.Vpa, container: str) -> int:
    """Return the seconds that a container's boost lasts once the pod is Ready."""
    entry = objects.container_policy(vpa.spec.resource_policy, container)
    for boost in (entry.startup_boost if entry is not None else None, vpa.spec.startup_boost):
        if boost is not None and boost.cpu is not None and boost.cpu.duration_seconds is not None:
            return boost.cpu.duration_seconds
    return 0


def _boosted_cpu(base: Quantity, boost: objects.StartupBoost) -> Quantity | ResourcesUnavailable:
    cpu = boost.cpu
    if cpu is None or cpu.type in ("", "Factor"):
        if cpu is None or cpu.factor is None or cpu.factor < 1:
            return _invalid("startupBoost.cpu.factor must be at least 1")
        return Quantity(base.milli * cpu.factor * MICRO)
    if cpu.type != "Quantity":
        return _invalid(f"startupBoost.cpu.type {cpu.type!r} is neither Factor nor Quantity")
    if cpu.quantity is None:
        return _invalid("startupBoost.cpu.quantity is required when type is Quantity")
    try:
        more = quantity.from_wire(cpu.quantity)
    except QuantityError as error:
        return _invalid(f"startupBoost.cpu.quantity {error}")
    return Quantity((base.milli + more.milli) * MICRO)


def _invalid(message: str) -> ResourcesUnavailable:
    return ResourcesUnavailable("StartupBoostInvalid", message)


def _below(cpu: Quantity, limit: Quantity | None) -> Quantity:
    # One milli-core less than the limit, or the pod would become Guaranteed.
    if limit is None or cpu.milli <= limit.milli:
        return cpu
    return Quantity(limit.nano - MICRO, limit.format) if limit.nano > MICRO else limit
