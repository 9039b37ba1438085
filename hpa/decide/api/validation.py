"""What is wrong with a hand-written HPA, in the words of the API server.

Follows ``ValidateHorizontalPodAutoscaler``, Kubernetes 1.37.2 and 1.36.3. Objects behind an API
server have passed this; files and the CRD of own mode come here. Metric selectors are
looked at too: upstream lets them through and fails at them in every pass. Of the metadata
only the name is looked at.
"""

from collections.abc import Iterator

from msgspec import Struct

from hpa.decide.api import wire
from hpa.decide.api.spec import MetricObject, Policy
from hpa.decide.settings import Release
from podscale.core import quantity
from podscale.core.goquote import quote
from podscale.core.selectors.labels import (
    dns_label_problems,
    key_problems,
    since_1_36,
    subdomain_problems,
)
from podscale.core.selectors.selector import SelectorError, from_wire

_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
# Standard without being a container's: what a ResourceQuota may count.
_QUOTAS = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
        *(f"{part}.{each}" for part in ("requests", "limits") for each in _CONTAINER_RESOURCES),
    )
)
MAX_WINDOW_S = 3600
MAX_PERIOD_S = 1800


class FieldError(Struct, frozen=True):
    """One finding, as ``kubectl`` shows it."""

    field: str
    kind: str  # Required value | Invalid value | Forbidden | Unsupported value
    detail: str
    value: str | int | None = None

    def __str__(self) -> str:
        shown = quote(self.value) if isinstance(self.value, str) else self.value
        value = "" if self.value is None else f": {shown}"
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.field}: {self.kind}{value}{detail}"


_NO_MAXIMUM = FieldError("spec.maxReplicas", "Required value", "must be set and greater than 0")


def validate(written: wire.WireAutoscaler, *, release: Release = "1.37") -> list[FieldError]:
    """Return every finding, in the order of the fields, with the gate HPAScaleToZero on."""
    found = list(_object(written))
    if release == "1.36":
        return found
    # 1.37 has the maximum's absence from the declared schema, and merges what it finds in both
    # places, which also says once what is found twice.
    merged = (_required(each.field, "") if each == _NO_MAXIMUM else each for each in found)
    return list(dict.fromkeys(merged))


def _object(written: wire.WireAutoscaler) -> Iterator[FieldError]:
    name, spec = written.metadata.name, written.spec
    if not name:
        yield _required("metadata.name", "name or generateName is required")
    else:
        for problem in subdomain_problems(name):  # in 1.36, too, told in characters
            yield _invalid("metadata.name", name, problem)
    minimum = 1 if spec.min_replicas is None else spec.min_replicas  # the default
    if minimum < 0:
        detail = "must be greater than or equal to 0"
        yield _invalid("spec.minReplicas", minimum, detail)
    if spec.max_replicas == 0:
        yield _NO_MAXIMUM
    elif spec.max_replicas < 0:
        detail = "must be greater than or equal to 1"
        yield _invalid("spec.maxReplicas", spec.max_replicas, detail)
    if spec.max_replicas < minimum:
        detail = "must be greater than or equal to `minReplicas`"
        yield _invalid("spec.maxReplicas", spec.max_replicas, detail)
    target = spec.scale_target_ref
    # The only kind of the core group that scales.
    may_be_core = target.kind == "ReplicationController"
    yield from _reference(target, "spec.scaleTargetRef", needs_group=not may_be_core)
    yield from _metrics(spec, minimum)
    if spec.behavior is not None:
        yield from _rules(spec.behavior.scale_up, "spec.behavior.scaleUp")
        yield from _rules(spec.behavior.scale_down, "spec.behavior.scaleDown")


def _reference(reference: MetricObject, path: str, *, needs_group: bool) -> Iterator[FieldError]:
    for field, text in (("kind", reference.kind), ("name", reference.name)):
        if not text:
            yield _required(f"{path}.{field}", "")
        else:
            yield from _path_segment(text, f"{path}.{field}")
    if reference.api_version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {reference.api_version}"
        yield _invalid(f"{path}.apiVersion", reference.api_version, detail)
    elif needs_group and not reference.api_version.rpartition("/")[0]:
        detail = "apiVersion must specify API group"
        yield _invalid(f"{path}.apiVersion", reference.api_version, detail)


