"""Validation of VPA objects by field, and what is filled in at CREATE.

Field paths and types of errors are upstream's (``validation.go``); the texts are ours.
Annotations of our own are checked beside them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from podscale.core import quantity
from podscale.core.disruptions import MAKE_ROOM, PER_DAY, WINDOWS, PaceError, pace_of
from podscale.core.quantity import MICRO, NANO, Quantity, QuantityError
from podscale.kube.objects import vpa as objects
from vpa.model.amounts import EMPTY, INT64_MAX, RESOURCES, gated, is_in_range, of_units
from vpa.model.estimation.annotations import ANNOTATIONS, PREFIX, VpaSettings, settings_from
from vpa.updater.decide.disruption_budget import SPENT

REQUIRED = "Required value"
UNSUPPORTED = "Unsupported value"
INVALID = "Invalid value"
FORBIDDEN = "Forbidden"
TOO_MANY = "Too many"
NOT_NEGATIVE = "must be greater than or equal to 0"  # Kubernetes' words

UPDATE_MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto")


class VpaGates(Struct, frozen=True):
    """Feature gates of upstream's components."""

    in_place: bool = False
    cpu_startup_boost: bool = False
    per_vpa_config: bool = False


class Options(VpaGates, frozen=True, kw_only=True):
    """What is allowed: gates, and on update what the stored object has already."""

    is_create: bool
    existing_resources: frozenset[str] = frozenset()


class VpaFieldError(Struct, frozen=True):
    """One finding; ``type`` is one of Kubernetes's."""

    field: str
    type: str
    message: str


class Validation(Struct, frozen=True):
    errors: tuple[VpaFieldError, ...]
    warnings: tuple[str, ...]


def options_for(old: objects.Vpa | None, gates: VpaGates) -> Options:
    """Return the options for a new object, or for an update of ``old``.

    A gated field that the stored object uses stays legal, or it could not be edited.
    """
    spec = old.spec if old is not None else objects.VpaSpec()
    update, boost = spec.update_policy, spec.startup_boost
    policies = objects.container_policies(spec.resource_policy)
    return Options(
        is_create=old is None,
        in_place=gates.in_place or (update is not None and update.update_mode == "InPlace"),
        cpu_startup_boost=gates.cpu_startup_boost
        or (boost is not None and boost.cpu is not None)
        or any(policy.startup_boost is not None for policy in policies),
        per_vpa_config=gates.per_vpa_config
        or (update is not None and update.evict_after_oom_seconds is not None)
        or any(value is not None for policy in policies for value, _ in gated(policy).values()),
        existing_resources=frozenset(
            resource for policy in policies for resource in policy.controlled_resources or ()
        ),
    )


def validate(spec: objects.VpaSpec, options: Options) -> Validation:
    """Return everything that is wrong with ``spec``, in the order of its fields."""
    errors: list[VpaFieldError] = []
    warnings: list[str] = []
    if spec.target_ref is None and options.is_create:
        errors.append(VpaFieldError("spec.targetRef", REQUIRED, "name the controller to size"))
    if spec.update_policy is not None:
        _update_policy(spec.update_policy, options, errors, warnings)
    for index, policy in enumerate(objects.container_policies(spec.resource_policy)):
        path = f"spec.resourcePolicy.containerPolicies[{index}]"
        _container_policy(path, policy, options, errors, warnings)
    if spec.startup_boost is not None:
        errors.extend(_startup_boost("spec.startupBoost", spec.startup_boost, options))
    if len(spec.recommenders or ()) > 1:
        errors.append(VpaFieldError("spec.recommenders", TOO_MANY, "at most one recommender"))
    return Validation(tuple(errors), tuple(warnings))


def validate_annotations(annotations: Mapping[str, str] | None) -> list[VpaFieldError]:
    """Return what is wrong with annotations of our own: unknown names, unreadable values."""
    found = [
        VpaFieldError(f"metadata.annotations[{mistake.annotation}]", INVALID, mistake.message)
        for mistake in settings_from(annotations, VpaSettings())[1]
    ]
    try:
        pace_of(annotations)
    except PaceError as error:
        name = WINDOWS if WINDOWS in str(error) else PER_DAY
        found.append(VpaFieldError(f"metadata.annotations[{name}]", INVALID, str(error)))
    known = {
        *ANNOTATIONS,
        MAKE_ROOM,
        WINDOWS,
        PER_DAY,
        SPENT,
    }  # the last one is the updater's to write
    found.extend(
        VpaFieldError(f"metadata.annotations[{key}]", UNSUPPORTED, "there is no such setting")
        for key in sorted(annotations or {})
        if key.startswith(PREFIX) and key not in known
    )
    return found


def defaults(spec: objects.VpaSpec) -> list[Mapping[str, Any]]:
    """Return the JSON patch that fills in the update policy."""
    if spec.update_policy is not None:
        return []
    return [{"op": "add", "path": "/spec/updatePolicy", "value": {"updateMode": "Recreate"}}]


