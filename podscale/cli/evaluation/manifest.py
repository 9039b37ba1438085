"""YAML written by hand, as strictly as ``kubectl`` reads it, and what is wrong with an HPA in it.

Twice the same key and keys that nobody knows are told by their place. The same fields are refused
as by ``ValidateHorizontalPodAutoscaler``, Kubernetes 1.37, with the gate HPAScaleToZero on; the
words are ours. Metric selectors are looked at too: upstream lets them through and fails at them in
every pass.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml
from msgspec import Struct

from adapter.rules.yaml_nodes import nodes
from podscale.core import quantity
from podscale.core.selectors.labels import dns_label_problems, key_problems, subdomain_problems
from podscale.core.selectors.selector import SelectorError
from podscale.kube.client.wire import Quantity, unknown_fields
from podscale.kube.objects import autoscaler as wire
from podscale.kube.objects.autoscaler import AutoscalerSpec
from podscale.migrate.documents import constructed

_HPAS = ("HorizontalPodAutoscaler", "PodAutoscaler")


class WrittenError(ValueError):
    """The text is not what it is taken for; ``line`` and ``column`` are 0 where not known."""

    def __init__(self, text: str, line: int = 0, column: int = 0) -> None:
        super().__init__(text)
        self.line, self.column = line, column


def plain(text: str) -> Any:
    """Return the one document of ``text``, or its one HPA; raises ``WrittenError``."""
    try:
        root = _root(text)
        for path, line in _twice(root, ""):
            raise WrittenError(f"{path} is there twice", line, 1)
        return None if root is None else constructed(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else ()
        words = ", ".join(part for part in (error.problem, error.context) if part)
        raise WrittenError(f"not YAML: {words}", *place) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow has no mark
        words = " ".join(str(error).replace('in "<unicode string>",', "at").split())
        raise WrittenError(f"not YAML: {words}") from None
    except RecursionError:
        raise WrittenError("nested too deeply") from None
    except ValueError as error:  # a timestamp of no calendar
        if isinstance(error, WrittenError):
            raise
        raise WrittenError(f"not YAML: {error}") from None


def _root(text: str) -> yaml.Node | None:
    found = [each for root in nodes(text) for each in _items(root)]
    hpas = [each for each in found if _kind_of(each) in _HPAS] or found
    if len(hpas) > 1:
        line = hpas[1].start_mark.line + 1
        raise WrittenError(f"{len(hpas)} documents are in it; give one of them", line, 1)
    return hpas[0] if hpas else None


def _items(root: yaml.Node) -> Sequence[yaml.Node]:
    """Return the items of a List, else the document itself."""
    items = _below(root, "items") if _kind_of(root).endswith("List") else None
    return items[1].value if items and isinstance(items[1], yaml.SequenceNode) else [root]


def _kind_of(root: yaml.Node) -> str:
    found = _below(root, "kind")
    return str(found[1].value) if found else ""


def place(text: str, message: str) -> tuple[int, int]:
    """Return line and column of the first field that ``message`` names, or of what encloses it.

    (0, 0) where ``text`` is not YAML or the message names no field.
    """
    try:
        node = _root(text)
    except (yaml.YAMLError, RecursionError, WrittenError):
        return 0, 0
    found = (0, 0)
    for step in path_to(message):
        below = _below(node, step)
        if below is None:
            break
        found, node = below
    return found


def path_to(message: str) -> list[str]:
    """Return the keys and indices that lead to the first field that ``message`` names."""
    match = _NAMED.search(message)
    named = "".join(filter(None, match.groups())) if match else ""
    if inside := _UNKNOWN_IN.search(message):
        named = f"{inside[2]}.{inside[1]}"
    return re.findall(r"[\w/-]+", named)


_NAMED = re.compile(r"at `\$\.?([^`]+)`|unknown field `?([^\s;`]+)|^([A-Za-z][\w.\[\]/-]*):")
_UNKNOWN_IN = re.compile(r"unknown field `([^`]+)` - at `\$\.?([^`]*)`")  # msgspec's


def _below(node: yaml.Node | None, step: str) -> tuple[tuple[int, int], yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and step.isdecimal() and int(step) < len(node.value):
        value = node.value[int(step)]
        return (value.start_mark.line + 1, value.start_mark.column + 1), value
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if isinstance(key, yaml.ScalarNode) and key.value == step:
            return (key.start_mark.line + 1, key.start_mark.column + 1), value
    return None


def unknown(written: Mapping[str, Any]) -> list[str]:
    """Return the paths of keys that an HPA (v2) does not have, each with the nearest that it has.

    Metadata and status are not ours.
    """
    found = [_with_nearest(key, key, _OF_OBJECT) for key in map(str, written)
             if key not in _OF_OBJECT]  # fmt: skip
    return [*found, *unknown_in(written.get("spec"), AutoscalerSpec, "spec")]


def unknown_in(written: object, kind: type[Struct], path: str = "") -> list[str]:
    """Return the paths of keys that ``kind`` does not have, each with the nearest that it has."""
    return [
        _with_nearest(where, where.rpartition(".")[2], known)
        for where, known in unknown_fields(written, kind, path)
    ]


def _with_nearest(path: str, key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key[:100], known, n=1)
    return f"{path}; did you mean {near[0]}?" if near else path


_OF_OBJECT = ("apiVersion", "kind", "metadata", "spec", "status")


def _twice(node: yaml.Node | None, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = f"{path}.{key.value}".lstrip(".")
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                yield name, key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
            yield from _twice(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, each in enumerate(node.value):
            yield from _twice(each, f"{path}[{index}]")


MAX_WINDOW_S = 3600
MAX_PERIOD_S = 1800
_INT32 = 2**31 - 1
_CONTAINER_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_TARGET_TYPES = ("Utilization", "Value", "AverageValue")
# By the type of the metric: the fields of its target of which one is needed.
_TARGETS = {
    "Pods": ("averageValue",),
    "Object": ("averageValue", "value"),
    "External": ("averageValue", "value"),
    "Resource": ("averageUtilization", "averageValue"),
    "ContainerResource": ("averageUtilization", "averageValue"),
}


def problems(written: wire.Autoscaler) -> list[str]:
    """Return ``path: what is wrong`` for every problem, in the order of the fields."""
    return list(dict.fromkeys(_object(written)))


def cautions(written: wire.Autoscaler) -> list[str]:
    """Return what an API server takes and nobody means: CPU is counted in cores, not in bytes."""
    sources = [each for metric in written.spec.metrics or () for each in metric.sources.values()]
    return [
        f"the target of cpu is {each.target.average_value}, which is in bytes: write cores (500m)"
        for each in sources
        if getattr(each, "name", "") == "cpu" and str(each.target.average_value).endswith("i")
    ]


def _object(written: wire.Autoscaler) -> Iterator[str]:
    name, spec = written.metadata.name, written.spec
    for problem in subdomain_problems(name) if name else ["is required"]:
        yield f"metadata.name: {problem}"
    minimum = 1 if spec.min_replicas is None else spec.min_replicas  # the default
    yield from _in_range("spec.minReplicas", minimum, 0)
    yield from _in_range("spec.maxReplicas", spec.max_replicas, 1)
    if spec.max_replicas < minimum:
        yield "spec.maxReplicas: must not be less than minReplicas"
    target = spec.scale_target_ref
    # The only kind of the core group that scales.
    yield from _reference(
        target, "spec.scaleTargetRef", needs_group=target.kind != "ReplicationController"
    )
    metrics = spec.metrics or ()
    for index, metric in enumerate(metrics):
        yield from _metric(metric, f"spec.metrics[{index}]")
    if minimum == 0 and not any(each.type in ("Object", "External") for each in metrics):
        yield "spec.metrics: minReplicas 0 needs at least one Object or External metric"
    if spec.behavior is not None:
        yield from _rules(spec.behavior.scale_up, "spec.behavior.scaleUp")
        yield from _rules(spec.behavior.scale_down, "spec.behavior.scaleDown")


def _in_range(path: str, number: int, least: int, most: int = _INT32) -> Iterator[str]:
    if not least <= number <= most:
        bound = f"at most {most}" if number > most else f"at least {least}"
        yield f"{path}: {number} must be {bound}"


def _one_of(path: str, text: str, choices: Sequence[str]) -> Iterator[str]:
    if text not in choices:
        yield f"{path}: {text or 'nothing'} is none of {', '.join(choices)}"


def _path_segment(text: str, path: str) -> Iterator[str]:
    if not text:
        yield f"{path}: is required"
    elif text in (".", "..") or "/" in text or "%" in text:
        yield f"{path}: {text} must be part of a path: not . or .., and without / and %"


def _reference(
    reference: wire.CrossVersionObjectReference, path: str, *, needs_group: bool
) -> Iterator[str]:
    yield from _path_segment(reference.kind, f"{path}.kind")
    yield from _path_segment(reference.name, f"{path}.name")
    group = reference.api_version.rpartition("/")[0]
    if "/" in group or (needs_group and not group):
        written = reference.api_version or "nothing"
        yield f"{path}.apiVersion: {written} must be a group and a version, as apps/v1"


def _metric(metric: wire.AutoscalerMetric, path: str) -> Iterator[str]:
    fields = wire.METRIC_FIELDS
    yield from _one_of(f"{path}.type", metric.type, sorted(fields))
    present = metric.sources
    for kind, source in present.items():  # the first one alone is looked at, whatever the type
        yield from _source(kind, source, f"{path}.{fields[kind]}")
        break
    if metric.type in fields and metric.type not in present:
        yield f"{path}.{fields[metric.type]}: is required by the type {metric.type}"
    for kind in present if len(present) > 1 else ():
        if kind != metric.type:
            yield f"{path}.{fields[kind]}: must not be beside the type {metric.type or 'nothing'}"


def _source(kind: str, source: wire.AutoscalerSource, path: str) -> Iterator[str]:
    if kind not in ("Resource", "ContainerResource"):
        yield from _path_segment(source.metric.name, f"{path}.metric.name")
        yield from _selector(source.metric, f"{path}.metric.selector")
    elif not source.name:
        yield f"{path}.name: is required"
    elif kind == "ContainerResource":
        yield from _container_resource(source.name, f"{path}.name")
    if kind == "ContainerResource":
        name = source.container
        for problem in dns_label_problems(name) if name else ["is required"]:
            yield f"{path}.container: {problem}"
    if kind == "Object":
        described = source.described_object or wire.CrossVersionObjectReference()
        yield from _reference(described, f"{path}.describedObject", needs_group=False)
    yield from _target(kind, source.target, f"{path}.target")


def _container_resource(name: str, path: str) -> Iterator[str]:
    # Follows ValidateContainerResourceName. Of a Resource metric no name is looked at.
    if "/" not in name:
        is_known = name in _CONTAINER_RESOURCES or name.startswith("hugepages-")
    else:
        # A ResourceQuota counts a device under this prefix.
        is_known = "kubernetes.io/" in name or not (
            name.startswith("requests.") or key_problems(f"requests.{name}")
        )
    if not is_known or key_problems(name):
        yield f"{path}: {name} is no resource of containers"


def _selector(metric: wire.MetricIdentifier, path: str) -> Iterator[str]:
    if metric.selector is None:
        return
    try:
        metric.selector.parsed()
    except SelectorError as error:
        yield f"{path}: {error}"


def _target(kind: str, target: wire.MetricTarget, path: str) -> Iterator[str]:
    yield from _one_of(f"{path}.type", target.type, _TARGET_TYPES)
    yield from _amount(f"{path}.value", target.value, 1)
    yield from _amount(f"{path}.averageValue", target.average_value, 1)
    if target.average_utilization is not None:
        yield from _in_range(f"{path}.averageUtilization", target.average_utilization, 1)
    amounts = {
        "value": target.value,
        "averageValue": target.average_value,
        "averageUtilization": target.average_utilization,
    }
    fields = _TARGETS[kind]
    present = [field for field in fields if amounts[field] is not None]
    if not present:
        yield f"{path}.{fields[0]}: {' or '.join(fields)} is required"
    elif len(present) > 1 and kind != "Object":
        yield f"{path}.{present[1]}: must not be beside {present[0]}"


def _amount(path: str, amount: Quantity | None, least_nano: int) -> Iterator[str]:
    if amount is None:
        return
    try:
        nano = quantity.from_wire(amount).nano
    except quantity.QuantityError as error:
        yield f"{path}: {amount}: {error.reason}"
        return
    if nano < least_nano:
        yield f"{path}: {amount} must be {'positive' if least_nano else 'at least 0'}"


def _rules(rules: wire.ScalingRules | None, path: str) -> Iterator[str]:
    if rules is None:
        return
    if (window := rules.stabilization_window_seconds) is not None:
        yield from _in_range(f"{path}.stabilizationWindowSeconds", window, 0, MAX_WINDOW_S)
    if rules.select_policy is not None:
        yield from _one_of(f"{path}.selectPolicy", rules.select_policy, ("Max", "Min", "Disabled"))
    if rules.policies is not None and not rules.policies:
        yield f"{path}.policies: at least one policy is required"
    for index, policy in enumerate(rules.policies or ()):
        at = f"{path}.policies[{index}]"
        yield from _one_of(f"{at}.type", policy.type, ("Pods", "Percent"))
        yield from _in_range(f"{at}.value", policy.value, 1)
        yield from _in_range(f"{at}.periodSeconds", policy.period_seconds, 1, MAX_PERIOD_S)
    yield from _amount(f"{path}.tolerance", rules.tolerance, 0)