def _path_segment(text: str, path: str) -> Iterator[FieldError]:
    if text in (".", ".."):
        yield _invalid(path, text, f"may not be '{text}'")
    for mark in ("/", "%"):
        if mark in text:
            yield _invalid(path, text, f"may not contain '{mark}'")


def _metrics(spec: wire.Spec, minimum: int) -> Iterator[FieldError]:
    metrics = spec.metrics or ()
    for index, metric in enumerate(metrics):
        yield from _metric(metric, f"spec.metrics[{index}]")
    if minimum == 0 and not any(each.type in ("Object", "External") for each in metrics):
        yield FieldError(
            "spec.metrics",
            "Forbidden",
            "must specify at least one Object or External metric to support scaling to zero "
            "replicas",
        )


def _metric(metric: wire.WireMetric, path: str) -> Iterator[FieldError]:
    if not metric.type:
        yield _required(f"{path}.type", "must specify a metric source type")
    fields = wire.METRIC_FIELDS
    is_known = metric.type in fields
    if not is_known:
        yield _unsupported(f"{path}.type", metric.type, sorted(fields))
    written = {kind: getattr(metric, field) for kind, field in wire.SOURCES.items()}
    present = {kind: source for kind, source in written.items() if source is not None}
    for kind, source in present.items():  # the first one alone is looked at, whatever the type
        yield from _source(kind, source, f"{path}.{fields[kind]}")
        break
    if not is_known:
        # Upstream says it twice.
        yield _unsupported(f"{path}.type", metric.type, sorted(fields))
    elif metric.type not in present:
        detail = "must populate information for the given metric source"
        yield _required(f"{path}.{fields[metric.type]}", detail)
    for kind in present if len(present) > 1 else ():
        if kind != metric.type:
            detail = "must populate the given metric source only"
            yield FieldError(f"{path}.{fields[kind]}", "Forbidden", detail)


def _source(kind: str, source: wire.WireSource, path: str) -> Iterator[FieldError]:
    if kind in ("Resource", "ContainerResource"):
        if not source.name:
            yield _required(f"{path}.name", "must specify a resource name")
        elif kind == "ContainerResource":
            yield from _container_resource(source.name, f"{path}.name")
    else:
        yield from _identifier(source.metric, f"{path}.metric")
    if kind == "ContainerResource":
        if not source.container:
            yield _required(f"{path}.container", "must specify a container")
        else:
            for problem in dns_label_problems(source.container):
                yield _invalid(f"{path}.container", source.container, problem)
    if kind == "Object":
        described = source.described_object or MetricObject()
        yield from _reference(described, f"{path}.describedObject", needs_group=False)
    yield from _target(source.target, f"{path}.target")
    yield from _target_of(kind, source.target, f"{path}.target")


def _container_resource(name: str, path: str) -> Iterator[FieldError]:
    # Follows ValidateContainerResourceName. Of a Resource metric no name is looked at.
    problems = list(map(since_1_36, key_problems(name)))
    for problem in problems:
        yield _invalid(path, name, problem)
    if "/" not in name:
        if name in _CONTAINER_RESOURCES or name.startswith("hugepages-"):
            return
        if not problems and name not in _QUOTAS and not name.startswith("requests.hugepages-"):
            yield _invalid(path, name, "must be a standard resource type or fully qualified")
        yield _invalid(path, name, "must be a standard resource for containers")
    elif "kubernetes.io/" not in name and (
        name.startswith("requests.") or key_problems(f"requests.{name}")
    ):
        yield _invalid(path, name, "doesn't follow extended resource name standard")


def _identifier(identifier: wire.Identifier, path: str) -> Iterator[FieldError]:
    if not identifier.name:
        yield _required(f"{path}.name", "must specify a metric name")
    else:
        yield from _path_segment(identifier.name, f"{path}.name")
    if identifier.selector is not None:
        try:
            from_wire(
                {
                    "matchLabels": identifier.selector.match_labels or {},
                    "matchExpressions": [
                        {"key": each.key, "operator": each.operator, "values": each.values or []}
                        for each in identifier.selector.match_expressions or []
                    ],
                }
            )
        except SelectorError as error:
            yield FieldError(f"{path}.selector", "Invalid value", since_1_36(str(error)))