def _update_policy(
    policy: objects.UpdatePolicy, options: Options, errors: list[VpaFieldError], warnings: list[str]
) -> None:
    path = "spec.updatePolicy"
    mode = policy.update_mode
    if mode is None:
        errors.append(
            VpaFieldError(f"{path}.updateMode", REQUIRED, "an updatePolicy needs its updateMode")
        )
    elif mode not in UPDATE_MODES:
        text = f"{mode!r} is not one of {', '.join(UPDATE_MODES)}"
        errors.append(VpaFieldError(f"{path}.updateMode", UNSUPPORTED, text))
    elif mode == "Auto":
        warnings.append(f"{path}: mode Auto is deprecated and acts as Recreate; name the mode")
    elif mode == "InPlace" and not options.in_place:
        text = "mode InPlace needs the feature gate InPlace of the admission webhook"
        errors.append(VpaFieldError(f"{path}.updateMode", FORBIDDEN, text))
    if policy.min_replicas is not None and policy.min_replicas <= 0:
        errors.append(VpaFieldError(f"{path}.minReplicas", INVALID, "must be at least 1"))
    seconds = policy.evict_after_oom_seconds
    if seconds is not None:
        errors.extend(_gated_number(f"{path}.evictAfterOOMSeconds", seconds, 1, options))


def _container_policy(
    path: str,
    policy: objects.ContainerPolicy,
    options: Options,
    errors: list[VpaFieldError],
    warnings: list[str],
) -> None:
    if not policy.container_name:
        errors.append(VpaFieldError(f"{path}.containerName", REQUIRED, "name a container, or *"))
    if policy.mode is not None and policy.mode not in ("Auto", "Off"):
        errors.append(VpaFieldError(f"{path}.mode", UNSUPPORTED, "must be Auto or Off"))
    lowest, highest = policy.min_allowed or EMPTY, policy.max_allowed or EMPTY
    for resource, least in lowest.items():
        errors.extend(_amount(f"{path}.minAllowed[{resource}]", resource, least))
        most = highest.get(resource)
        if most is not None and most.nano < least.nano:
            text = f"{most} is less than minAllowed, {least}"
            errors.append(VpaFieldError(f"{path}.maxAllowed[{resource}]", INVALID, text))
    for resource, most in highest.items():
        errors.extend(_amount(f"{path}.maxAllowed[{resource}]", resource, most))
    if policy.mode == "Off" and policy.controlled_values == "RequestsAndLimits":
        text = "a container with mode Off has no controlledValues"
        errors.append(VpaFieldError(f"{path}.controlledValues", FORBIDDEN, text))
    for index, resource in enumerate(policy.controlled_resources or ()):
        if resource in RESOURCES:
            continue
        field = f"{path}.controlledResources[{index}]"
        if resource in options.existing_resources:
            warnings.append(f"{field}: {resource!r} has no effect; only cpu and memory have")
        else:
            errors.append(VpaFieldError(field, UNSUPPORTED, f"{resource!r} is not cpu or memory"))
    for name, (value, at_least) in gated(policy).items():
        if value is not None:
            errors.extend(_gated_number(f"{path}.{name}", value, at_least, options))
    if policy.startup_boost is not None:
        errors.extend(_startup_boost(f"{path}.startupBoost", policy.startup_boost, options))


def _gated_number(
    field: str, value: str | int | float, least: int, options: Options
) -> list[VpaFieldError]:
    if not options.per_vpa_config:
        text = "needs the feature gate PerVPAConfig of the admission webhook"
        return [VpaFieldError(field, FORBIDDEN, text)]
    try:
        # Upstream compares thousandths, which are rounded up: 0.9999 is enough for 1.
        small = quantity.from_wire(value).milli < least * 1000
    except QuantityError as error:
        return [VpaFieldError(field, INVALID, str(error))]
    return [VpaFieldError(field, INVALID, f"must be at least {least}")] if small else []


def _startup_boost(path: str, boost: objects.StartupBoost, options: Options) -> list[VpaFieldError]:
    if not options.cpu_startup_boost:
        text = "needs the feature gate CPUStartupBoost of the admission webhook"
        return [VpaFieldError(path, FORBIDDEN, text)]
    cpu = boost.cpu
    if cpu is None:
        return []
    path += ".cpu"
    if cpu.type == "Factor":
        if cpu.factor is None:
            return [VpaFieldError(f"{path}.factor", REQUIRED, "type Factor needs it")]
        text = "must be at least 1"
        return [VpaFieldError(f"{path}.factor", INVALID, text)] if cpu.factor < 1 else []
    if cpu.type == "Quantity":
        if cpu.quantity is None:
            return [VpaFieldError(f"{path}.quantity", REQUIRED, "type Quantity needs it")]
        try:
            return _amount(f"{path}.quantity", "cpu", quantity.from_wire(cpu.quantity))
        except QuantityError as error:
            return [VpaFieldError(f"{path}.quantity", INVALID, str(error))]
    kind = UNSUPPORTED if cpu.type else REQUIRED
    return [VpaFieldError(f"{path}.type", kind, "must be Factor or Quantity")]


def _amount(field: str, resource: str, value: Quantity) -> list[VpaFieldError]:
    # The schema takes every quantity; a container cannot have every one.
    if value.nano < 0:
        return [VpaFieldError(field, INVALID, f"{value} {NOT_NEGATIVE}")]
    if not is_in_range(resource, value):
        most = of_units(resource, INT64_MAX, "DecimalSI")
        return [VpaFieldError(field, INVALID, f"{value} must be less than or equal to {most}")]
    if resource == "cpu" and value.nano % MICRO:
        return [VpaFieldError(field, INVALID, f"{value} is not a whole number of milli-cores")]
    if resource == "memory" and value.nano % NANO:
        return [VpaFieldError(field, INVALID, f"{value} is not a whole number of bytes")]
    return []