def _target(target: wire.WireTarget, path: str) -> Iterator[FieldError]:
    if not target.type:
        yield _required(f"{path}.type", "must specify a metric target type")
    if target.type not in ("Utilization", "Value", "AverageValue"):
        detail = "must be either Utilization, Value, or AverageValue"
        yield _invalid(f"{path}.type", target.type, detail)
    for field, amount in (("value", target.value), ("averageValue", target.average_value)):
        if amount is None:
            continue
        try:
            given = quantity.from_wire(amount)
        except quantity.QuantityError as error:
            yield _invalid(f"{path}.{field}", str(amount), error.reason)
            continue
        if given.nano <= 0:
            yield _invalid(f"{path}.{field}", str(given), "must be positive")
    percent = target.average_utilization
    if percent is not None and percent < 1:
        yield _invalid(f"{path}.averageUtilization", percent, "must be greater than 0")


def _target_of(kind: str, target: wire.WireTarget, path: str) -> Iterator[FieldError]:
    has_value, has_average = target.value is not None, target.average_value is not None
    has_percent = target.average_utilization is not None
    match kind:
        case "Pods":
            if not has_average:
                detail = "must specify a positive target averageValue"
                yield _required(f"{path}.averageValue", detail)
        case "Object" | "External":
            if not has_value and not has_average:
                detail = "must set either a target value for metric or a per-pod target"
                if kind == "Object":
                    detail = "must set either a target value or averageValue"
                yield _required(f"{path}.averageValue", detail)
            if kind == "External" and has_value and has_average:
                detail = "may not set both a target value for metric and a per-pod target"
                yield FieldError(f"{path}.value", "Forbidden", detail)
        case _:
            if not has_percent and not has_average:
                detail = "must set either a target raw value or a target utilization"
                yield _required(f"{path}.averageUtilization", detail)
            if has_percent and has_average:
                detail = "may not set both a target raw value and a target utilization"
                yield FieldError(f"{path}.averageValue", "Forbidden", detail)


def _rules(rules: wire.ScalingRules | None, path: str) -> Iterator[FieldError]:
    if rules is None:
        return
    window = rules.stabilization_window_seconds
    if window is not None and window < 0:
        detail = "must be greater than or equal to zero"
        yield _invalid(f"{path}.stabilizationWindowSeconds", window, detail)
    if window is not None and window > MAX_WINDOW_S:
        detail = f"must be less than or equal to {MAX_WINDOW_S}"
        yield _invalid(f"{path}.stabilizationWindowSeconds", window, detail)
    select = rules.select_policy
    if select is not None and select not in ("Max", "Min", "Disabled"):
        yield _unsupported(f"{path}.selectPolicy", select, ["Disabled", "Max", "Min"])
    if rules.policies is not None:
        if not rules.policies:
            yield _required(f"{path}.policies", "must specify at least one Policy")
        for index, policy in enumerate(rules.policies):
            yield from _policy(policy, f"{path}.policies[{index}]")
    if rules.tolerance is not None:
        yield from _tolerance(rules.tolerance, f"{path}.tolerance")


def _tolerance(amount: wire.Amount, path: str) -> Iterator[FieldError]:
    try:
        given = quantity.from_wire(amount)
    except quantity.QuantityError as error:
        yield _invalid(path, str(amount), error.reason)
        return
    if given.nano < 0:
        yield _invalid(path, str(given), "must be greater than or equal to 0")


def _policy(policy: Policy, path: str) -> Iterator[FieldError]:
    if policy.type not in ("Pods", "Percent"):
        yield _unsupported(f"{path}.type", policy.type, ["Percent", "Pods"])
    if policy.value <= 0:
        yield _invalid(f"{path}.value", policy.value, "must be greater than zero")
    period = policy.period_seconds
    if period <= 0:
        yield _invalid(f"{path}.periodSeconds", period, "must be greater than zero")
    if period > MAX_PERIOD_S:
        detail = f"must be less than or equal to {MAX_PERIOD_S}"
        yield _invalid(f"{path}.periodSeconds", period, detail)


def _required(field: str, detail: str) -> FieldError:
    return FieldError(field, "Required value", detail)


def _invalid(field: str, value: str | int, detail: str) -> FieldError:
    return FieldError(field, "Invalid value", detail, value)


def _unsupported(field: str, value: str, supported: list[str]) -> FieldError:
    shown = ", ".join(f'"{each}"' for each in supported)
    return FieldError(field, "Unsupported value", f"supported values: {shown}", value)
